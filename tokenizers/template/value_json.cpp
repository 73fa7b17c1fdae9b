// json.dumps() of Python: its spaces, escapes and numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/core/utf8.h"
#include "tokenizers/template/value.h"

namespace tessera::jinja {

namespace {

constexpr int kMaxJsonNesting = 200;

void append_unit(MarkedText& out, unsigned unit, bool from_data) {
  char text[16];
  std::snprintf(text, sizeof text, "\\u%04x", unit);
  out.append(text, from_data);
}

void append_json_character(MarkedText& out, std::string_view bytes, char32_t code,
                           bool ensure_ascii, bool from_data) {
  switch (code) {
    case U'"':
      return out.append("\\\"", from_data);
    case U'\\':
      return out.append("\\\\", from_data);
    case U'\n':
      return out.append("\\n", from_data);
    case U'\r':
      return out.append("\\r", from_data);
    case U'\t':
      return out.append("\\t", from_data);
    case U'\b':
      return out.append("\\b", from_data);
    case U'\f':
      return out.append("\\f", from_data);
    default:
      break;
  }
  const auto value = static_cast<unsigned>(code);
  if (value >= 0x20 && (value < 0x7f || !ensure_ascii)) return out.append(bytes, from_data);
  if (value < 0x10000) return append_unit(out, value, from_data);
  append_unit(out, 0xd800u + ((value - 0x10000u) >> 10), from_data);
  append_unit(out, 0xdc00u + ((value - 0x10000u) & 0x3ffu), from_data);
}

void append_json_string(Heap& heap, MarkedText& out, const MarkedText& text, bool ensure_ascii) {
  heap.work(text.size());
  heap.take(text.size());
  out.append("\"", false);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text.bytes(), at);
    append_json_character(out, text.bytes().substr(at, c.length), c.code, ensure_ascii,
                          text.from_data(at));
    at += c.length;
  }
  out.append("\"", false);
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_repr(value);
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, MarkedText& out, const JsonStyle& style)
      : heap_(heap), out_(out), style_(style) {}

  void write(const Value& value, int depth) {
    if (depth > kMaxJsonNesting) {
      trouble_limit("values nested at most " + std::to_string(kMaxJsonNesting) + " deep", "more");
    }
    heap_.work(1);
    heap_.take(16);
    switch (value.kind) {
      case Kind::kNone:
        return out_.append("null", false);
      case Kind::kBool:
        return out_.append(value.truth ? "true" : "false", false);
      case Kind::kInt:
        return out_.append(std::to_string(value.integer), false);
      case Kind::kFloat:
        return out_.append(json_number(value.number), false);
      case Kind::kString:
        return append_json_string(heap_, out_, value.string->text, style_.ensure_ascii);
      case Kind::kList:
        if (value.list->form <= ListForm::kTuple) return write_list(*value.list, depth);
        break;
      case Kind::kDict:
        return write_dict(*value.dict, depth);
      default:
        break;
    }
    trouble_type("a value that JSON has", std::string(type_name(value)));
  }

 private:
  void new_line(int depth) {
    if (!style_.indented) return;
    out_.append("\n", false);
    for (int i = 0; i < depth; ++i) {
      heap_.take(style_.indent.size());
      out_.append(style_.indent);
    }
  }

  void write_list(const ListObject& list, int depth) {
    if (list.items.empty()) return out_.append("[]", false);
    out_.append("[", false);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(style_.between);
      new_line(depth + 1);
      write(list.items[i], depth + 1);
    }
    new_line(depth);
    out_.append("]", false);
  }

  void write_key(const Value& key) {
    switch (key.kind) {
      case Kind::kString:
        return append_json_string(heap_, out_, key.string->text, style_.ensure_ascii);
      case Kind::kNone:
        return out_.append("\"null\"", false);
      case Kind::kBool:
        return out_.append(key.truth ? "\"true\"" : "\"false\"", false);
      case Kind::kInt:
        return out_.append("\"" + std::to_string(key.integer) + "\"", false);
      case Kind::kFloat:
        return out_.append("\"" + json_number(key.number) + "\"", false);
      default:
        trouble_type("a key that JSON has", std::string(type_name(key)));
    }
  }

  void write_dict(const DictObject& dict, int depth) {
    if (dict.entries.empty()) return out_.append("{}", false);
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return less(heap_, a->first, b->first);
      });
    }
    out_.append("{", false);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.between);
      new_line(depth + 1);
      write_key(entries[i]->first);
      out_.append(style_.colon);
      write(entries[i]->second, depth + 1);
    }
    new_line(depth);
    out_.append("}", false);
  }

  Heap& heap_;
  MarkedText& out_;
  const JsonStyle& style_;
};

}  // namespace

void append_json(Heap& heap, MarkedText& out, const Value& value, const JsonStyle& style) {
  JsonWriter(heap, out, style).write(value, 0);
}

}  // namespace tessera::jinja
