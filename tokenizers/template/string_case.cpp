// Methods of Python's str about the case and the kind of characters.
#include <algorithm>
#include <array>
#include <functional>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/template/characters.h"
#include "tokenizers/template/interpreter.h"

namespace tessera::jinja {

namespace {

// Final sigma: after a letter and not in front of one, marks aside.
bool ends_word(std::string_view text, std::size_t at, std::size_t after) {
  const auto case_ignorable = [](char32_t c) {
    return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xa8 || c == 0xad ||
           c == 0xaf || c == 0xb4 || c == 0xb7 || c == 0x2019 || (c >= 0x300 && c <= 0x36f);
  };
  bool before = false;
  for (std::size_t i = 0; i < at;) {
    const Utf8Char c = decode_utf8(text, i);
    if (!case_ignorable(c.code)) before = is_cased(c.code);
    i += c.length;
  }
  while (after < text.size()) {
    const Utf8Char c = decode_utf8(text, after);
    if (!case_ignorable(c.code)) return before && !is_cased(c.code);
    after += c.length;
  }
  return before;
}

// Maps each character with the mapping that `choose` names for it.
MarkedText mapped(Heap& heap, const MarkedText& text,
                  const std::function<CaseMapping(char32_t, bool previous_cased)>& choose) {
  MarkedText out;
  heap.work(text.size());
  heap.take(text.size());
  bool previous = false;
  char buffer[16];
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text.bytes(), at);
    const CaseMapping mapping = choose(c.code, previous);
    const bool data = text.from_data(at);
    std::string_view now = map_case(c.code, mapping, buffer);
    if (mapping == CaseMapping::kLower && c.code == 0x3a3) {
      heap.work(text.size());
      if (ends_word(text.bytes(), at, at + c.length)) now = "\xcf\x82";
    }
    out.append(now, data);
    previous = is_cased(c.code);
    at += c.length;
  }
  return out;
}

Value upper_case(Interpreter& run, const Value& self, const Call& call) {
  const Bound none(call, "upper", {});
  return run.heap().text(change_case(run.heap(), self.string->text, true));
}
Value lower_case_text(Interpreter& run, const Value& self, const Call& call) {
  const Bound none(call, "lower", {});
  return run.heap().text(change_case(run.heap(), self.string->text, false));
}
Value swap_case(Interpreter& run, const Value& self, const Call& call) {
  const Bound none(call, "swapcase", {});
  return run.heap().text(mapped(run.heap(), self.string->text, [](char32_t c, bool) {
    return is_upper(c) ? CaseMapping::kLower : CaseMapping::kUpper;
  }));
}
Value title_case(Interpreter& run, const Value& self, const Call& call) {
  const Bound none(call, "title", {});
  return run.heap().text(mapped(run.heap(), self.string->text, [](char32_t, bool previous) {
    return previous ? CaseMapping::kLower : CaseMapping::kTitle;
  }));
}
Value capitalize_text(Interpreter& run, const Value& self, const Call& call) {
  const Bound none(call, "capitalize", {});
  bool first = true;
  return run.heap().text(mapped(run.heap(), self.string->text, [&](char32_t, bool) {
    return std::exchange(first, false) ? CaseMapping::kTitle : CaseMapping::kLower;
  }));
}

bool every_character(Interpreter& run, const Value& self, bool (*holds)(char32_t)) {
  const std::string_view text = self.string->text.bytes();
  run.heap().work(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!holds(c.code)) return false;
    at += c.length;
  }
  return !text.empty();
}

template <bool (*holds)(char32_t)>
Value is_every(Interpreter& run, const Value& self, const Call&) {
  return Value::boolean(every_character(run, self, holds));
}

bool alpha_or_digit(char32_t c) { return is_alpha(c) || is_numeric(c); }

// One cased character at least, and none of the other case.
template <bool (*other)(char32_t)>
Value is_cased_as(Interpreter& run, const Value& self, const Call&) {
  const std::string_view text = self.string->text.bytes();
  run.heap().work(text.size());
  bool some = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (other(c.code) || is_title(c.code)) return Value::boolean(false);
    some |= is_cased(c.code);
    at += c.length;
  }
  return Value::boolean(some);
}

Value is_ascii(Interpreter&, const Value& self, const Call&) {
  const std::string_view text = self.string->text.bytes();
  return Value::boolean(
      std::all_of(text.begin(), text.end(), [](char c) { return byte_of(c) < 0x80; }));
}

constexpr std::array kCaseMethods = {
    MethodRow{"capitalize", capitalize_text},
    MethodRow{"isalnum", is_every<alpha_or_digit>},
    MethodRow{"isalpha", is_every<is_alpha>},
    MethodRow{"isascii", is_ascii},
    MethodRow{"isdecimal", is_every<is_decimal>},
    MethodRow{"isdigit", is_every<is_decimal>},
    MethodRow{"islower", is_cased_as<is_upper>},
    MethodRow{"isnumeric", is_every<is_numeric>},
    MethodRow{"isspace", is_every<is_space>},
    MethodRow{"isupper", is_cased_as<is_lower>},
    MethodRow{"lower", lower_case_text},
    MethodRow{"swapcase", swap_case},
    MethodRow{"title", title_case},
    MethodRow{"upper", upper_case},
};

}  // namespace

const MethodRow* string_case_method(std::string_view name) {
  for (const MethodRow& row : kCaseMethods) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

MarkedText change_case(Heap& heap, const MarkedText& text, bool upper) {
  return mapped(heap, text,
                [&](char32_t, bool) { return upper ? CaseMapping::kUpper : CaseMapping::kLower; });
}

}  // namespace tessera::jinja
