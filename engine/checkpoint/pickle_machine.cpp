// Bytes, stack, memo and opcodes. Every thing that a file can make grow has a bound.
#include "engine/checkpoint/pickle_machine.h"

#include <span>
#include <utility>

#include "engine/checkpoint/container.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxPickle = std::size_t{64} << 20;
constexpr std::uint64_t kMaxSteps = 10'000'000;
constexpr std::size_t kMaxStack = 100'000;
constexpr std::uint64_t kMaxMemo = 1'000'000;
constexpr std::size_t kMaxSequences = 500'000;
constexpr std::size_t kMaxItems = 1'500'000;

}  // namespace

std::string_view pickle_kind_name(PickleKind kind) {
  constexpr std::array<std::string_view, 12> kNames = {
      "None",    "a bool", "an integer", "a number or bytes", "a string",  "a class or function",
      "a tuple", "a list", "a dict",     "a record",          "a storage", "a tensor"};
  return nth(kNames, kind);
}

PickledState PickleMachine::read() {
  if (pickle_.size() > kMaxPickle) {
    refuse("E_PT_PICKLE_SIZE", "at most " + std::to_string(kMaxPickle) + " bytes",
           std::to_string(pickle_.size()));
  }
  for (std::uint64_t steps = 0; step(); ++steps) {
    if (steps >= kMaxSteps) refuse("E_PT_STEPS", std::to_string(kMaxSteps) + " steps", "more");
  }
  const PickleValue root = pop();
  if (!stack_.empty() || !marks_.empty()) {
    refuse("E_PT_STACK", "one value at the end", std::to_string(stack_.size() + 1));
  }
  if (at_ != pickle_.size()) refuse("E_PT_TRAILING", "the end of data.pkl", "more bytes");
  return collect(root);
}

void PickleMachine::refuse(const char* code, std::string expected, std::string found,
                           std::string hint, std::string_view tensor) const {
  std::string where = "data.pkl byte " + std::to_string(op_at_);
  if (!tensor.empty()) where = "data.pkl, " + tensor_place(tensor);
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = file_,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

void PickleMachine::refuse_type(std::string expected, const PickleValue& found) const {
  refuse("E_PT_TYPE", std::move(expected), std::string(pickle_kind_name(found.kind)));
}

std::string_view PickleMachine::take(std::uint64_t count) {
  const std::uint64_t left = pickle_.size() - at_;
  if (count > left) {
    refuse("E_PT_TRUNCATED", std::to_string(count) + " more bytes of data.pkl",
           std::to_string(left));
  }
  const std::string_view bytes(pickle_.data() + at_, count);
  at_ += count;
  return bytes;
}

std::uint64_t PickleMachine::take_le(int bytes) {
  const std::string_view raw = take(narrow<std::uint64_t>(bytes));
  return read_le(std::as_bytes(std::span(raw)), 0, bytes);
}

std::string_view PickleMachine::take_line() {
  const std::size_t end = pickle_.find('\n', at_);
  if (end == std::string_view::npos) refuse("E_PT_TRUNCATED", "the end of a line", "none");
  const std::string_view line = pickle_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

std::string_view PickleMachine::text(const PickleValue& value) const {
  return {pickle_.data() + value.number, value.index};
}

void PickleMachine::push(PickleValue value) {
  if (stack_.size() >= kMaxStack) {
    refuse("E_PT_STACK", "a stack of at most " + std::to_string(kMaxStack), "one more");
  }
  stack_.push_back(value);
}

PickleValue& PickleMachine::top() {
  if (stack_.size() <= floor()) refuse("E_PT_STACK", "a value on the stack", "none");
  return stack_.back();
}

PickleValue PickleMachine::pop() {
  const PickleValue value = top();
  stack_.pop_back();
  return value;
}

std::vector<PickleValue> PickleMachine::pop_to_mark() {
  if (marks_.empty()) refuse("E_PT_STACK", "a mark on the stack", "none");
  const auto begin = stack_.begin() + to_index(marks_.back());
  std::vector<PickleValue> out(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return out;
}

PickleValue PickleMachine::make_sequence(PickleKind kind, std::vector<PickleValue> items) {
  if (sequences_.size() >= kMaxSequences) {
    refuse("E_PT_MEMORY", "at most " + std::to_string(kMaxSequences) + " containers", "one more");
  }
  count_items(items.size());
  sequences_.push_back(std::move(items));
  return {kind, narrow<std::uint32_t>(sequences_.size() - 1), 0};
}

void PickleMachine::count_items(std::size_t more) {
  items_ += more;
  if (items_ > kMaxItems) {
    refuse("E_PT_MEMORY", "at most " + std::to_string(kMaxItems) + " values", "more");
  }
}

void PickleMachine::extend(PickleKind kind, const std::vector<PickleValue>& more) {
  const PickleValue target = top();
  if (target.kind != kind) refuse_type(std::string(pickle_kind_name(kind)), target);
  if (kind == PickleKind::kDict && more.size() % 2 != 0) {
    refuse("E_PT_STACK", "a value for each key", "a key alone");
  }
  count_items(more.size());
  std::vector<PickleValue>& items = sequences_[target.index];
  items.insert(items.end(), more.begin(), more.end());
}

void PickleMachine::put(std::uint64_t slot) {
  if (slot >= kMaxMemo) {
    refuse("E_PT_MEMO", "a memo slot below " + std::to_string(kMaxMemo), std::to_string(slot));
  }
  if (slot >= memo_.size()) memo_.resize(slot + 1);
  memo_[slot] = top();
}

void PickleMachine::get(std::uint64_t slot) {
  if (slot >= memo_.size() || !memo_[slot]) {
    refuse("E_PT_MEMO", "a memo slot that was filled", std::to_string(slot));
  }
  push(*memo_[slot]);
}

bool PickleMachine::step() {
  op_at_ = at_;
  const char op = take(1).front();
  if (op == '.') return false;
  if (!scalar_op(op) && !text_op(op) && !container_op(op) && !memo_op(op) && !object_op(op)) {
    refuse("E_PT_OPCODE", "an opcode that torch.save writes",
           "opcode " + std::to_string(byte_of(op)));
  }
  return true;
}

bool PickleMachine::scalar_op(char op) {
  const auto integer = [this](std::int64_t value) { push({PickleKind::kInt, 0, value}); };
  switch (byte_of(op)) {
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
    case 'N':
      push({});
      return true;
    case 0x88:
      push({PickleKind::kBool, 0, 1});
      return true;
    case 0x89:
      push({PickleKind::kBool, 0, 0});
      return true;
    case 'J':
      integer(static_cast<std::int32_t>(take_le(4)));
      return true;
    case 'K':
      integer(to_index(take_le(1)));
      return true;
    case 'M':
      integer(to_index(take_le(2)));
      return true;
    case 0x8a:
      long_integer();
      return true;
    case 'G':
      take(8);
      push({PickleKind::kOpaque});
      return true;
    default:
      return false;
  }
}

// LONG1: two's complement, little endian; wider than 64 bits is a number nobody here asks for.
void PickleMachine::long_integer() {
  const std::uint64_t bytes = take_le(1);
  const std::string_view raw = take(bytes);
  if (bytes > 8) {
    push({PickleKind::kOpaque});
    return;
  }
  std::uint64_t value = read_le(std::as_bytes(std::span(raw)), 0, narrow<int>(bytes));
  const std::uint64_t unused_bits = 64 - 8 * bytes;
  if (bytes > 0 && unused_bits > 0 && ((value >> (8 * bytes - 1)) & 1) != 0) {
    value |= ~std::uint64_t{0} << (8 * bytes);
  }
  push({PickleKind::kInt, 0, static_cast<std::int64_t>(value)});
}

bool PickleMachine::text_op(char op) {
  const auto counted = [this](int length_bytes, PickleKind kind) {
    const std::uint64_t length = take_le(length_bytes);
    const std::string_view bytes = take(length);
    push({kind, narrow<std::uint32_t>(length), bytes.data() - pickle_.data()});
  };
  switch (byte_of(op)) {
    case 'X':
      counted(4, PickleKind::kString);
      return true;  // BINUNICODE
    case 0x8c:
      counted(1, PickleKind::kString);
      return true;  // SHORT_BINUNICODE
    case 0x8d:
      counted(8, PickleKind::kString);
      return true;  // BINUNICODE8
    case 'T':
      counted(4, PickleKind::kString);
      return true;  // BINSTRING
    case 'U':
      counted(1, PickleKind::kString);
      return true;  // SHORT_BINSTRING
    case 'B':
      counted(4, PickleKind::kOpaque);
      return true;  // BINBYTES
    case 'C':
      counted(1, PickleKind::kOpaque);
      return true;  // SHORT_BINBYTES
    case 0x8e:
      counted(8, PickleKind::kOpaque);
      return true;  // BINBYTES8
    default:
      return false;
  }
}

bool PickleMachine::container_op(char op) {
  const auto tuple = [this](std::size_t count) {
    std::vector<PickleValue> values(count);
    for (std::size_t i = count; i > 0; --i) values[i - 1] = pop();
    push(make_sequence(PickleKind::kTuple, std::move(values)));
  };
  switch (byte_of(op)) {
    case '(':
      marks_.push_back(stack_.size());
      check_marks();
      return true;
    case '0':
      pop();
      return true;
    case '1':
      pop_to_mark();
      return true;
    case '2':
      push(PickleValue(top()));
      return true;
    case ')':
      tuple(0);
      return true;
    case 0x85:
      tuple(1);
      return true;
    case 0x86:
      tuple(2);
      return true;
    case 0x87:
      tuple(3);
      return true;
    case 't':
      push(make_sequence(PickleKind::kTuple, pop_to_mark()));
      return true;
    case ']':
      push(make_sequence(PickleKind::kList, {}));
      return true;
    case '}':
      push(make_sequence(PickleKind::kDict, {}));
      return true;
    case 'a': {
      const PickleValue value = pop();
      extend(PickleKind::kList, {value});
      return true;
    }
    case 's': {
      const PickleValue value = pop();
      const PickleValue key = pop();
      extend(PickleKind::kDict, {key, value});
      return true;
    }
    case 'e':
      extend(PickleKind::kList, pop_to_mark());
      return true;
    case 'u':
      extend(PickleKind::kDict, pop_to_mark());
      return true;
    default:
      return false;
  }
}

void PickleMachine::check_marks() const {
  if (marks_.size() > kMaxStack) {
    refuse("E_PT_STACK", "at most " + std::to_string(kMaxStack) + " marks", "one more");
  }
}

bool PickleMachine::memo_op(char op) {
  switch (byte_of(op)) {
    case 'q':
      put(take_le(1));
      return true;
    case 'r':
      put(take_le(4));
      return true;
    case 'h':
      get(take_le(1));
      return true;
    case 'j':
      get(take_le(4));
      return true;
    case 0x94:
      put(memo_.size());
      return true;  // MEMOIZE
    default:
      return false;
  }
}

bool PickleMachine::object_op(char op) {
  switch (byte_of(op)) {
    case 'c': {  // GLOBAL
      const std::string_view module = take_line();
      mention(module, take_line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const PickleValue name = pop(), module = pop();
      if (name.kind != PickleKind::kString || module.kind != PickleKind::kString) {
        refuse_type("two strings", name.kind == PickleKind::kString ? module : name);
      }
      mention(text(module), text(name));
      return true;
    }
    case 'R':     // REDUCE
    case 0x81: {  // NEWOBJ
      const PickleValue arguments = pop(), callee = pop();
      if (arguments.kind != PickleKind::kTuple) refuse_type("a tuple of arguments", arguments);
      push(rebuild(callee, arguments));
      return true;
    }
    case 'b': {  // BUILD: attributes of a dict, a record or a tensor; none matters here
      pop();
      const PickleKind kind = top().kind;
      if (kind != PickleKind::kDict && kind != PickleKind::kRecord && kind != PickleKind::kTensor) {
        refuse_type("an object to give attributes to", top());
      }
      return true;
    }
    case 'Q':
      push(persistent(pop()));
      return true;  // BINPERSID
    default:
      return false;
  }
}

}  // namespace tessera
