// Values of a running template, with Python's meaning of truth, equality, order and text. Objects
// live in the Heap of one rendering and die with it, so values are plain words and cycles harmless.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/index.h"
#include "tokenizers/template/marked_text.h"

namespace tessera::jinja {

struct MacroNode;
struct Scope;
struct StringObject;
struct ListObject;
struct DictObject;
struct LoopObject;
struct CallableObject;

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,  // and all that is iterated like one: see ListForm
  kDict,
  kNamespace,
  kLoop,
  kCallable,
};

struct Value {
  Kind kind = Kind::kUndefined;
  union {
    bool truth;
    std::int64_t integer;
    double number;
    const std::string* name = nullptr;  // of what is undefined, for messages; may be null
    const StringObject* string;
    ListObject* list;
    DictObject* dict;  // of a namespace too
    LoopObject* loop;
    const CallableObject* callable;
  };

  static Value undefined(const std::string* what = nullptr);
  static Value none();
  static Value boolean(bool value);
  static Value of(std::int64_t value);
  static Value of(double value);
  static Value of(const StringObject* value);
  static Value of(ListObject* value);
  static Value of(DictObject* value);
  static Value name_space(DictObject* value);
  static Value of(LoopObject* value);
  static Value of(const CallableObject* value);

  bool is(Kind wanted) const { return kind == wanted; }
  bool is_number() const {
    return kind == Kind::kBool || kind == Kind::kInt || kind == Kind::kFloat;
  }
};

struct StringObject {
  MarkedText text;
  bool markup = false;  // what `safe` returns: "+" escapes what is added to it
};

// What an operation throws; the interpreter adds file, line and column.
struct Trouble {
  const char* code = "";
  std::string expected, found, hint;
};
enum class ListForm : std::uint8_t {
  kList,
  kTuple,
  kRange,
  kView,       // items(), keys(), values() of a dictionary: no index, but a length
  kGenerator,  // what lazy filters return: no index, no length, read once
};

struct ListObject {
  ListForm form = ListForm::kList;
  std::vector<Value> items;
  std::size_t next = 0;              // of a generator: what was read already
  std::string_view label;            // of ranges and views: their text without the values
  const Trouble* trouble = nullptr;  // of a generator: what reading on would throw
  bool indexed() const { return form <= ListForm::kRange; }
};

struct DictObject {
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion
};

struct LoopObject {
  const ListObject* over = nullptr;
  std::size_t begin = 0;  // of a generator that was read in part
  std::int64_t index0 = 0, depth0 = 0;
  std::vector<Value> changed;  // last arguments of changed()
  bool has_changed = false;
  std::int64_t length() const { return std::ssize(over->items) - to_index(begin); }
};

// A macro, the body of a call block, a function of the environment or a method with its object.
struct CallableObject {
  enum class Kind : std::uint8_t { kMacro, kFunction, kMethod };
  Kind kind = Kind::kFunction;
  const MacroNode* macro = nullptr;
  Scope* scope = nullptr;  // where the macro was defined
  std::string_view name;   // static, or of the template
  Value self;              // of a method
};

[[noreturn]] void trouble_type(std::string expected, std::string found);
[[noreturn]] void trouble_limit(std::string expected, std::string found);
[[noreturn]] void trouble_unsupported(std::string expected, std::string found);
[[noreturn]] void trouble_undefined(const Value& value);

// Memory and work of one rendering. What exceeds the limits ends it with Trouble.
class Heap {
 public:
  Heap(std::int64_t max_steps, std::size_t max_bytes) : steps_(max_steps), bytes_(max_bytes) {}

  // `count` elements were looked at.
  void work(std::size_t count);
  // `count` bytes are about to be allocated.
  void take(std::size_t count);

  Value text(MarkedText text, bool markup = false);
  Value text(std::string_view own) { return text(MarkedText(own, false)); }
  Value list(std::vector<Value> items, ListForm form = ListForm::kList,
             std::string_view label = {});
  DictObject* dict();
  LoopObject* loop();
  const CallableObject* callable(CallableObject object);
  const std::string* name(std::string_view text);
  const Trouble* keep(const Trouble& trouble);

 private:
  std::int64_t steps_;
  std::size_t bytes_;
  std::deque<StringObject> strings_;
  std::deque<ListObject> lists_;
  std::deque<DictObject> dicts_;
  std::deque<LoopObject> loops_;
  std::deque<CallableObject> callables_;
  std::deque<std::string> names_;
  std::deque<Trouble> troubles_;
};

// Python's names of types, for messages: "str", "dict".
std::string_view type_name(const Value& value);
bool truthy(const Value& value);
// Trouble E_TEMPLATE_LIMIT for values nested too deeply.
bool equal(Heap& heap, const Value& a, const Value& b);
// a < b; Trouble for values without an order.
bool less(Heap& heap, const Value& a, const Value& b);
// The items a loop goes through; a generator is read. Trouble if it has none.
std::vector<Value> iterate(Heap& heap, const Value& value);
const Value* find(Heap& heap, const DictObject& dict, const Value& key);
const Value* find(Heap& heap, const DictObject& dict, std::string_view key);
// Replaces or appends. Trouble for keys without a hash.
void assign(Heap& heap, DictObject& dict, const Value& key, const Value& value);
// a in b
bool contains(Heap& heap, const Value& item, const Value& container);
std::int64_t length_of(Heap& heap, const Value& value);
// Python's hashable values: anything but lists and dictionaries.
bool hashable(const Value& value, int depth = 0);
double as_double(const Value& number);
// Of a bool or an int.
std::int64_t as_integer(const Value& number);

// Appends str(value), or repr(value).
void append_str(Heap& heap, MarkedText& out, const Value& value);
void append_repr(Heap& heap, MarkedText& out, const Value& value);
MarkedText str_of(Heap& heap, const Value& value);
std::string float_repr(double value);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false, indented = false;
  MarkedText indent, between, colon;
};
// Appends json.dumps(value). Trouble for what JSON has not.
void append_json(Heap& heap, MarkedText& out, const Value& value, const JsonStyle& style);

}  // namespace tessera::jinja
