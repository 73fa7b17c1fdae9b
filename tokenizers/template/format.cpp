// "%s of %d" % (a, b) and "{} of {}".format(a, b).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "engine/core/index.h"
#include "tokenizers/template/interpreter.h"

namespace tessera::jinja {

namespace {

constexpr std::int64_t kMaxWidth = 10'000, kMaxPrecision = 300;

struct FormatSpec {
  std::string fill = " ";
  char align = '\0', sign = '\0', type = '\0';
  bool zero = false, commas = false, alternate = false;
  std::int64_t width = 0, precision = -1;
};

std::int64_t read_count(std::string_view text, std::size_t& at, std::int64_t max) {
  std::int64_t out = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    out = std::min<std::int64_t>(out * 10 + (text[at++] - '0'), max + 1);
  }
  if (out > max) trouble_limit("widths of at most " + std::to_string(max), "more");
  return out;
}

// The number with its sign apart; `type` as Python's: d, x, X, o, b, e, f, g, %.
std::string number_text(const Value& value, FormatSpec& spec, bool& negative) {
  std::string out;
  if (value.is(Kind::kFloat) || std::string_view("eEfFgG%").find(spec.type) != std::string::npos) {
    double number = as_double(value);
    negative = std::signbit(number);
    number = std::fabs(number);
    if (spec.type == '%') number *= 100;
    const auto precision = narrow<int>(spec.precision < 0 ? 6 : spec.precision);
    if (spec.type == '\0' && spec.precision < 0) return float_repr(number);
    const char format[] = {'%', '.', '*',
                           spec.type == '%'    ? 'f'
                           : spec.type == '\0' ? 'g'
                                               : spec.type,
                           0};
    char text[1024];
    const int size = std::snprintf(text, sizeof text, format, precision, number);
    out.assign(text, to_size(std::min(size, 1023)));
    if (spec.type == '%') out += '%';
    return out;
  }
  const std::int64_t number = as_integer(value);
  negative = number < 0;
  const std::uint64_t size =
      negative ? 0 - low_bits<std::uint64_t>(number) : low_bits<std::uint64_t>(number);
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  char text[80];
  const auto end = std::to_chars(text, text + sizeof text, size, base);
  out.assign(text, end.ptr);
  if (spec.type == 'X')
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'a' && c <= 'f' ? char_of(c - 'a' + 'A') : c; });
  return out;
}

void add_commas(std::string& digits) {
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = end; at > 3; at -= 3) digits.insert(at - 3, ",");
}

// Appends `text` of `length` characters in the field of the format.
void append_aligned(Heap& heap, MarkedText& out, const MarkedText& text, std::int64_t length,
                    const FormatSpec& spec, char fallback) {
  const std::int64_t room = std::max<std::int64_t>(spec.width - length, 0);
  const char align = spec.align != '\0' ? spec.align : fallback;
  const std::int64_t left = align == '>' ? room : align == '^' ? room / 2 : 0;
  heap.take(text.size() + to_size(room) * spec.fill.size());
  for (std::int64_t i = 0; i < left; ++i) out.append(spec.fill, false);
  out.append(text);
  for (std::int64_t i = left; i < room; ++i) out.append(spec.fill, false);
}

void append_formatted(Interpreter& run, MarkedText& out, const Value& value, FormatSpec spec) {
  Heap& heap = run.heap();
  const bool number = value.is_number() && !(value.is(Kind::kBool) && spec.type == '\0');
  if (number && spec.type != 's') {
    bool negative = false;
    std::string digits = number_text(value, spec, negative);
    if (spec.commas) add_commas(digits);
    std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
    const auto size = to_index(digits.size() + sign.size());
    if (spec.zero && spec.align == '\0' && size < spec.width) {
      digits.insert(0, to_size(spec.width - size), '0');
    }
    const MarkedText text(sign + digits, false);
    return append_aligned(heap, out, text, std::ssize(text), spec, '>');
  }
  if (spec.type != '\0' && spec.type != 's') {
    trouble_type("a number to format", std::string(type_name(value)));
  }
  Value text = heap.text(str_of(heap, value));
  if (spec.precision >= 0) {
    const Value stop = Value::of(spec.precision);
    text = slice_value(run, text, nullptr, &stop, nullptr);
  }
  append_aligned(heap, out, text.string->text, length_of(heap, text), spec, '<');
}

// [[fill]align][sign][#][0][width][,][.precision][type]
FormatSpec parse_spec(std::string_view text) {
  FormatSpec out;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && (text[i] == '<' || text[i] == '>' || text[i] == '^');
  };
  const auto skip = [&](char c) { return at < text.size() && text[at] == c ? ++at > 0 : false; };
  if (text.size() > 1 && is_align(1) && byte_of(text[0]) < 0x80) {
    out.fill = text[0];
    out.align = text[1];
    at = 2;
  } else if (is_align(0)) {
    out.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' '))
    out.sign = text[at++];
  out.alternate = skip('#');
  out.zero = skip('0');
  out.width = read_count(text, at, kMaxWidth);
  out.commas = skip(',');
  if (skip('.')) out.precision = read_count(text, at, kMaxPrecision);
  if (at < text.size()) out.type = text[at++];
  if (at < text.size() || out.alternate ||
      (out.type != '\0' && std::string_view("sdxXobeEfFgG%").find(out.type) == std::string::npos)) {
    trouble_unsupported("a format that is known here", "'" + std::string(text) + "'");
  }
  return out;
}

// The value of "name.attribute[key]" of a replacement field.
Value field_value(Interpreter& run, std::string_view field, const Call& call,
                  std::size_t& automatic) {
  const std::size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view name = field.substr(0, end);
  const auto index_of = [](std::string_view digits) {
    std::size_t at = 0;
    const std::int64_t out = read_count(digits, at, 1000);
    return at == digits.size() && at > 0 ? out : -1;
  };
  Value value = Value::none();
  const std::int64_t index = name.empty() ? to_index(automatic++) : index_of(name);
  if (index >= 0) {
    if (to_size(index) >= call.positional.size()) {
      trouble_type("an argument for each field", "too few");
    }
    value = nth(call.positional, index);
  } else {
    const auto found = std::find_if(call.named.begin(), call.named.end(),
                                    [&](const auto& named) { return named.first == name; });
    if (found == call.named.end()) trouble_type("an argument for each field", std::string(name));
    value = found->second;
  }
  for (std::size_t at = end; at < field.size();) {
    const bool bracket = field[at] == '[';
    std::size_t stop = bracket ? field.find(']', at) : field.find_first_of(".[", at + 1);
    stop = std::min(stop, field.size());
    const std::string_view key = field.substr(at + 1, stop - at - 1);
    const std::int64_t number = bracket ? index_of(key) : -1;
    value = !bracket     ? run.attribute(value, key)
            : number < 0 ? run.item(value, run.heap().text(key))
                         : run.item(value, Value::of(number));
    at = stop + (bracket ? 1 : 0);
  }
  if (value.is(Kind::kUndefined)) trouble_undefined(value);
  return value;
}

}  // namespace

Value format_braces(Interpreter& run, const StringObject& format, const Call& call) {
  Heap& heap = run.heap();
  const std::string_view text = format.text.bytes();
  MarkedText out;
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find_first_of("{}", at), text.size());
    heap.work(1 + (mark - at) / 16);
    heap.take(mark - at);
    out.append(format.text, at, mark);
    if (mark == text.size()) break;
    if (mark + 1 < text.size() && text[mark + 1] == text[mark]) {
      out.append(format.text, mark, mark + 1);
      at = mark + 2;
      continue;
    }
    const std::size_t end = text[mark] == '{' ? text.find('}', mark) : std::string_view::npos;
    if (end == std::string_view::npos) trouble_type("pairs of braces in a format", "a single one");
    std::string_view field = text.substr(mark + 1, end - mark - 1), spec;
    if (const std::size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (field.size() > 1 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    Value value = field_value(run, field, call, automatic);
    if (conversion == 'r') {
      MarkedText shown;
      append_repr(heap, shown, value);
      value = heap.text(std::move(shown));
    } else if (conversion == 's') {
      value = heap.text(str_of(heap, value));
    } else if (conversion != '\0') {
      trouble_unsupported("a conversion that is known here", std::string(1, conversion));
    }
    append_formatted(run, out, value, parse_spec(spec));
    at = end + 1;
  }
  return heap.text(std::move(out));
}

Value format_percent(Interpreter& run, const StringObject& format, const Value& values) {
  Heap& heap = run.heap();
  const std::string_view text = format.text.bytes();
  const bool tuple = values.is(Kind::kList) && values.list->form == ListForm::kTuple;
  std::size_t used = 0;
  MarkedText out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find('%', at), text.size());
    heap.work(1 + (mark - at) / 16);
    heap.take(mark - at);
    out.append(format.text, at, mark);
    if (mark == text.size()) break;
    at = mark + 1;
    if (at < text.size() && text[at] == '%') {
      out.append("%", false);
      ++at;
      continue;
    }
    FormatSpec spec;
    for (; at < text.size() && std::string_view("-0+ ").find(text[at]) != std::string::npos; ++at) {
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '0') spec.zero = true;
      if (text[at] == '+' || text[at] == ' ') spec.sign = text[at];
    }
    spec.width = read_count(text, at, kMaxWidth);
    if (at < text.size() && text[at] == '.') spec.precision = read_count(text, ++at, kMaxPrecision);
    const char type = at < text.size() ? text[at++] : '\0';
    if (used >= (tuple ? values.list->items.size() : 1)) {
      trouble_type("a value for each mark of a format", "too few");
    }
    Value value = tuple ? values.list->items[used] : values;
    ++used;
    if (type == 'r') {
      MarkedText shown;
      append_repr(heap, shown, value);
      value = heap.text(std::move(shown));
    } else if (type == 's') {
      value = heap.text(str_of(heap, value));
    } else if (type == 'd' || type == 'i') {
      if (!value.is_number()) trouble_type("a number for %d", std::string(type_name(value)));
      value = Value::of(value.is(Kind::kFloat)
                            ? static_cast<std::int64_t>(std::clamp(value.number, -9e18, 9e18))
                            : as_integer(value));
      spec.type = 'd';
    } else if (std::string_view("xXoeEfFgG").find(type) != std::string::npos && value.is_number()) {
      spec.type = type;
    } else {
      trouble_unsupported("a format that is known here", std::string("%") + type);
    }
    if (type == 's' || type == 'r') {
      spec.type = 's';
      if (spec.align == '\0') spec.align = '>';
    }
    append_formatted(run, out, value, spec);
  }
  // Python takes what has keys or an index, other than a tuple or a string, for a mapping.
  const bool mapping = !tuple && (values.is(Kind::kDict) || values.is(Kind::kUndefined) ||
                                  (values.is(Kind::kList) && values.list->indexed()));
  if (used < (tuple ? values.list->items.size() : mapping ? 0 : 1)) {
    trouble_type("a mark of the format for each value", "too many values");
  }
  return heap.text(std::move(out));
}

}  // namespace tessera::jinja
