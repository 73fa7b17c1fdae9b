#include "tokenizers/template/value.h"

#include <cmath>
#include <cstring>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera::jinja {

namespace {

constexpr int kMaxNesting = 200;

void check_nesting(int depth) {
  if (depth > kMaxNesting) {
    trouble_limit("values nested at most " + std::to_string(kMaxNesting) + " deep", "more");
  }
}

bool equal_lists(Heap& heap, const ListObject& a, const ListObject& b, int depth);

bool equal_at(Heap& heap, const Value& a, const Value& b, int depth) {
  check_nesting(depth);
  heap.work(1);
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) return as_double(a) == as_double(b);
    return as_integer(a) == as_integer(b);
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString: {
      heap.work(a.string->text.size() / 64);
      return a.string->text.bytes() == b.string->text.bytes();
    }
    case Kind::kList:
      return equal_lists(heap, *a.list, *b.list, depth);
    case Kind::kDict: {
      if (a.dict == b.dict) return true;
      if (a.dict->entries.size() != b.dict->entries.size()) return false;
      for (const auto& [key, value] : a.dict->entries) {
        const Value* other = find(heap, *b.dict, key);
        if (other == nullptr || !equal_at(heap, value, *other, depth + 1)) return false;
      }
      return true;
    }
    case Kind::kNamespace:
      return a.dict == b.dict;
    case Kind::kLoop:
      return a.loop == b.loop;
    default:
      return a.callable == b.callable;
  }
}

bool equal_lists(Heap& heap, const ListObject& a, const ListObject& b, int depth) {
  if (&a == &b) return true;
  if (a.form != b.form || !a.indexed() || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal_at(heap, a.items[i], b.items[i], depth + 1)) return false;
  }
  return true;
}

bool less_at(Heap& heap, const Value& a, const Value& b, int depth) {
  check_nesting(depth);
  heap.work(1);
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) return as_double(a) < as_double(b);
    return as_integer(a) < as_integer(b);
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    heap.work(a.string->text.size() / 64);
    return a.string->text.bytes() < b.string->text.bytes();  // as code points, in UTF-8
  }
  if (a.is(Kind::kList) && b.is(Kind::kList) && a.list->form == b.list->form &&
      a.list->form <= ListForm::kTuple) {
    const auto &left = a.list->items, &right = b.list->items;
    for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
      if (!equal_at(heap, left[i], right[i], depth + 1)) {
        return less_at(heap, left[i], right[i], depth + 1);
      }
    }
    return left.size() < right.size();
  }
  trouble_type("two values with an order",
               std::string(type_name(a)) + " and " + std::string(type_name(b)));
}

std::vector<Value> characters(Heap& heap, const MarkedText& text) {
  std::vector<Value> out;
  heap.work(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = decode_utf8(text.bytes(), at).length;
    out.push_back(heap.text(text.slice(at, at + length)));
    at += length;
  }
  return out;
}

}  // namespace

void trouble_type(std::string expected, std::string found) {
  throw Trouble{"E_TEMPLATE_VALUE", std::move(expected), std::move(found), {}};
}

void trouble_limit(std::string expected, std::string found) {
  throw Trouble{"E_TEMPLATE_LIMIT", std::move(expected), std::move(found), {}};
}

void trouble_unsupported(std::string expected, std::string found) {
  throw Trouble{"E_TEMPLATE_UNSUPPORTED", std::move(expected), std::move(found), {}};
}

void trouble_undefined(const Value& value) {
  trouble_type("a defined value",
               value.name != nullptr ? "'" + *value.name + "' is undefined" : "an undefined one");
}

Value Value::undefined(const std::string* what) {
  Value out;
  out.name = what;
  return out;
}
Value Value::none() {
  Value out;
  out.kind = Kind::kNone;
  return out;
}
Value Value::boolean(bool value) {
  Value out;
  out.kind = Kind::kBool;
  out.truth = value;
  return out;
}
Value Value::of(std::int64_t value) {
  Value out;
  out.kind = Kind::kInt;
  out.integer = value;
  return out;
}
Value Value::of(double value) {
  Value out;
  out.kind = Kind::kFloat;
  out.number = value;
  return out;
}
Value Value::of(const StringObject* value) {
  Value out;
  out.kind = Kind::kString;
  out.string = value;
  return out;
}
Value Value::of(ListObject* value) {
  Value out;
  out.kind = Kind::kList;
  out.list = value;
  return out;
}
Value Value::of(DictObject* value) {
  Value out;
  out.kind = Kind::kDict;
  out.dict = value;
  return out;
}
Value Value::name_space(DictObject* value) {
  Value out = of(value);
  out.kind = Kind::kNamespace;
  return out;
}
Value Value::of(LoopObject* value) {
  Value out;
  out.kind = Kind::kLoop;
  out.loop = value;
  return out;
}
Value Value::of(const CallableObject* value) {
  Value out;
  out.kind = Kind::kCallable;
  out.callable = value;
  return out;
}

void Heap::work(std::size_t count) {
  if (count > to_size(steps_)) {
    steps_ = 0;
    trouble_limit("a template that ends within its steps", "one that goes on");
  }
  steps_ -= to_index(count);
}

void Heap::take(std::size_t count) {
  if (count > bytes_)
    trouble_limit("a template that stays within its memory", "one that asks for more");
  bytes_ -= count;
}

Value Heap::text(MarkedText text, bool markup) {
  take(sizeof(StringObject) + text.size() + text.runs().size() * sizeof(MarkedText::Run));
  work(1 + text.size() / 256);
  return Value::of(&strings_.emplace_back(StringObject{std::move(text), markup}));
}

Value Heap::list(std::vector<Value> items, ListForm form, std::string_view label) {
  take(sizeof(ListObject) + items.size() * sizeof(Value));
  work(1 + items.size());
  return Value::of(&lists_.emplace_back(ListObject{form, std::move(items), 0, label}));
}

DictObject* Heap::dict() {
  take(sizeof(DictObject));
  return &dicts_.emplace_back();
}

LoopObject* Heap::loop() {
  take(sizeof(LoopObject));
  return &loops_.emplace_back();
}

const CallableObject* Heap::callable(CallableObject object) {
  take(sizeof(CallableObject));
  return &callables_.emplace_back(object);
}

const std::string* Heap::name(std::string_view text) {
  take(sizeof(std::string) + text.size());
  return &names_.emplace_back(text);
}

const Trouble* Heap::keep(const Trouble& trouble) {
  take(sizeof(Trouble) + trouble.expected.size() + trouble.found.size());
  return &troubles_.emplace_back(trouble);
}

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return "undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      switch (value.list->form) {
        case ListForm::kList:
          return "list";
        case ListForm::kTuple:
          return "tuple";
        case ListForm::kRange:
          return "range";
        case ListForm::kView:
          return "view of a dict";
        case ListForm::kGenerator:
          return "generator";
      }
      return "list";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kLoop:
      return "loop";
    case Kind::kCallable:
      return "function";
  }
  return "value";
}

bool truthy(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.truth;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.number != 0;
    case Kind::kString:
      return !value.string->text.empty();
    case Kind::kList:
      return value.list->form == ListForm::kGenerator || !value.list->items.empty();
    case Kind::kDict:
      return !value.dict->entries.empty();
    default:
      return true;
  }
}

bool equal(Heap& heap, const Value& a, const Value& b) { return equal_at(heap, a, b, 0); }

bool less(Heap& heap, const Value& a, const Value& b) { return less_at(heap, a, b, 0); }

std::vector<Value> iterate(Heap& heap, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return {};
    case Kind::kString:
      return characters(heap, value.string->text);
    case Kind::kList: {
      ListObject& list = *value.list;
      heap.work(list.items.size());
      heap.take(list.items.size() * sizeof(Value));
      if (list.form != ListForm::kGenerator) return list.items;
      std::vector<Value> out(list.items.begin() + to_index(list.next), list.items.end());
      list.next = list.items.size();
      if (list.trouble != nullptr) throw Trouble(*list.trouble);
      return out;
    }
    case Kind::kDict: {
      std::vector<Value> out;
      heap.work(value.dict->entries.size());
      heap.take(value.dict->entries.size() * sizeof(Value));
      for (const auto& entry : value.dict->entries) out.push_back(entry.first);
      return out;
    }
    default:
      trouble_type("a value to iterate over", std::string(type_name(value)));
  }
}

const Value* find(Heap& heap, const DictObject& dict, const Value& key) {
  if (key.is(Kind::kString)) return find(heap, dict, key.string->text.bytes());
  for (const auto& [name, value] : dict.entries) {
    if (equal(heap, name, key)) return &value;
  }
  return nullptr;
}

const Value* find(Heap& heap, const DictObject& dict, std::string_view key) {
  heap.work(dict.entries.size() / 8);
  for (const auto& [name, value] : dict.entries) {
    if (name.is(Kind::kString) && name.string->text.bytes() == key) return &value;
  }
  return nullptr;
}

bool hashable(const Value& value, int depth) {
  check_nesting(depth);
  if (value.is(Kind::kDict)) return false;
  if (!value.is(Kind::kList)) return true;
  if (value.list->form == ListForm::kList) return false;
  if (value.list->form != ListForm::kTuple) return true;
  for (const Value& item : value.list->items) {
    if (!hashable(item, depth + 1)) return false;
  }
  return true;
}

void assign(Heap& heap, DictObject& dict, const Value& key, const Value& value) {
  if (!hashable(key)) trouble_type("a key that can be hashed", std::string(type_name(key)));
  if (const Value* found = find(heap, dict, key)) {
    *const_cast<Value*>(found) = value;  // of a dictionary that the caller may change
    return;
  }
  heap.take(2 * sizeof(Value));
  dict.entries.emplace_back(key, value);
}

bool contains(Heap& heap, const Value& item, const Value& container) {
  switch (container.kind) {
    case Kind::kString: {
      if (!item.is(Kind::kString)) {
        trouble_type("a string on the left of 'in' a string", std::string(type_name(item)));
      }
      const std::string_view in = container.string->text.bytes(), what = item.string->text.bytes();
      heap.work(in.size() / 64);
      return what.empty() || memmem(in.data(), in.size(), what.data(), what.size()) != nullptr;
    }
    case Kind::kDict:
      if (!hashable(item)) trouble_type("a key that can be hashed", std::string(type_name(item)));
      return find(heap, *container.dict, item) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kList: {
      ListObject& list = *container.list;
      const bool once = list.form == ListForm::kGenerator;
      for (std::size_t i = once ? list.next : 0; i < list.items.size(); ++i) {
        if (once) list.next = i + 1;
        if (equal(heap, item, list.items[i])) return true;
      }
      if (list.trouble != nullptr) throw Trouble(*list.trouble);
      return false;
    }
    default:
      trouble_type("a container on the right of 'in'", std::string(type_name(container)));
  }
}

std::int64_t length_of(Heap& heap, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString: {
      const std::string_view text = value.string->text.bytes();
      heap.work(text.size() / 16);
      std::int64_t count = 0;
      for (const char c : text) count += (byte_of(c) & 0xc0u) != 0x80u ? 1 : 0;
      return count;
    }
    case Kind::kList:
      if (value.list->form == ListForm::kGenerator) break;
      return std::ssize(value.list->items);
    case Kind::kDict:
      return std::ssize(value.dict->entries);
    case Kind::kLoop:
      return value.loop->length();
    default:
      break;
  }
  trouble_type("a value with a length", std::string(type_name(value)));
}

double as_double(const Value& number) {
  return number.is(Kind::kFloat) ? number.number : to_double(as_integer(number));
}

std::int64_t as_integer(const Value& number) {
  expects(number.is(Kind::kInt) || number.is(Kind::kBool), "a whole number");
  return number.is(Kind::kBool) ? (number.truth ? 1 : 0) : number.integer;
}

}  // namespace tessera::jinja
