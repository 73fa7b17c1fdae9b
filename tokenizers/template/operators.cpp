// Arithmetic with Python's meaning, slices, and the two ways in which its strings are formats.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/template/interpreter.h"

namespace tessera::jinja {

namespace {

[[noreturn]] void refuse_operands(std::string_view op, const Value& left, const Value& right) {
  trouble_type("operands of '" + std::string(op) + "'",
               std::string(type_name(left)) + " and " + std::string(type_name(right)));
}

[[noreturn]] void refuse_large() { trouble_limit("integers of 64 bits", "a larger one"); }

Value integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) trouble_type("a divisor that is not zero", "zero");
    return Value::of(std::pow(to_double(base), to_double(exponent)));
  }
  if (base == 0 || base == 1) return Value::of(exponent == 0 ? std::int64_t{1} : base);
  if (base == -1) return Value::of(exponent % 2 == 0 ? std::int64_t{1} : std::int64_t{-1});
  std::int64_t out = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(out, base, &out)) refuse_large();
  }
  return Value::of(out);
}

Value integer_operation(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (op == "+" || op == "-" || op == "*") {
    const bool large = op == "+"   ? __builtin_add_overflow(a, b, &out)
                       : op == "-" ? __builtin_sub_overflow(a, b, &out)
                                   : __builtin_mul_overflow(a, b, &out);
    if (large) refuse_large();
    return Value::of(out);
  }
  if (op == "**") return integer_power(a, b);
  if (b == 0) trouble_type("a divisor that is not zero", "zero");
  if (op == "/") return Value::of(to_double(a) / to_double(b));
  if (b == -1) return op == "%" ? Value::of(std::int64_t{0}) : integer_operation("-", 0, a);
  const std::int64_t rest = a % b;
  const bool down = rest != 0 && (rest < 0) != (b < 0);
  return Value::of(op == "%" ? rest + (down ? b : 0) : a / b - (down ? 1 : 0));
}

Value float_operation(std::string_view op, double a, double b) {
  if (op == "+") return Value::of(a + b);
  if (op == "-") return Value::of(a - b);
  if (op == "*") return Value::of(a * b);
  if (op == "**") return Value::of(std::pow(a, b));
  if (b == 0) trouble_type("a divisor that is not zero", "zero");
  if (op == "/") return Value::of(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return Value::of(op == "%" ? rest : std::floor((a - rest) / b + 0.5));
}

Value repeated(Interpreter& run, const Value& object, std::int64_t count) {
  Heap& heap = run.heap();
  const auto times = to_size(std::max<std::int64_t>(count, 0));
  if (object.is(Kind::kString)) {
    const MarkedText& text = object.string->text;
    MarkedText out;
    for (std::size_t i = 0; i < times && !text.empty(); ++i) {
      heap.take(text.size());
      heap.work(1);
      out.append(text);
    }
    return heap.text(std::move(out));
  }
  std::vector<Value> out;
  const std::vector<Value>& items = object.list->items;
  for (std::size_t i = 0; i < times && !items.empty(); ++i) {
    heap.take(items.size() * sizeof(Value));
    out.insert(out.end(), items.begin(), items.end());
  }
  return heap.list(std::move(out), object.list->form);
}

bool is_sequence(const Value& value) {
  return value.is(Kind::kString) || (value.is(Kind::kList) && value.list->form <= ListForm::kTuple);
}

Value joined(Interpreter& run, const Value& left, const Value& right) {
  Heap& heap = run.heap();
  if (left.is(Kind::kString)) {
    const bool markup = left.string->markup || right.string->markup;
    const auto part = [&](const Value& value) {
      heap.take(value.string->text.size());
      return markup && !value.string->markup ? escape_html(heap, value.string->text)
                                             : value.string->text;
    };
    MarkedText out = part(left);
    out.append(part(right));
    return heap.text(std::move(out), markup);
  }
  std::vector<Value> out = left.list->items;
  out.insert(out.end(), right.list->items.begin(), right.list->items.end());
  return heap.list(std::move(out), left.list->form);
}

struct SliceBounds {
  std::int64_t start = 0, stop = 0, step = 1;
};

std::optional<std::int64_t> bound_of(const Value* value) {
  if (value == nullptr || value->is(Kind::kNone)) return std::nullopt;
  if (value->is(Kind::kUndefined)) trouble_undefined(*value);
  if (!value->is(Kind::kInt) && !value->is(Kind::kBool)) {
    trouble_type("whole numbers in a slice", std::string(type_name(*value)));
  }
  return as_integer(*value);
}

SliceBounds bounds_of(std::int64_t length, const Value* start, const Value* stop,
                      const Value* step) {
  SliceBounds out;
  out.step = bound_of(step).value_or(1);
  if (out.step == 0) trouble_type("a step that is not zero", "zero");
  const bool back = out.step < 0;
  const auto clamp = [&](std::optional<std::int64_t> value, std::int64_t fallback) {
    if (!value) return fallback;
    const std::int64_t at = *value < 0 ? *value + length : *value;
    return std::clamp(at, back ? std::int64_t{-1} : std::int64_t{0}, back ? length - 1 : length);
  };
  out.start = clamp(bound_of(start), back ? length - 1 : 0);
  out.stop = clamp(bound_of(stop), back ? -1 : length);
  return out;
}

}  // namespace

Value binary_operation(Interpreter& run, std::string_view op, const Value& left,
                       const Value& right) {
  if (left.is(Kind::kString) && op == "%") return format_percent(run, *left.string, right);
  if (left.is(Kind::kUndefined)) trouble_undefined(left);
  if (right.is(Kind::kUndefined)) trouble_undefined(right);
  if (left.is_number() && right.is_number()) {
    if (left.is(Kind::kFloat) || right.is(Kind::kFloat)) {
      return float_operation(op, as_double(left), as_double(right));
    }
    return integer_operation(op, as_integer(left), as_integer(right));
  }
  if (op == "+" && is_sequence(left) && left.kind == right.kind &&
      (left.is(Kind::kString) || left.list->form == right.list->form)) {
    return joined(run, left, right);
  }
  if (op == "*") {
    const auto whole = [](const Value& value) {
      return value.is(Kind::kInt) || value.is(Kind::kBool);
    };
    if (is_sequence(left) && whole(right)) return repeated(run, left, as_integer(right));
    if (is_sequence(right) && whole(left)) return repeated(run, right, as_integer(left));
  }
  refuse_operands(op, left, right);
}

Value slice_value(Interpreter& run, const Value& object, const Value* start, const Value* stop,
                  const Value* step) {
  Heap& heap = run.heap();
  if (object.is(Kind::kUndefined)) trouble_undefined(object);
  const bool text = object.is(Kind::kString);
  if (!text && !(object.is(Kind::kList) && object.list->indexed())) {
    trouble_type("a value to slice", std::string(type_name(object)));
  }
  const SliceBounds at = bounds_of(length_of(heap, object), start, stop, step);
  const auto each = [&](const auto& visit) {
    for (std::int64_t i = at.start; at.step > 0 ? i < at.stop : i > at.stop;) {
      visit(to_size(i));
      if (__builtin_add_overflow(i, at.step, &i)) break;
    }
  };
  if (!text) {
    std::vector<Value> out;
    each([&](std::size_t i) { out.push_back(object.list->items[i]); });
    const ListForm form = object.list->form;
    return heap.list(std::move(out), form == ListForm::kRange ? ListForm::kList : form);
  }
  const MarkedText& of = object.string->text;
  std::vector<std::size_t> places;  // byte of each character, and the end
  heap.work(of.size() / 4);
  for (std::size_t byte = 0; byte < of.size(); byte += decode_utf8(of.bytes(), byte).length) {
    places.push_back(byte);
  }
  places.push_back(of.size());
  if (at.step == 1) {
    const std::int64_t stop_at = std::max(at.start, at.stop);
    return heap.text(of.slice(nth(places, at.start), nth(places, stop_at)));
  }
  MarkedText out;
  each([&](std::size_t i) { out.append(of, places[i], places[i + 1]); });
  return heap.text(std::move(out));
}

}  // namespace tessera::jinja
