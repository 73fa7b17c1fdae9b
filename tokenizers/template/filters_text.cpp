// Filters that give texts and numbers, with the texts of Jinja's own.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/template/characters.h"
#include "tokenizers/template/interpreter.h"

namespace tessera::jinja {

namespace {

// The input as Python's str, as most filters of texts read it.
Value text_input(Interpreter& run, const Value& input) {
  if (input.is(Kind::kString) && !input.string->markup) return input;
  return run.heap().text(str_of(run.heap(), input));
}

Value text_method(Interpreter& run, std::string_view name, const Value& input, const Call& call) {
  return string_method(name)->run(run, text_input(run, input), call);
}

Value filter_trim(Interpreter& run, const Value& input, const Call& call) {
  return text_method(run, "strip", input, call);
}
Value filter_upper(Interpreter& run, const Value& input, const Call& call) {
  return text_method(run, "upper", input, call);
}
Value filter_lower(Interpreter& run, const Value& input, const Call& call) {
  return text_method(run, "lower", input, call);
}
Value filter_capitalize(Interpreter& run, const Value& input, const Call& call) {
  return text_method(run, "capitalize", input, call);
}

// Each word's first letter; words begin after blanks, hyphens and opening brackets.
Value filter_title(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "title", {});
  Heap& heap = run.heap();
  const MarkedText text = str_of(heap, input);
  MarkedText out;
  heap.work(text.size());
  bool first = true;
  char buffer[16];
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text.bytes(), at);
    out.append(map_case(c.code, first ? CaseMapping::kUpper : CaseMapping::kLower, buffer),
               text.from_data(at));
    first = is_space(c.code) ||
            (c.code < 0x80 &&
             std::string_view("-({[<").find(static_cast<char>(c.code)) != std::string::npos);
    at += c.length;
  }
  return heap.text(std::move(out));
}

Value filter_string(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "string", {});
  return input.is(Kind::kString) ? input : text_input(run, input);
}

Value filter_safe(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "safe", {});
  return run.heap().text(str_of(run.heap(), input), true);
}

Value filter_escape(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "escape", {});
  if (input.is(Kind::kString) && input.string->markup) return input;
  return run.heap().text(escape_html(run.heap(), str_of(run.heap(), input)), true);
}

Value filter_replace(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "replace", {"old", "new", "count"});
  Call texts{{text_input(run, given.need(0)), text_input(run, given.need(1))}, {}};
  if (given[2] != nullptr) texts.positional.push_back(*given[2]);
  return text_method(run, "replace", input, texts);
}

Value filter_center(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "center", {"width"});
  return text_method(run, "center", input, {{Value::of(given.integer(0, 80))}, {}});
}

Value filter_format(Interpreter& run, const Value& input, const Call& call) {
  if (!call.named.empty()) trouble_unsupported("values in order for the filter format", "names");
  const Value text = text_input(run, input);
  return format_percent(run, *text.string, run.heap().list(call.positional, ListForm::kTuple));
}

Value filter_indent(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "indent", {"width", "first", "blank"});
  Heap& heap = run.heap();
  if (!input.is(Kind::kString)) trouble_type("a string to indent", std::string(type_name(input)));
  MarkedText margin;
  if (given[0] != nullptr && given[0]->is(Kind::kString)) {
    margin = given[0]->string->text;
  } else {
    const std::int64_t width = std::max<std::int64_t>(given.integer(0, 4), 0);
    heap.take(to_size(width));
    margin.append(std::string(to_size(width), ' '), false);
  }
  MarkedText text = str_of(heap, input);
  text.append("\n", false);  // as Jinja does, so that a last empty line counts
  const Value lines = string_method("splitlines")->run(run, heap.text(std::move(text)), {});
  MarkedText out;
  const bool blank = given.truth(2, false);
  if (given.truth(1, false)) out.append(margin);
  bool first = true;
  for (const Value& line : lines.list->items) {
    const MarkedText& part = line.string->text;
    heap.take(margin.size() + part.size() + 1);
    if (!first) out.append("\n", false);
    if (!first && (blank || !part.empty())) out.append(margin);
    out.append(part);
    first = false;
  }
  return heap.text(std::move(out));
}

JsonStyle json_style(Interpreter& run, const Bound& given) {
  JsonStyle style;
  style.ensure_ascii = given.truth(0, false);
  style.sort_keys = given.truth(3, false);
  style.colon = MarkedText(": ", false);
  if (given[1] != nullptr && !given[1]->is(Kind::kNone)) {
    style.indented = true;
    if (given[1]->is(Kind::kString)) {
      style.indent = given[1]->string->text;
    } else {
      const std::int64_t width = std::max<std::int64_t>(given.integer(1, 0), 0);
      run.heap().take(to_size(width));
      style.indent.append(std::string(to_size(width), ' '), false);
    }
  }
  style.between = MarkedText(style.indented ? "," : ", ", false);
  if (given[2] != nullptr && !given[2]->is(Kind::kNone)) {
    const std::vector<Value> marks = iterate(run.heap(), *given[2]);
    if (marks.size() != 2 || !marks[0].is(Kind::kString) || !marks[1].is(Kind::kString)) {
      trouble_type("two separators", "something else");
    }
    style.between = marks[0].string->text;
    style.colon = marks[1].string->text;
  }
  return style;
}

Value filter_tojson(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (input.is(Kind::kUndefined)) trouble_undefined(input);
  MarkedText out;
  append_json(run.heap(), out, input, json_style(run, given));
  return run.heap().text(std::move(out));
}

// The number that Python's float() reads, if any.
bool read_float(std::string_view text, double& out) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') digits += text[i];
  }
  const auto not_number = [](char c) {
    return c == 'x' || c == 'X' || c == 'p' || c == 'P' || c == '(';
  };
  if (digits.empty() || std::any_of(digits.begin(), digits.end(), not_number)) return false;
  char* end = nullptr;
  out = std::strtod(digits.c_str(), &end);
  return end == digits.c_str() + digits.size() && digits[0] != ' ';
}

std::string trimmed(Interpreter& run, const Value& input) {
  return std::string(text_method(run, "strip", input, {}).string->text.bytes());
}

Value whole_of(double value, const Value& fallback) {
  if (!std::isfinite(value)) return fallback;
  if (std::fabs(value) >= 9.2e18) trouble_limit("integers of 64 bits", "a larger one");
  return Value::of(truncate<std::int64_t>(value));
}

Value filter_int(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "int", {"default", "base"});
  const Value fallback = given[0] != nullptr ? *given[0] : Value::of(std::int64_t{0});
  if (input.is(Kind::kUndefined)) trouble_undefined(input);
  if (input.is(Kind::kFloat)) return whole_of(input.number, fallback);
  if (input.is_number()) return Value::of(as_integer(input));
  if (!input.is(Kind::kString)) return fallback;
  std::string text = trimmed(run, input);
  const auto base = narrow<int>(std::clamp<std::int64_t>(given.integer(1, 10), 2, 36));
  std::erase(text, '_');
  const char* first = text.data() + (text.starts_with('+') ? 1 : 0);
  if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) first += 2;
  std::int64_t value = 0;
  const auto read = std::from_chars(first, text.data() + text.size(), value, base);
  if (read.ec == std::errc() && read.ptr == text.data() + text.size()) return Value::of(value);
  double number = 0;
  return read_float(text, number) ? whole_of(number, fallback) : fallback;
}

Value filter_float(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "float", {"default"});
  const Value fallback = given[0] != nullptr ? *given[0] : Value::of(0.0);
  if (input.is(Kind::kUndefined)) trouble_undefined(input);
  if (input.is_number()) return Value::of(as_double(input));
  double number = 0;
  if (!input.is(Kind::kString) || !read_float(trimmed(run, input), number)) return fallback;
  return Value::of(number);
}

Value filter_abs(Interpreter&, const Value& input, const Call& call) {
  const Bound none(call, "abs", {});
  if (input.is(Kind::kUndefined)) trouble_undefined(input);
  if (!input.is_number()) trouble_type("a number for abs", std::string(type_name(input)));
  if (input.is(Kind::kFloat)) return Value::of(std::fabs(input.number));
  const std::int64_t value = as_integer(input);
  if (value == INT64_MIN) trouble_limit("integers of 64 bits", "a larger one");
  return Value::of(value < 0 ? -value : value);
}

// Half to even on the exact decimal value, as Python and the C library round.
double rounded(double value, std::int64_t digits) {
  if (digits >= 0) {
    char text[700];
    std::snprintf(text, sizeof text, "%.*f", narrow<int>(std::min<std::int64_t>(digits, 320)),
                  value);
    return std::strtod(text, nullptr);
  }
  const double scale = std::pow(10.0, to_double(-digits));
  return std::nearbyint(value / scale) * scale;
}

Value filter_round(Interpreter&, const Value& input, const Call& call) {
  const Bound given(call, "round", {"precision", "method"});
  if (input.is(Kind::kUndefined)) trouble_undefined(input);
  if (!input.is_number()) trouble_type("a number for round", std::string(type_name(input)));
  const std::int64_t digits = given.integer(0, 0);
  const std::string_view method = given[1] != nullptr && given[1]->is(Kind::kString)
                                      ? given[1]->string->text.bytes()
                                      : std::string_view("common");
  if (method == "common") {
    if (!input.is(Kind::kFloat)) {
      if (digits < 0) trouble_unsupported("whole numbers rounded to units", "tens");
      return Value::of(as_integer(input));
    }
    return Value::of(std::isfinite(input.number) ? rounded(input.number, digits) : input.number);
  }
  if (method != "ceil" && method != "floor")
    trouble_type("common, ceil or floor", "another method");
  const double scale = std::pow(10.0, to_double(digits)), value = as_double(input) * scale;
  return Value::of((method == "ceil" ? std::ceil(value) : std::floor(value)) / scale);
}

Value filter_wordcount(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "wordcount", {});
  const std::string_view text = text_input(run, input).string->text.bytes();
  run.heap().work(text.size());
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const bool letter = c.code == U'_' || is_alpha(c.code) || is_numeric(c.code);
    if (letter && !inside) ++words;
    inside = letter;
    at += c.length;
  }
  return Value::of(words);
}

constexpr std::array kTextFilters = {
    FilterRow{"trim", filter_trim},
    FilterRow{"upper", filter_upper},
    FilterRow{"lower", filter_lower},
    FilterRow{"capitalize", filter_capitalize},
    FilterRow{"title", filter_title},
    FilterRow{"string", filter_string},
    FilterRow{"safe", filter_safe},
    FilterRow{"escape", filter_escape},
    FilterRow{"e", filter_escape},
    FilterRow{"replace", filter_replace},
    FilterRow{"center", filter_center},
    FilterRow{"format", filter_format},
    FilterRow{"indent", filter_indent},
    FilterRow{"tojson", filter_tojson},
    FilterRow{"int", filter_int},
    FilterRow{"float", filter_float},
    FilterRow{"abs", filter_abs},
    FilterRow{"round", filter_round},
    FilterRow{"wordcount", filter_wordcount},
    FilterRow{"filesizeformat", nullptr},
    FilterRow{"forceescape", nullptr},
    FilterRow{"pprint", nullptr},
    FilterRow{"striptags", nullptr},
    FilterRow{"truncate", nullptr},
    FilterRow{"urlencode", nullptr},
    FilterRow{"urlize", nullptr},
    FilterRow{"wordwrap", nullptr},
    FilterRow{"xmlattr", nullptr},
};

}  // namespace

std::span<const FilterRow> text_filters() { return kTextFilters; }

MarkedText escape_html(Heap& heap, const MarkedText& text) {
  MarkedText out;
  heap.work(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool data = text.from_data(at);
    switch (text.bytes()[at]) {
      case '&':
        out.append("&amp;", data);
        break;
      case '<':
        out.append("&lt;", data);
        break;
      case '>':
        out.append("&gt;", data);
        break;
      case '"':
        out.append("&#34;", data);
        break;
      case '\'':
        out.append("&#39;", data);
        break;
      default:
        out.append(text.bytes().substr(at, 1), data);
    }
  }
  heap.take(out.size());
  return out;
}

}  // namespace tessera::jinja
