// Hidden states of committed rows on their way from a pass to the drafter that asked for them. A
// drafter that asks for none costs nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decoding/drafter.h"
#include "engine/decoding/model_pass.h"

namespace tessera {

class HiddenSignal {
 public:
  using LoopDrafter = Drafter<float, KeyedRandom>;

  // What `drafter` (may be null) asks for, from passes of at most `rows` rows. Error kMemory.
  void ask(LoopDrafter* drafter, ModelPass& pass, std::int64_t rows);
  bool wanted() const { return !layers_.empty(); }
  // The pass that ran.
  void begin(ModelPass& pass);
  // Rows [first + kept[i]] of the pass are committed, those of a branch of the stream in a slot.
  void show(ModelPass& pass, std::size_t slot, int branch, std::int64_t first,
            std::span<const std::int32_t> kept);
  // `count` rows from `first` on.
  void show(ModelPass& pass, std::size_t slot, int branch, std::int64_t first, std::int64_t count);

 private:
  void emit(const ModelPass& pass, std::size_t slot, int branch);

  LoopDrafter* drafter_ = nullptr;
  std::vector<std::int64_t> layers_, rows_, positions_;
  std::vector<ConstTensorView> states_;
};

}  // namespace tessera
