// The machine after pickle.h: values, bounds, and the state of one run. Opcodes are in
// pickle_machine.cpp, the patterns that stand for calls in pickle_objects.cpp, the search for the
// state dict in pickle.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/pickle.h"
#include "engine/checkpoint/pickle_names.h"
#include "engine/core/tensor.h"

namespace tessera {

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kOpaque,
  kString,
  kName,
  kTuple,
  kList,
  kDict,
  kRecord,
  kStorage,
  kTensor
};

std::string_view pickle_kind_name(PickleKind kind);

// Strings are (length, offset in the pickle); sequences, names, storages and tensors are indices.
struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  std::uint32_t index = 0;
  std::int64_t number = 0;
};

struct PickleStorage {
  DType dtype = DType::kF32;
  std::string_view key;
  std::uint64_t size = 0;
};

struct PickleTensorRecord {
  std::uint32_t storage = 0;
  std::uint64_t offset = 0, reach = 0;
  Shape shape;
  std::array<std::int64_t, kMaxRank> strides{};
  bool dense = true;
};

class PickleMachine {
 public:
  PickleMachine(std::string_view pickle, const std::string& file) : pickle_(pickle), file_(file) {}
  PickledState read();

 private:
  [[noreturn]] void refuse(const char* code, std::string expected, std::string found,
                           std::string hint = {}, std::string_view tensor = {}) const;
  [[noreturn]] void refuse_type(std::string expected, const PickleValue& found) const;

  // --- bytes of the pickle ---
  std::string_view take(std::uint64_t count);
  std::uint64_t take_le(int bytes);
  std::string_view take_line();
  std::string_view text(const PickleValue& value) const;

  // --- stack, memo, sequences ---
  void push(PickleValue value);
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleValue& top();
  PickleValue pop();
  std::vector<PickleValue> pop_to_mark();
  PickleValue make_sequence(PickleKind kind, std::vector<PickleValue> items);
  void count_items(std::size_t more);
  const std::vector<PickleValue>& items(const PickleValue& value) const {
    return sequences_[value.index];
  }
  void extend(PickleKind kind, const std::vector<PickleValue>& more);
  void put(std::uint64_t slot);
  void get(std::uint64_t slot);

  // --- opcodes; each group returns false if the opcode is not its own ---
  bool step();
  bool scalar_op(char op);
  // LONG1: two's complement, little endian; wider than 64 bits is a number nobody here asks for.
  void long_integer();
  bool text_op(char op);
  bool container_op(char op);
  void check_marks() const;
  bool memo_op(char op);
  bool object_op(char op);

  // --- names and what stands for calls ---
  void mention(std::string_view module, std::string_view name);
  const PickleName& name_of(const PickleValue& value) const;
  PickleValue argument(const PickleValue& arguments, std::size_t i, PickleKind kind) const;
  PickleValue rebuild(const PickleValue& callee, const PickleValue& arguments);
  PickleValue ordered_dict(const PickleValue& arguments);
  // ("storage", class, key, device, size)
  PickleValue persistent(const PickleValue& id);
  PickleValue rebuild_tensor(const PickleValue& arguments);
  // Works out how far into its storage a tensor reaches and whether it is dense.
  void place_in_storage(PickleTensorRecord& tensor) const;

  // --- the state dict ---
  bool holds_tensors(const PickleValue& value) const;
  PickledState collect(const PickleValue& root) const;
  void add_tensors(const PickleValue& dict, PickledState& out) const;

  std::string_view pickle_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;  // of the opcode at work, for messages
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;  // stack sizes
  std::vector<std::optional<PickleValue>> memo_;
  std::vector<std::vector<PickleValue>> sequences_;
  std::size_t items_ = 0;
  std::vector<const PickleName*> names_;
  std::vector<PickleStorage> storages_;
  std::vector<PickleTensorRecord> tensors_;
};

}  // namespace tessera
