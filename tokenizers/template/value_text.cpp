// Values as text: str() and repr() of Python, and its json.dumps().
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/template/characters.h"
#include "tokenizers/template/value.h"

namespace tessera::jinja {

namespace {

constexpr int kMaxTextNesting = 200;

void check_text_nesting(int depth) {
  if (depth > kMaxTextNesting) {
    trouble_limit("values nested at most " + std::to_string(kMaxTextNesting) + " deep", "more");
  }
}

void append_hex(MarkedText& out, const char* prefix, unsigned code, int digits, bool from_data) {
  char text[16];
  std::snprintf(text, sizeof text, "%s%0*x", prefix, digits, code);
  out.append(text, from_data);
}

// One character of a Python string literal in quotes of this kind.
void append_repr_character(MarkedText& out, std::string_view bytes, Utf8Char c, char quote,
                           bool from_data) {
  const auto code = static_cast<unsigned>(c.code);
  if (c.code == U'\\' || c.code == byte_of(quote)) {
    out.append("\\", from_data);
    out.append(bytes, from_data);
  } else if (c.code == U'\n' || c.code == U'\r' || c.code == U'\t') {
    out.append(c.code == U'\n' ? "\\n" : c.code == U'\r' ? "\\r" : "\\t", from_data);
  } else if (is_printable(c.code)) {
    out.append(bytes, from_data);
  } else if (code <= 0xff) {
    append_hex(out, "\\x", code, 2, from_data);
  } else if (code <= 0xffff) {
    append_hex(out, "\\u", code, 4, from_data);
  } else {
    append_hex(out, "\\U", code, 8, from_data);
  }
}

void append_string_repr(Heap& heap, MarkedText& out, const MarkedText& text) {
  heap.work(text.size());
  const std::string_view bytes = text.bytes();
  const bool double_quotes =
      bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.append({&quote, 1}, false);
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, at);
    append_repr_character(out, bytes.substr(at, c.length), c, quote, text.from_data(at));
    at += c.length;
  }
  out.append({&quote, 1}, false);
}

void append_repr_at(Heap& heap, MarkedText& out, const Value& value, int depth);

void append_items(Heap& heap, MarkedText& out, const std::vector<Value>& items, int depth) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ", false);
    append_repr_at(heap, out, items[i], depth + 1);
  }
}

void append_list_repr(Heap& heap, MarkedText& out, const ListObject& list, int depth) {
  switch (list.form) {
    case ListForm::kList:
      out.append("[", false);
      append_items(heap, out, list.items, depth);
      return out.append("]", false);
    case ListForm::kTuple:
      out.append("(", false);
      append_items(heap, out, list.items, depth);
      return out.append(list.items.size() == 1 ? ",)" : ")", false);
    case ListForm::kRange:
      return out.append(list.label, false);
    case ListForm::kView:
      out.append(list.label, false);
      out.append("([", false);
      append_items(heap, out, list.items, depth);
      return out.append("])", false);
    case ListForm::kGenerator:
      trouble_type("a value with a text of its own", "a generator (use the filter list)");
  }
}

void append_dict_repr(Heap& heap, MarkedText& out, const DictObject& dict, int depth) {
  out.append("{", false);
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out.append(", ", false);
    first = false;
    append_repr_at(heap, out, key, depth + 1);
    out.append(": ", false);
    append_repr_at(heap, out, value, depth + 1);
  }
  out.append("}", false);
}

void append_repr_at(Heap& heap, MarkedText& out, const Value& value, int depth) {
  check_text_nesting(depth);
  heap.work(1);
  heap.take(16);
  switch (value.kind) {
    case Kind::kUndefined:
      return out.append("Undefined", false);
    case Kind::kNone:
      return out.append("None", false);
    case Kind::kBool:
      return out.append(value.truth ? "True" : "False", false);
    case Kind::kInt:
      return out.append(std::to_string(value.integer), false);
    case Kind::kFloat:
      return out.append(float_repr(value.number), false);
    case Kind::kString:
      if (value.string->markup) {
        out.append("Markup(", false);
        append_string_repr(heap, out, value.string->text);
        return out.append(")", false);
      }
      heap.take(value.string->text.size());
      return append_string_repr(heap, out, value.string->text);
    case Kind::kList:
      return append_list_repr(heap, out, *value.list, depth);
    case Kind::kDict:
      return append_dict_repr(heap, out, *value.dict, depth);
    case Kind::kNamespace:
      out.append("<Namespace ", false);
      append_dict_repr(heap, out, *value.dict, depth);
      return out.append(">", false);
    case Kind::kLoop:
      return out.append("<LoopContext " + std::to_string(value.loop->index0 + 1) + "/" +
                            std::to_string(value.loop->length()) + ">",
                        false);
    case Kind::kCallable:
      trouble_type("a value with a text of its own", "a function");
  }
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific);
  const std::string_view all(text, to_size(end.ptr - text));
  const std::size_t mark = all.find('e');
  const int exponent = std::atoi(std::string(all.substr(mark + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(all);  // "1e+16" in both languages
  std::string digits, out;
  for (const char c : all.substr(0, mark)) {
    if (c == '-')
      out += c;
    else if (c != '.')
      digits += c;
  }
  const auto whole = to_size(std::max(exponent, -1) + 1);
  if (exponent < 0) {
    out += "0." + std::string(to_size(-exponent - 1), '0') + digits;
  } else if (digits.size() <= whole) {
    out += digits + std::string(whole - digits.size(), '0') + ".0";
  } else {
    out += digits.substr(0, whole) + "." + digits.substr(whole);
  }
  return out;
}

void append_repr(Heap& heap, MarkedText& out, const Value& value) {
  append_repr_at(heap, out, value, 0);
}

void append_str(Heap& heap, MarkedText& out, const Value& value) {
  if (value.is(Kind::kUndefined)) return;
  if (!value.is(Kind::kString)) return append_repr(heap, out, value);
  heap.work(1 + value.string->text.size() / 64);
  heap.take(value.string->text.size());
  out.append(value.string->text);
}

MarkedText str_of(Heap& heap, const Value& value) {
  if (value.is(Kind::kString)) return value.string->text;
  MarkedText out;
  append_str(heap, out, value);
  return out;
}

}  // namespace tessera::jinja
