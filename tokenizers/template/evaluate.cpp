// Expressions, and what attributes and items of values are.
#include <algorithm>
#include <array>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/template/interpreter.h"

namespace tessera::jinja {

namespace {

// Methods that change their object: Jinja's immutable sandbox has none of them.
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault",
                                                          "update"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear", "pop",    "reverse",
                                                          "insert", "sort",  "extend", "remove"};
constexpr std::array<std::string_view, 6> kDictMethods = {"get",    "items", "keys",
                                                          "values", "copy",  "fromkeys"};
constexpr std::array<std::string_view, 3> kListMethods = {"count", "index", "copy"};

template <std::size_t N>
bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What a value has by this name as its type, whatever it holds: a method, something that may not be
// used, or nothing.
enum class Member : std::uint8_t { kNone, kMethod, kForbidden };

Member member_of(const Value& object, std::string_view name) {
  if (name.starts_with("__")) return Member::kForbidden;
  switch (object.kind) {
    case Kind::kString:
      return string_method(name) != nullptr ? Member::kMethod : Member::kNone;
    case Kind::kDict:
      if (is_among(kDictChanges, name)) return Member::kForbidden;
      return is_among(kDictMethods, name) ? Member::kMethod : Member::kNone;
    case Kind::kList:
      if (object.list->form > ListForm::kRange) return Member::kNone;
      if (object.list->form == ListForm::kList) {
        if (is_among(kListChanges, name)) return Member::kForbidden;
      } else if (name == "copy") {
        return Member::kNone;
      }
      return is_among(kListMethods, name) ? Member::kMethod : Member::kNone;
    case Kind::kLoop:
      return name == "cycle" || name == "changed" ? Member::kMethod : Member::kNone;
    default:
      return Member::kNone;
  }
}

bool compare(Heap& heap, std::string_view op, const Value& left, const Value& right) {
  if (op == "==") return equal(heap, left, right);
  if (op == "!=") return !equal(heap, left, right);
  if (op == "in") return contains(heap, left, right);
  if (op == "not in") return !contains(heap, left, right);
  if (left.is(Kind::kUndefined)) trouble_undefined(left);
  if (right.is(Kind::kUndefined)) trouble_undefined(right);
  if (op == "<") return less(heap, left, right);
  if (op == ">") return less(heap, right, left);
  if (op == "<=") return less(heap, left, right) || equal(heap, left, right);
  return less(heap, right, left) || equal(heap, left, right);
}

Value indexed(Interpreter& run, const Value& object, std::int64_t index) {
  const std::int64_t length = length_of(run.heap(), object);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return run.undefined("item " + std::to_string(index));
  if (object.is(Kind::kList)) return nth(object.list->items, index);
  const MarkedText& text = object.string->text;
  std::size_t at = 0;
  run.heap().work(to_size(index) / 8);
  for (; index > 0; --index) at += decode_utf8(text.bytes(), at).length;
  return run.heap().text(text.slice(at, at + decode_utf8(text.bytes(), at).length));
}

std::optional<Value> dict_method(Interpreter& run, const DictObject& dict, std::string_view name,
                                 const Call& call) {
  Heap& heap = run.heap();
  if (name == "get") {
    const Bound given(call, "get", {"key", "default"});
    if (!hashable(given.need(0))) trouble_type("a key that can be hashed", "another");
    const Value* found = find(heap, dict, given.need(0));
    return found != nullptr ? *found : given[1] != nullptr ? *given[1] : Value::none();
  }
  const Bound none(call, name, {});
  if (name == "copy") {
    DictObject* copy = heap.dict();
    heap.take(dict.entries.size() * 2 * sizeof(Value));
    copy->entries = dict.entries;
    return Value::of(copy);
  }
  std::vector<Value> out;
  for (const auto& [key, value] : dict.entries) {
    out.push_back(name == "keys"     ? key
                  : name == "values" ? value
                                     : heap.list({key, value}, ListForm::kTuple));
  }
  if (name == "keys") return heap.list(std::move(out), ListForm::kView, "dict_keys");
  if (name == "values") return heap.list(std::move(out), ListForm::kView, "dict_values");
  if (name == "items") return heap.list(std::move(out), ListForm::kView, "dict_items");
  return std::nullopt;
}

Value list_method(Heap& heap, const ListObject& list, std::string_view name, const Call& call) {
  if (name == "copy") return heap.list(list.items);
  const Bound given(call, name, {"value"});
  std::int64_t count = 0;
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (!equal(heap, list.items[i], given.need(0))) continue;
    if (name == "index") return Value::of(to_index(i));
    ++count;
  }
  if (name == "index") trouble_type("a list that holds the value", "one that does not");
  return Value::of(count);
}

Value loop_method(Heap& heap, LoopObject& loop, std::string_view name, const Call& call) {
  if (name == "cycle") {
    if (call.positional.empty()) trouble_type("items to cycle through", "none");
    return call.positional[to_size(loop.index0) % call.positional.size()];
  }
  bool changed = !loop.has_changed || loop.changed.size() != call.positional.size();
  for (std::size_t i = 0; !changed && i < loop.changed.size(); ++i) {
    changed = !equal(heap, loop.changed[i], call.positional[i]);
  }
  loop.has_changed = true;
  loop.changed = call.positional;
  return Value::boolean(changed);
}

}  // namespace

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExprPtr>& parts, Scope* scope) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const ExprPtr& part : parts) out.push_back(evaluate(*part, scope));
  return out;
}

Call Interpreter::arguments(const CallArguments& call, Scope* scope) {
  Call out{evaluate_all(call.positional, scope), {}};
  for (const auto& [name, value] : call.named)
    out.named.emplace_back(name, evaluate(*value, scope));
  if (call.list) {
    for (const Value& value : iterate(heap_, evaluate(*call.list, scope))) {
      out.positional.push_back(value);
    }
  }
  if (!call.dict) return out;
  const Value more = evaluate(*call.dict, scope);
  if (!more.is(Kind::kDict)) trouble_type("a dict after '**'", std::string(type_name(more)));
  for (const auto& [key, value] : more.dict->entries) {
    if (!key.is(Kind::kString)) trouble_type("names as keys", std::string(type_name(key)));
    out.named.emplace_back(key.string->text.bytes(), value);
  }
  return out;
}

Value Interpreter::look_up(const Expr& name, Scope* scope) {
  for (const Scope* at = scope; at != nullptr; at = at->parent) {
    heap_.work(1 + at->names.size() / 8);
    for (const auto& [known, value] : at->names) {
      if (known == name.name) return value;
    }
  }
  for (const FilterRow& row : global_functions()) {
    if (row.name != name.name) continue;
    return Value::of(heap_.callable({.kind = CallableObject::Kind::kFunction, .name = row.name}));
  }
  return undefined(name.name);
}

Value Interpreter::evaluate(const Expr& expr, Scope* scope) {
  const Nested nested(*this);
  heap_.work(1);
  at_ = expr.at;
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
      return look_up(expr, scope);
    case ExprKind::kOr: {
      const Value left = evaluate(*expr.parts[0], scope);
      return truthy(left) ? left : evaluate(*expr.parts[1], scope);
    }
    case ExprKind::kAnd: {
      const Value left = evaluate(*expr.parts[0], scope);
      return truthy(left) ? evaluate(*expr.parts[1], scope) : left;
    }
    case ExprKind::kNot:
      return Value::boolean(!truthy(evaluate(*expr.parts[0], scope)));
    case ExprKind::kConditional:
      if (truthy(evaluate(*expr.parts[1], scope))) return evaluate(*expr.parts[0], scope);
      return expr.parts[2] ? evaluate(*expr.parts[2], scope)
                           : undefined("an inline if without else");
    case ExprKind::kAttribute: {
      const Value object = evaluate(*expr.parts[0], scope);
      at_ = expr.at;
      return attribute(object, expr.name);
    }
    case ExprKind::kItem: {
      const Value object = evaluate(*expr.parts[0], scope);
      const Value key = evaluate(*expr.parts[1], scope);
      at_ = expr.at;
      return item(object, key);
    }
    case ExprKind::kBinary: {
      const Value left = evaluate(*expr.parts[0], scope);
      const Value right = evaluate(*expr.parts[1], scope);
      at_ = expr.at;
      return binary_operation(*this, expr.operators[0], left, right);
    }
    default:
      return evaluate_compound(expr, scope);
  }
}

Value Interpreter::evaluate_compound(const Expr& expr, Scope* scope) {
  switch (expr.kind) {
    case ExprKind::kList:
      return heap_.list(evaluate_all(expr.parts, scope));
    case ExprKind::kTuple:
      return heap_.list(evaluate_all(expr.parts, scope), ListForm::kTuple);
    case ExprKind::kDict:
      return evaluate_dict(expr, scope);
    case ExprKind::kCompare:
      return evaluate_compare(expr, scope);
    case ExprKind::kConcat:
      return evaluate_concat(expr, scope);
    case ExprKind::kNegate:
    case ExprKind::kPlus: {
      const Value value = evaluate(*expr.parts[0], scope);
      at_ = expr.at;
      if (!value.is_number() && !value.is(Kind::kUndefined)) {
        trouble_type("a number after a sign", std::string(type_name(value)));
      }
      const bool negate = expr.kind == ExprKind::kNegate;
      if (value.is(Kind::kFloat)) return Value::of(negate ? -value.number : value.number);
      const std::string_view op = negate ? "-" : "+";
      return binary_operation(*this, op, Value::of(std::int64_t{0}), value);
    }
    case ExprKind::kSlice:
      return evaluate_slice(expr, scope);
    case ExprKind::kCall: {
      const Value callee = evaluate(*expr.parts[0], scope);
      const Call given = arguments(expr.call, scope);
      at_ = expr.at;
      return call(callee, given);
    }
    case ExprKind::kFilter: {
      const Value input = evaluate(*expr.parts[0], scope);
      const Call given = arguments(expr.call, scope);
      at_ = expr.at;
      return filter(expr.name, input, given);
    }
    default: {
      const Value input = evaluate(*expr.parts[0], scope);
      const Call given = arguments(expr.call, scope);
      at_ = expr.at;
      return Value::boolean(test(expr.name, input, given));
    }
  }
}

Value Interpreter::evaluate_compare(const Expr& expr, Scope* scope) {
  Value left = evaluate(*expr.parts[0], scope);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    const Value right = evaluate(*expr.parts[i + 1], scope);
    at_ = expr.at;
    if (!compare(heap_, expr.operators[i], left, right)) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_dict(const Expr& expr, Scope* scope) {
  DictObject* out = heap_.dict();
  for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
    const Value key = evaluate(*expr.parts[i], scope);
    assign(heap_, *out, key, evaluate(*expr.parts[i + 1], scope));
  }
  return Value::of(out);
}

Value Interpreter::evaluate_concat(const Expr& expr, Scope* scope) {
  MarkedText out;
  for (const ExprPtr& part : expr.parts) append_str(heap_, out, evaluate(*part, scope));
  return heap_.text(std::move(out));
}

Value Interpreter::evaluate_slice(const Expr& expr, Scope* scope) {
  const Value object = evaluate(*expr.parts[0], scope);
  std::array<Value, 3> bounds;
  std::array<const Value*, 3> given{};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!expr.parts[i + 1]) continue;
    bounds[i] = evaluate(*expr.parts[i + 1], scope);
    given[i] = &bounds[i];
  }
  at_ = expr.at;
  return slice_value(*this, object, given[0], given[1], given[2]);
}

// The filters of a block, innermost first: the innermost has no input of its own.
Value Interpreter::through_filters(const Expr& expr, const Value& input, Scope* scope) {
  const Value own = expr.parts[0] ? through_filters(*expr.parts[0], input, scope) : input;
  const Call given = arguments(expr.call, scope);
  at_ = expr.at;
  return filter(expr.name, own, given);
}

Value Interpreter::loop_attribute(const LoopObject& loop, std::string_view name) {
  const std::int64_t index = loop.index0, length = loop.length();
  const auto number = [](std::int64_t value) { return Value::of(value); };
  if (name == "index") return number(index + 1);
  if (name == "index0") return number(index);
  if (name == "revindex") return number(length - index);
  if (name == "revindex0") return number(length - index - 1);
  if (name == "length") return number(length);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "depth") return number(1);
  if (name == "depth0") return number(0);
  const auto at = to_size(index);
  if (name == "previtem") return index > 0 ? loop.over->items[at - 1] : undefined("loop.previtem");
  if (name == "nextitem") {
    return index + 1 < length ? loop.over->items[at + 1] : undefined("loop.nextitem");
  }
  return undefined(name);
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) trouble_undefined(object);
  if (object.is(Kind::kNamespace)) {
    const Value* found = find(heap_, *object.dict, name);
    return found != nullptr ? *found : undefined(name);
  }
  switch (member_of(object, name)) {
    case Member::kForbidden:
      return undefined(name);
    case Member::kMethod:
      return Value::of(heap_.callable(
          {.kind = CallableObject::Kind::kMethod, .name = *heap_.name(name), .self = object}));
    case Member::kNone:
      break;
  }
  if (object.is(Kind::kLoop)) return loop_attribute(*object.loop, name);
  if (object.is(Kind::kDict)) {
    if (const Value* found = find(heap_, *object.dict, name)) return *found;
  }
  return undefined(name);
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) trouble_undefined(object);
  const bool counted =
      object.is(Kind::kString) || (object.is(Kind::kList) && object.list->indexed());
  if (counted && (key.is(Kind::kInt) || key.is(Kind::kBool))) {
    return indexed(*this, object, as_integer(key));
  }
  if (object.is(Kind::kDict) && hashable(key)) {
    if (const Value* found = find(heap_, *object.dict, key)) return *found;
  }
  if (key.is(Kind::kString)) return attribute(object, key.string->text.bytes());
  return undefined("item");
}

Value Interpreter::call_method(const CallableObject& method, const Call& call) {
  const Value& self = method.self;
  heap_.work(1);
  const MethodRow* row = self.is(Kind::kString) ? string_method(method.name) : nullptr;
  std::optional<Value> out;
  if (row != nullptr && row->run != nullptr) out = row->run(*this, self, call);
  if (self.is(Kind::kDict)) out = dict_method(*this, *self.dict, method.name, call);
  if (self.is(Kind::kList)) out = list_method(heap_, *self.list, method.name, call);
  if (self.is(Kind::kLoop)) out = loop_method(heap_, *self.loop, method.name, call);
  if (out) return *out;
  trouble_unsupported("a method that is known here",
                      std::string(type_name(self)) + "." + std::string(method.name) + "()");
}

}  // namespace tessera::jinja
