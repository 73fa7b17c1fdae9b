// Rows of codes side by side whose tokens a device draws.
#pragma once

#include <cstdint>
#include <span>

#include "engine/decoding/judged_sequence.h"
#include "engine/decoding/row_base.h"

namespace tessera {

class JudgedRows final : public RowBase<float, KeyedRandom>, public JudgedSequence {
 public:
  using RowBase::RowBase;

  void describe(std::int32_t cond, std::int32_t uncond, JudgedBatch& batch) override;
  void take(std::span<const RowRecord> records, const JudgedCount& item) override;

  void judge(RawRows<float>, std::size_t) override {
    expects(false, "rows that a device judges are not on the host");
  }

 private:
  struct Records;
};

}  // namespace tessera
