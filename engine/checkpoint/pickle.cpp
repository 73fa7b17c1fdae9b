// The pickle machine: a stack of plain values, a memo, and bounds on everything a file can make grow.
#include "engine/checkpoint/pickle.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "engine/checkpoint/container.h"
#include "engine/checkpoint/pickle_names.h"
#include "engine/core/checked.h"
#include "engine/core/fault.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxPickle = std::size_t{64} << 20;
constexpr std::uint64_t kMaxSteps = 10'000'000;
constexpr std::size_t kMaxStack = 100'000;
constexpr std::uint64_t kMaxMemo = 1'000'000;
constexpr std::size_t kMaxSequences = 500'000;
constexpr std::size_t kMaxItems = 1'500'000;

enum class Kind : std::uint8_t {
  kNone, kBool, kInt, kOpaque, kString, kName, kTuple, kList, kDict, kRecord, kStorage, kTensor
};

constexpr std::string_view kind_name(Kind kind) {
  constexpr std::array<std::string_view, 12> kNames = {
      "None",    "a bool", "an integer", "a number or bytes", "a string",  "a class or function",
      "a tuple", "a list", "a dict",     "a record",          "a storage", "a tensor"};
  return kNames[static_cast<std::size_t>(kind)];
}

// Strings are (length, offset in the pickle); sequences, names, storages and tensors are indices.
struct Value {
  Kind kind = Kind::kNone;
  std::uint32_t index = 0;
  std::int64_t number = 0;
};

struct Storage {
  DType dtype = DType::kF32;
  std::string_view key;
  std::uint64_t size = 0;
};

struct TensorRecord {
  std::uint32_t storage = 0;
  std::uint64_t offset = 0, reach = 0;
  Shape shape;
  std::array<std::int64_t, kMaxRank> strides{};
  bool dense = true;
};

class Machine {
 public:
  Machine(std::string_view pickle, const std::string& file) : pickle_(pickle), file_(file) {}

  PickledState read() {
    if (pickle_.size() > kMaxPickle) {
      refuse("E_PT_PICKLE_SIZE", "at most " + std::to_string(kMaxPickle) + " bytes",
             std::to_string(pickle_.size()));
    }
    for (std::uint64_t steps = 0; step(); ++steps) {
      if (steps >= kMaxSteps) refuse("E_PT_STEPS", std::to_string(kMaxSteps) + " steps", "more");
    }
    const Value root = pop();
    if (!stack_.empty() || !marks_.empty()) {
      refuse("E_PT_STACK", "one value at the end", std::to_string(stack_.size() + 1));
    }
    if (at_ != pickle_.size()) refuse("E_PT_TRAILING", "the end of data.pkl", "more bytes");
    return collect(root);
  }

 private:
  [[noreturn]] void refuse(const char* code, std::string expected, std::string found,
                           std::string hint = {}, std::string_view tensor = {}) const {
    std::string where = "data.pkl byte " + std::to_string(op_at_);
    if (!tensor.empty()) where = "data.pkl, " + tensor_place(tensor);
    throw Error({.kind = ErrorKind::kModel, .code = code, .file = file_, .where = std::move(where),
                 .expected = std::move(expected), .found = std::move(found),
                 .hint = std::move(hint)});
  }

  [[noreturn]] void refuse_type(std::string expected, const Value& found) const {
    refuse("E_PT_TYPE", std::move(expected), std::string(kind_name(found.kind)));
  }

  // --- bytes of the pickle ---

  std::string_view take(std::uint64_t count) {
    const std::uint64_t left =
        pickle_.size() - at_ + (plant("pickle_read_off_by_one") ? 1 : 0);
    if (count > left) {
      refuse("E_PT_TRUNCATED", std::to_string(count) + " more bytes of data.pkl",
             std::to_string(left));
    }
    const std::string_view bytes(pickle_.data() + at_, count);
    at_ += count;
    return bytes;
  }

  std::uint64_t take_le(int bytes) {
    const std::string_view raw = take(static_cast<std::uint64_t>(bytes));
    return read_le(std::as_bytes(std::span(raw)), 0, bytes);
  }

  std::string_view take_line() {
    const std::size_t end = pickle_.find('\n', at_);
    if (end == std::string_view::npos) refuse("E_PT_TRUNCATED", "the end of a line", "none");
    const std::string_view line = pickle_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  std::string_view text(const Value& value) const {
    return {pickle_.data() + value.number, value.index};
  }

  // --- stack, memo, sequences ---

  void push(Value value) {
    if (stack_.size() >= kMaxStack) {
      refuse("E_PT_STACK", "a stack of at most " + std::to_string(kMaxStack), "one more");
    }
    stack_.push_back(value);
  }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  Value& top() {
    if (stack_.size() <= floor()) refuse("E_PT_STACK", "a value on the stack", "none");
    return stack_.back();
  }

  Value pop() {
    const Value value = top();
    stack_.pop_back();
    return value;
  }

  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) refuse("E_PT_STACK", "a mark on the stack", "none");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Value> out(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return out;
  }

  Value make_sequence(Kind kind, std::vector<Value> items) {
    if (sequences_.size() >= kMaxSequences) {
      refuse("E_PT_MEMORY", "at most " + std::to_string(kMaxSequences) + " containers", "one more");
    }
    count_items(items.size());
    sequences_.push_back(std::move(items));
    return {kind, static_cast<std::uint32_t>(sequences_.size() - 1), 0};
  }

  void count_items(std::size_t more) {
    items_ += more;
    if (items_ > kMaxItems) {
      refuse("E_PT_MEMORY", "at most " + std::to_string(kMaxItems) + " values", "more");
    }
  }

  const std::vector<Value>& items(const Value& value) const { return sequences_[value.index]; }

  void extend(Kind kind, const std::vector<Value>& more) {
    const Value target = top();
    if (target.kind != kind) refuse_type(std::string(kind_name(kind)), target);
    if (kind == Kind::kDict && more.size() % 2 != 0) {
      refuse("E_PT_STACK", "a value for each key", "a key alone");
    }
    count_items(more.size());
    std::vector<Value>& items = sequences_[target.index];
    items.insert(items.end(), more.begin(), more.end());
  }

  void put(std::uint64_t slot) {
    if (slot >= kMaxMemo) {
      refuse("E_PT_MEMO", "a memo slot below " + std::to_string(kMaxMemo), std::to_string(slot));
    }
    if (slot >= memo_.size()) memo_.resize(slot + 1);
    memo_[slot] = top();
  }

  void get(std::uint64_t slot) {
    if (slot >= memo_.size() || !memo_[slot]) {
      refuse("E_PT_MEMO", "a memo slot that was filled", std::to_string(slot));
    }
    push(*memo_[slot]);
  }

  // --- opcodes; each group returns false if the opcode is not its own ---

  bool step() {
    op_at_ = at_;
    const char op = take(1).front();
    if (op == '.') return false;
    if (!scalar_op(op) && !text_op(op) && !container_op(op) && !memo_op(op) && !object_op(op)) {
      refuse("E_PT_OPCODE", "an opcode that torch.save writes",
             "opcode " + std::to_string(static_cast<unsigned char>(op)));
    }
    return true;
  }

  bool scalar_op(char op) {
    const auto integer = [this](std::int64_t value) { push({Kind::kInt, 0, value}); };
    switch (static_cast<unsigned char>(op)) {
      case 0x80: {  // PROTO
        const std::uint64_t version = take_le(1);
        if (version < 2 || version > 5) {
          refuse("E_PT_PROTOCOL", "pickle protocol 2..5", std::to_string(version));
        }
        return true;
      }
      case 0x95: {  // FRAME
        const std::uint64_t length = take_le(8);
        if (length > pickle_.size() - at_) {
          refuse("E_PT_TRUNCATED", "a frame of " + std::to_string(length) + " bytes",
                 std::to_string(pickle_.size() - at_));
        }
        return true;
      }
      case 'N': push({}); return true;
      case 0x88: push({Kind::kBool, 0, 1}); return true;
      case 0x89: push({Kind::kBool, 0, 0}); return true;
      case 'J': integer(static_cast<std::int32_t>(take_le(4))); return true;
      case 'K': integer(static_cast<std::int64_t>(take_le(1))); return true;
      case 'M': integer(static_cast<std::int64_t>(take_le(2))); return true;
      case 0x8a: long_integer(); return true;
      case 'G': take(8); push({Kind::kOpaque}); return true;
      default: return false;
    }
  }

  // LONG1: two's complement, little endian; wider than 64 bits is a number nobody here asks for.
  void long_integer() {
    const std::uint64_t bytes = take_le(1);
    const std::string_view raw = take(bytes);
    if (bytes > 8) {
      push({Kind::kOpaque});
      return;
    }
    std::uint64_t value = read_le(std::as_bytes(std::span(raw)), 0, static_cast<int>(bytes));
    const std::uint64_t unused_bits = 64 - 8 * bytes;
    if (bytes > 0 && unused_bits > 0 && ((value >> (8 * bytes - 1)) & 1) != 0) {
      value |= ~std::uint64_t{0} << (8 * bytes);
    }
    push({Kind::kInt, 0, static_cast<std::int64_t>(value)});
  }

  bool text_op(char op) {
    const auto counted = [this](int length_bytes, Kind kind) {
      const std::uint64_t length = take_le(length_bytes);
      const std::string_view bytes = take(length);
      push({kind, static_cast<std::uint32_t>(length), bytes.data() - pickle_.data()});
    };
    switch (static_cast<unsigned char>(op)) {
      case 'X': counted(4, Kind::kString); return true;   // BINUNICODE
      case 0x8c: counted(1, Kind::kString); return true;  // SHORT_BINUNICODE
      case 0x8d: counted(8, Kind::kString); return true;  // BINUNICODE8
      case 'T': counted(4, Kind::kString); return true;   // BINSTRING
      case 'U': counted(1, Kind::kString); return true;   // SHORT_BINSTRING
      case 'B': counted(4, Kind::kOpaque); return true;   // BINBYTES
      case 'C': counted(1, Kind::kOpaque); return true;   // SHORT_BINBYTES
      case 0x8e: counted(8, Kind::kOpaque); return true;  // BINBYTES8
      default: return false;
    }
  }

  bool container_op(char op) {
    const auto tuple = [this](std::size_t count) {
      std::vector<Value> values(count);
      for (std::size_t i = count; i > 0; --i) values[i - 1] = pop();
      push(make_sequence(Kind::kTuple, std::move(values)));
    };
    switch (static_cast<unsigned char>(op)) {
      case '(': marks_.push_back(stack_.size()); check_marks(); return true;
      case '0': pop(); return true;
      case '1': pop_to_mark(); return true;
      case '2': push(Value(top())); return true;
      case ')': tuple(0); return true;
      case 0x85: tuple(1); return true;
      case 0x86: tuple(2); return true;
      case 0x87: tuple(3); return true;
      case 't': push(make_sequence(Kind::kTuple, pop_to_mark())); return true;
      case ']': push(make_sequence(Kind::kList, {})); return true;
      case '}': push(make_sequence(Kind::kDict, {})); return true;
      case 'a': {
        const Value value = pop();
        extend(Kind::kList, {value});
        return true;
      }
      case 's': {
        const Value value = pop();
        const Value key = pop();
        extend(Kind::kDict, {key, value});
        return true;
      }
      case 'e': extend(Kind::kList, pop_to_mark()); return true;
      case 'u': extend(Kind::kDict, pop_to_mark()); return true;
      default: return false;
    }
  }

  void check_marks() const {
    if (marks_.size() > kMaxStack) {
      refuse("E_PT_STACK", "at most " + std::to_string(kMaxStack) + " marks", "one more");
    }
  }

  bool memo_op(char op) {
    switch (static_cast<unsigned char>(op)) {
      case 'q': put(take_le(1)); return true;
      case 'r': put(take_le(4)); return true;
      case 'h': get(take_le(1)); return true;
      case 'j': get(take_le(4)); return true;
      case 0x94: put(memo_.size()); return true;  // MEMOIZE
      default: return false;
    }
  }

  bool object_op(char op) {
    switch (static_cast<unsigned char>(op)) {
      case 'c': {  // GLOBAL
        const std::string_view module = take_line();
        mention(module, take_line());
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const Value name = pop(), module = pop();
        if (name.kind != Kind::kString || module.kind != Kind::kString) {
          refuse_type("two strings", name.kind == Kind::kString ? module : name);
        }
        mention(text(module), text(name));
        return true;
      }
      case 'R':     // REDUCE
      case 0x81: {  // NEWOBJ
        const Value arguments = pop(), callee = pop();
        if (arguments.kind != Kind::kTuple) refuse_type("a tuple of arguments", arguments);
        push(rebuild(callee, arguments));
        return true;
      }
      case 'b': {  // BUILD: attributes of a dict, a record or a tensor; none matters here
        pop();
        const Kind kind = top().kind;
        if (kind != Kind::kDict && kind != Kind::kRecord && kind != Kind::kTensor) {
          refuse_type("an object to give attributes to", top());
        }
        return true;
      }
      case 'Q': push(persistent(pop())); return true;  // BINPERSID
      default: return false;
    }
  }

  // --- names and what stands for calls ---

  void mention(std::string_view module, std::string_view name) {
    const PickleName* entry = find_pickle_name(module, name);
    const std::string full =
        std::string(module.substr(0, 100)) + "." + std::string(name.substr(0, 100));
    if (entry == nullptr) {
      refuse("E_PT_GLOBAL", "only tensors, storages and plain data", full,
             "other names could run code; get the weights as safetensors");
    }
    if (entry->role == PickleRole::kUnsupported) {
      refuse("E_PT_DTYPE", "dense tensors of f32, bf16, f16, f64, integers or bool", full);
    }
    names_.push_back(entry);
    if (names_.size() > kMaxItems) refuse("E_PT_MEMORY", "fewer names", "too many");
    push({Kind::kName, static_cast<std::uint32_t>(names_.size() - 1), 0});
  }

  const PickleName& name_of(const Value& value) const {
    if (value.kind != Kind::kName) refuse_type("a rebuilder", value);
    return *names_[value.index];
  }

  Value argument(const Value& arguments, std::size_t i, Kind kind) const {
    if (i >= items(arguments).size()) {
      refuse("E_PT_CALL", "more than " + std::to_string(i) + " arguments",
             std::to_string(items(arguments).size()));
    }
    const Value value = items(arguments)[i];
    if (value.kind != kind) refuse_type(std::string(kind_name(kind)), value);
    return value;
  }

  Value rebuild(const Value& callee, const Value& arguments) {
    const PickleName& name = name_of(callee);
    switch (name.role) {
      case PickleRole::kRebuildTensor:
      case PickleRole::kRebuildTensorV2: return rebuild_tensor(arguments);
      case PickleRole::kRebuildParameter: return argument(arguments, 0, Kind::kTensor);
      case PickleRole::kRebuildFromType: {
        const Value inner = argument(arguments, 0, Kind::kName);
        if (name_of(inner).role == PickleRole::kRebuildFromType) {
          refuse("E_PT_CALL", "a tensor rebuilder", "one that calls another");
        }
        return rebuild(inner, argument(arguments, 2, Kind::kTuple));
      }
      case PickleRole::kOrderedDict: return ordered_dict(arguments);
      case PickleRole::kSize: return argument(arguments, 0, Kind::kTuple);
      case PickleRole::kNamespace: return {Kind::kRecord};
      default: refuse("E_PT_CALL", "a rebuilder",
                      std::string(name.module) + "." + std::string(name.name));
    }
  }

  Value ordered_dict(const Value& arguments) {
    std::vector<Value> flat;
    if (!items(arguments).empty()) {
      for (const Value& pair : items(argument(arguments, 0, Kind::kList))) {
        const bool is_pair = (pair.kind == Kind::kList || pair.kind == Kind::kTuple) &&
                             items(pair).size() == 2;
        if (!is_pair) refuse_type("a pair of key and value", pair);
        flat.insert(flat.end(), items(pair).begin(), items(pair).end());
      }
    }
    return make_sequence(Kind::kDict, std::move(flat));
  }

  // ("storage", class, key, device, size)
  Value persistent(const Value& id) {
    if (id.kind != Kind::kTuple) refuse_type("a tuple that names a storage", id);
    const std::string_view word = text(argument(id, 0, Kind::kString));
    const PickleName& type = name_of(argument(id, 1, Kind::kName));
    const std::string_view key = text(argument(id, 2, Kind::kString));
    const Value size = argument(id, 4, Kind::kInt);
    if (word != "storage" || type.role != PickleRole::kStorage || size.number < 0 ||
        !is_tensor_name(key)) {
      refuse("E_PT_STORAGE_ID", "(\"storage\", class, key, device, size)",
             "another tuple, size " + std::to_string(size.number));
    }
    if (storages_.size() >= 2 * kMaxTensors) {
      refuse("E_PT_COUNT", "at most " + std::to_string(2 * kMaxTensors) + " storages", "one more");
    }
    storages_.push_back({type.dtype, key, static_cast<std::uint64_t>(size.number)});
    return {Kind::kStorage, static_cast<std::uint32_t>(storages_.size() - 1), 0};
  }

  Value rebuild_tensor(const Value& arguments) {
    const Value storage = argument(arguments, 0, Kind::kStorage);
    const Value offset = argument(arguments, 1, Kind::kInt);
    const std::vector<Value>& size = items(argument(arguments, 2, Kind::kTuple));
    const std::vector<Value>& stride = items(argument(arguments, 3, Kind::kTuple));
    if (size.size() > kMaxRank || stride.size() != size.size() || offset.number < 0) {
      refuse("E_PT_SHAPE",
             "at most " + std::to_string(kMaxRank) + " dimensions, a stride each, an offset >= 0",
             std::to_string(size.size()) + " sizes, " + std::to_string(stride.size()) +
                 " strides, offset " + std::to_string(offset.number));
    }
    TensorRecord tensor{.storage = storage.index,
                        .offset = static_cast<std::uint64_t>(offset.number)};
    std::array<std::int64_t, kMaxRank> extents{};
    for (std::size_t i = 0; i < size.size(); ++i) {
      if (size[i].kind != Kind::kInt || stride[i].kind != Kind::kInt || size[i].number < 0 ||
          stride[i].number < 0) {
        refuse("E_PT_SHAPE", "sizes and strides of integers >= 0",
               std::to_string(size[i].number) + " and " + std::to_string(stride[i].number));
      }
      extents[i] = size[i].number;
      tensor.strides[i] = stride[i].number;
    }
    tensor.shape = Shape(std::span<const std::int64_t>(extents.data(), size.size()));
    place_in_storage(tensor);
    if (tensors_.size() >= kMaxTensors) {
      refuse("E_PT_COUNT", "at most " + std::to_string(kMaxTensors) + " tensors", "one more");
    }
    tensors_.push_back(tensor);
    return {Kind::kTensor, static_cast<std::uint32_t>(tensors_.size() - 1), 0};
  }

  // Works out how far into its storage a tensor reaches and whether it is dense.
  void place_in_storage(TensorRecord& tensor) const {
    const std::uint64_t size = storages_[tensor.storage].size;
    const auto elements = checked_product(tensor.shape.extents());
    if (!elements || !checked_mul(*elements, 8)) {
      refuse("E_PT_SHAPE", "fewer than 2^61 elements", "shape " + tensor.shape.to_string());
    }
    std::optional<std::uint64_t> reach = tensor.offset;
    std::int64_t dense_stride = 1;
    if (*elements > 0) {
      for (int axis = tensor.shape.rank() - 1; axis >= 0 && reach; --axis) {
        const std::int64_t extent = tensor.shape[axis];
        const std::int64_t stride = tensor.strides[static_cast<std::size_t>(axis)];
        tensor.dense = tensor.dense && (extent == 1 || stride == dense_stride);
        dense_stride *= extent;
        const auto step = checked_mul(static_cast<std::uint64_t>(extent - 1),
                                      static_cast<std::uint64_t>(stride));
        reach = step ? checked_add(*reach, *step) : std::nullopt;
      }
      if (reach) reach = checked_add(*reach, 1);
    }
    const std::uint64_t limit = size + (plant("pt_reach_off_by_one") ? 1 : 0);
    if (!reach || *reach > limit) {
      refuse("E_PT_STRIDE", "elements inside a storage of " + std::to_string(size),
             "shape " + tensor.shape.to_string() + " from element " +
                 std::to_string(tensor.offset) + (reach ? " to " + std::to_string(*reach) : ""));
    }
    tensor.reach = *reach;
    if (!tensor.dense && *elements > tensor.reach - tensor.offset) {
      refuse("E_PT_STRIDE", "a tensor that holds each element once",
             "shape " + tensor.shape.to_string() + " over " +
                 std::to_string(tensor.reach - tensor.offset) + " elements",
             "save it as tensor.contiguous()");
    }
  }

  // --- the state dict ---

  bool holds_tensors(const Value& value) const {
    if (value.kind != Kind::kDict) return false;
    const std::vector<Value>& pairs = items(value);
    for (std::size_t i = 1; i < pairs.size(); i += 2) {
      if (pairs[i].kind == Kind::kTensor) return true;
    }
    return false;
  }

  PickledState collect(const Value& root) const {
    if (root.kind != Kind::kDict) {
      refuse("E_PT_NO_TENSORS", "a dict of tensors", std::string(kind_name(root.kind)));
    }
    PickledState out;
    for (const std::string_view wanted : {"model", "module", "state_dict"}) {
      const std::vector<Value>& pairs = items(root);
      for (std::size_t i = 0; i < pairs.size() && out.tensors.empty(); i += 2) {
        if (pairs[i].kind != Kind::kString || text(pairs[i]) != wanted) continue;
        if (!holds_tensors(pairs[i + 1])) continue;
        out.root = wanted;
        add_tensors(pairs[i + 1], out);
      }
      if (!out.tensors.empty()) return out;
    }
    add_tensors(root, out);
    if (out.tensors.empty()) {
      refuse("E_PT_NO_TENSORS", "tensors at the top level or under model, module or state_dict",
             "none there");
    }
    return out;
  }

  void add_tensors(const Value& dict, PickledState& out) const {
    const std::vector<Value>& pairs = items(dict);
    for (std::size_t i = 0; i < pairs.size(); i += 2) {
      if (pairs[i + 1].kind != Kind::kTensor) continue;  // step counts and the like
      if (pairs[i].kind != Kind::kString || !is_tensor_name(text(pairs[i]))) {
        refuse("E_PT_NAME", "tensors under names of printable text",
               std::string(kind_name(pairs[i].kind)));
      }
      const TensorRecord& record = tensors_[pairs[i + 1].index];
      const Storage& storage = storages_[record.storage];
      PickledTensor tensor{.name = std::string(text(pairs[i])), .dtype = storage.dtype,
                           .storage = std::string(storage.key), .storage_size = storage.size,
                           .offset = record.offset, .reach = record.reach, .shape = record.shape,
                           .strides = {}};
      if (!record.dense) {
        tensor.strides.assign(record.strides.begin(), record.strides.begin() + record.shape.rank());
      }
      out.tensors.push_back(std::move(tensor));
    }
    std::vector<std::string_view> names;
    for (const PickledTensor& tensor : out.tensors) names.push_back(tensor.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) refuse("E_PT_DUPLICATE", "each name once", "it again", {}, *twice);
  }

  std::string_view pickle_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;  // of the opcode at work, for messages
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;  // stack sizes
  std::vector<std::optional<Value>> memo_;
  std::vector<std::vector<Value>> sequences_;
  std::size_t items_ = 0;
  std::vector<const PickleName*> names_;
  std::vector<Storage> storages_;
  std::vector<TensorRecord> tensors_;
};

}  // namespace

PickledState read_pickled_state(std::string_view pickle, const std::string& file) {
  return Machine(pickle, file).read();
}

}  // namespace tessera
