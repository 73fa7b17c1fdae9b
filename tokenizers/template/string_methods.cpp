// Methods of Python's str. Each keeps the marks of the bytes it takes over.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/template/characters.h"
#include "tokenizers/template/interpreter.h"

namespace tessera::jinja {

namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

std::size_t find_bytes(std::string_view in, std::string_view what, std::size_t from) {
  if (what.empty()) return from <= in.size() ? from : kNowhere;
  if (from >= in.size()) return kNowhere;
  const void* found = memmem(in.data() + from, in.size() - from, what.data(), what.size());
  return found == nullptr ? kNowhere : to_size(static_cast<const char*>(found) - in.data());
}

// Where `what` is, without overlaps, counted from the front or from the end.
std::vector<std::size_t> all_places(Heap& heap, std::string_view in, std::string_view what,
                                    bool from_end = false) {
  std::vector<std::size_t> all;
  heap.work(1 + in.size() / 16);
  const std::size_t step = from_end ? 1 : what.size();
  for (std::size_t at = 0; (at = find_bytes(in, what, at)) != kNowhere; at += step) {
    heap.take(sizeof(std::size_t));
    heap.work(1 + what.size() / 16);
    all.push_back(at);
  }
  if (!from_end) return all;
  std::vector<std::size_t> out;
  for (std::size_t i = all.size(); i-- > 0;) {
    if (out.empty() || all[i] + what.size() <= out.back()) out.push_back(all[i]);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

const MarkedText& text_of(const Value& self) { return self.string->text; }

const MarkedText& text_argument(const Value& value, std::string_view function) {
  if (value.is(Kind::kUndefined)) trouble_undefined(value);
  if (!value.is(Kind::kString)) {
    trouble_type("a string in " + std::string(function) + "()", std::string(type_name(value)));
  }
  return value.string->text;
}

bool given_value(const Value* value) { return value != nullptr && !value->is(Kind::kNone); }

bool in_set(std::string_view set, char32_t code) {
  for (std::size_t at = 0; at < set.size();) {
    const Utf8Char c = decode_utf8(set, at);
    if (c.code == code) return true;
    at += c.length;
  }
  return false;
}

Value stripped(Interpreter& run, const Value& self, const Call& call, bool left, bool right) {
  const Bound given(call, "strip", {"chars"});
  const bool own = given_value(given[0]);
  const std::string_view set = own ? text_argument(*given[0], "strip").bytes() : std::string_view{};
  const MarkedText& text = text_of(self);
  run.heap().work(text.size() * (1 + set.size()) / 8);
  std::size_t begin = text.size(), end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text.bytes(), at);
    if (!(own ? in_set(set, c.code) : is_space(c.code))) {
      begin = std::min(begin, at);
      end = at + c.length;
    }
    at += c.length;
  }
  if (!left) begin = 0;
  if (!right) end = text.size();
  return run.heap().text(begin < end ? text.slice(begin, end) : MarkedText());
}

Value strip_both(Interpreter& run, const Value& self, const Call& call) {
  return stripped(run, self, call, true, true);
}
Value strip_left(Interpreter& run, const Value& self, const Call& call) {
  return stripped(run, self, call, true, false);
}
Value strip_right(Interpreter& run, const Value& self, const Call& call) {
  return stripped(run, self, call, false, true);
}

using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

// Words between white space; the rest after `limit` splits stays as it is.
Ranges words(std::string_view text, std::int64_t limit) {
  Ranges out;
  std::size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < text.size()) {
      const Utf8Char c = decode_utf8(text, at);
      if (is_space(c.code) != spaces) break;
      at += c.length;
    }
  };
  for (;;) {
    skip(true);
    if (at == text.size()) return out;
    const std::size_t begin = at;
    if (limit >= 0 && std::ssize(out) == limit) {
      out.emplace_back(begin, text.size());
      return out;
    }
    skip(false);
    out.emplace_back(begin, at);
  }
}

// As split() without a separator, but counted from the end.
Ranges words_from_end(std::string_view text, std::int64_t limit) {
  Ranges all = words(text, -1);
  const auto count = std::ssize(all);
  if (limit < 0 || count <= limit) return all;
  const auto joined = to_size(count - limit);
  Ranges out;
  if (joined > 0) out.emplace_back(0, all[joined - 1].second);
  out.insert(out.end(), all.begin() + to_index(joined), all.end());
  return out;
}

Ranges separated(Heap& heap, std::string_view text, std::string_view by, std::int64_t limit,
                 bool from_end) {
  if (by.empty()) trouble_type("a separator that is not empty", "''");
  std::vector<std::size_t> places = all_places(heap, text, by, from_end);
  if (limit >= 0 && to_size(limit) < places.size()) {
    const auto count = limit;
    if (from_end)
      places.erase(places.begin(), places.end() - count);
    else
      places.resize(to_size(limit));
  }
  Ranges out;
  std::size_t begin = 0;
  for (const std::size_t place : places) {
    out.emplace_back(begin, place);
    begin = place + by.size();
  }
  out.emplace_back(begin, text.size());
  return out;
}

Value split_text(Interpreter& run, const Value& self, const Call& call, bool from_end) {
  const Bound given(call, "split", {"sep", "maxsplit"});
  const MarkedText& text = text_of(self);
  const std::int64_t limit = given.integer(1, -1);
  run.heap().work(1 + text.size() / 4);
  Ranges ranges;
  if (given_value(given[0])) {
    const std::string_view by = text_argument(*given[0], "split").bytes();
    ranges = separated(run.heap(), text.bytes(), by, limit, from_end);
  } else {
    ranges = from_end ? words_from_end(text.bytes(), limit) : words(text.bytes(), limit);
  }
  std::vector<Value> out;
  for (const auto& [begin, end] : ranges) out.push_back(run.heap().text(text.slice(begin, end)));
  return run.heap().list(std::move(out));
}

Value split_left(Interpreter& run, const Value& self, const Call& call) {
  return split_text(run, self, call, false);
}
Value split_right(Interpreter& run, const Value& self, const Call& call) {
  return split_text(run, self, call, true);
}

Value split_lines(Interpreter& run, const Value& self, const Call& call) {
  const Bound given(call, "splitlines", {"keepends"});
  const bool keep = given.truth(0, false);
  const MarkedText& text = text_of(self);
  run.heap().work(text.size());
  std::vector<Value> out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text.bytes(), at);
    std::size_t after = at + c.length;
    if (is_line_end(c.code)) {
      if (c.code == U'\r' && after < text.size() && text.bytes()[after] == '\n') ++after;
      out.push_back(run.heap().text(text.slice(begin, keep ? after : at)));
      begin = after;
    }
    at = after;
  }
  if (begin < text.size()) out.push_back(run.heap().text(text.slice(begin, text.size())));
  return run.heap().list(std::move(out));
}

Value partition_at(Interpreter& run, const Value& self, const Call& call, bool from_end) {
  const Bound given(call, "partition", {"sep"});
  const MarkedText &text = text_of(self), &by = text_argument(given.need(0), "partition");
  if (by.empty()) trouble_type("a separator that is not empty", "''");
  const std::vector<std::size_t> places =
      all_places(run.heap(), text.bytes(), by.bytes(), from_end);
  Heap& heap = run.heap();
  const auto part = [&](std::size_t begin, std::size_t end) {
    return heap.text(text.slice(begin, end));
  };
  if (places.empty()) {
    std::vector<Value> out = {self, heap.text(""), heap.text("")};
    if (from_end) std::swap(out[0], out[2]);
    return heap.list(std::move(out), ListForm::kTuple);
  }
  const std::size_t at = from_end ? places.back() : places.front();
  return heap.list({part(0, at), part(at, at + by.size()), part(at + by.size(), text.size())},
                   ListForm::kTuple);
}

Value partition_left(Interpreter& run, const Value& self, const Call& call) {
  return partition_at(run, self, call, false);
}
Value partition_right(Interpreter& run, const Value& self, const Call& call) {
  return partition_at(run, self, call, true);
}

// The part of the text that start and end of a method name.
MarkedText within(Interpreter& run, const Value& self, const Value* start, const Value* end) {
  if (start == nullptr && end == nullptr) return text_of(self);
  return slice_value(run, self, start, end, nullptr).string->text;
}

Value affix(Interpreter& run, const Value& self, const Call& call, bool at_end) {
  const Bound given(call, at_end ? "endswith" : "startswith", {"prefix", "start", "end"});
  const MarkedText part = within(run, self, given[1], given[2]);
  const auto matches = [&](const Value& value) {
    const std::string_view what = text_argument(value, "startswith").bytes();
    run.heap().work(1 + what.size() / 64);
    return at_end ? part.bytes().ends_with(what) : part.bytes().starts_with(what);
  };
  const Value& what = given.need(0);
  if (!what.is(Kind::kList) || what.list->form != ListForm::kTuple) {
    return Value::boolean(matches(what));
  }
  return Value::boolean(std::any_of(what.list->items.begin(), what.list->items.end(), matches));
}

Value starts_with(Interpreter& run, const Value& self, const Call& call) {
  return affix(run, self, call, false);
}
Value ends_with(Interpreter& run, const Value& self, const Call& call) {
  return affix(run, self, call, true);
}

Value without_affix(Interpreter& run, const Value& self, const Call& call, bool at_end) {
  const Bound given(call, "removeprefix", {"prefix"});
  const MarkedText& text = text_of(self);
  const std::string_view what = text_argument(given.need(0), "removeprefix").bytes();
  if (at_end) {
    return text.bytes().ends_with(what) ? run.heap().text(text.slice(0, text.size() - what.size()))
                                        : self;
  }
  return text.bytes().starts_with(what) ? run.heap().text(text.slice(what.size(), text.size()))
                                        : self;
}

Value remove_prefix(Interpreter& run, const Value& self, const Call& call) {
  return without_affix(run, self, call, false);
}
Value remove_suffix(Interpreter& run, const Value& self, const Call& call) {
  return without_affix(run, self, call, true);
}

Value replace_text(Interpreter& run, const Value& self, const Call& call) {
  const Bound given(call, "replace", {"old", "new", "count"});
  const MarkedText& text = text_of(self);
  const MarkedText& from = text_argument(given.need(0), "replace");
  const MarkedText& to = text_argument(given.need(1), "replace");
  std::int64_t left = given_value(given[2]) ? given.integer(2, -1) : -1;
  Heap& heap = run.heap();
  heap.work(1 + text.size() / 16);
  MarkedText out;
  std::size_t begin = 0;
  if (from.empty()) {  // in front of each character and at the end
    for (std::size_t at = 0; at <= text.size() && left != 0; --left) {
      heap.take(to.size() + 1);
      out.append(text, begin, at);
      out.append(to);
      begin = at;
      if (at == text.size()) break;
      at += decode_utf8(text.bytes(), at).length;
    }
  } else {
    for (; left != 0; --left) {
      const std::size_t at = find_bytes(text.bytes(), from.bytes(), begin);
      if (at == kNowhere) break;
      heap.take(to.size());
      heap.work(1);
      out.append(text, begin, at);
      out.append(to);
      begin = at + from.size();
    }
  }
  out.append(text, begin, text.size());
  return heap.text(std::move(out));
}

std::int64_t characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (byte_of(c) & 0xc0u) != 0x80u; });
}

// The place of the first or last occurrence, in characters, or -1.
std::int64_t place_of(Interpreter& run, const Value& self, const Call& call, bool last) {
  const Bound given(call, "find", {"sub", "start", "end"});
  const MarkedText part = within(run, self, given[1], given[2]);
  const std::string_view what = text_argument(given.need(0), "find").bytes();
  run.heap().work(1 + part.size() / 16);
  std::size_t at = find_bytes(part.bytes(), what, 0);
  if (at == kNowhere) return -1;
  if (last && what.empty()) at = part.size();
  for (std::size_t next = at; last && !what.empty() && next != kNowhere;) {
    at = next;
    run.heap().work(1 + what.size() / 16);
    next = find_bytes(part.bytes(), what, next + 1);
  }
  std::int64_t skipped = 0;
  if (given[1] != nullptr) {
    const Value before = slice_value(run, self, nullptr, given[1], nullptr);
    skipped = characters_in(before.string->text.bytes());
  }
  return skipped + characters_in(part.bytes().substr(0, at));
}

Value find_first(Interpreter& run, const Value& self, const Call& call) {
  return Value::of(place_of(run, self, call, false));
}
Value find_last(Interpreter& run, const Value& self, const Call& call) {
  return Value::of(place_of(run, self, call, true));
}
Value index_first(Interpreter& run, const Value& self, const Call& call) {
  const std::int64_t at = place_of(run, self, call, false);
  if (at < 0) trouble_type("a text that holds the other", "one that does not");
  return Value::of(at);
}
Value index_last(Interpreter& run, const Value& self, const Call& call) {
  const std::int64_t at = place_of(run, self, call, true);
  if (at < 0) trouble_type("a text that holds the other", "one that does not");
  return Value::of(at);
}

Value count_text(Interpreter& run, const Value& self, const Call& call) {
  const Bound given(call, "count", {"sub", "start", "end"});
  const MarkedText part = within(run, self, given[1], given[2]);
  const std::string_view what = text_argument(given.need(0), "count").bytes();
  if (what.empty()) return Value::of(characters_in(part.bytes()) + 1);
  return Value::of(std::ssize(all_places(run.heap(), part.bytes(), what)));
}

Value join_texts(Interpreter& run, const Value& self, const Call& call) {
  const Bound given(call, "join", {"iterable"});
  MarkedText out;
  bool first = true;
  for (const Value& item : iterate(run.heap(), given.need(0))) {
    const MarkedText& part = text_argument(item, "join");
    run.heap().take(part.size() + text_of(self).size());
    if (!first) out.append(text_of(self));
    out.append(part);
    first = false;
  }
  return run.heap().text(std::move(out));
}

Value format_text(Interpreter& run, const Value& self, const Call& call) {
  return format_braces(run, *self.string, call);
}

Value padded(Interpreter& run, const Value& self, const Call& call, int side) {
  const Bound given(call, "center", {"width", "fillchar"});
  given.need(0);
  const MarkedText& text = text_of(self);
  const std::int64_t length = characters_in(text.bytes());
  const std::int64_t room = std::max<std::int64_t>(given.integer(0, 0) - length, 0);
  const MarkedText blank(" ", false);
  const MarkedText& fill = given[1] != nullptr ? text_argument(*given[1], "center") : blank;
  if (characters_in(fill.bytes()) != 1) trouble_type("a fill of one character", "another");
  const std::int64_t odd = room & given.integer(0, 0) & 1;
  const std::int64_t left = side < 0 ? 0 : side > 0 ? room : room / 2 + odd;
  MarkedText out;
  for (std::int64_t i = 0; i <= room; ++i) {
    run.heap().take(fill.size());
    run.heap().work(1);
    if (i == left) out.append(text);
    if (i < room) out.append(fill);
  }
  return run.heap().text(std::move(out));
}

Value center_text(Interpreter& run, const Value& self, const Call& call) {
  return padded(run, self, call, 0);
}
Value justify_left(Interpreter& run, const Value& self, const Call& call) {
  return padded(run, self, call, -1);
}
Value justify_right(Interpreter& run, const Value& self, const Call& call) {
  return padded(run, self, call, 1);
}

Value zero_fill(Interpreter& run, const Value& self, const Call& call) {
  const Bound given(call, "zfill", {"width"});
  given.need(0);
  const MarkedText& text = text_of(self);
  const std::size_t sign =
      !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+') ? 1 : 0;
  MarkedText out = text.slice(0, sign);
  for (std::int64_t i = characters_in(text.bytes()); i < given.integer(0, 0); ++i) {
    run.heap().take(1);
    run.heap().work(1);
    out.append("0", false);
  }
  out.append(text, sign, text.size());
  return run.heap().text(std::move(out));
}

constexpr std::array kStringMethods = {
    MethodRow{"casefold", nullptr},
    MethodRow{"center", center_text},
    MethodRow{"count", count_text},
    MethodRow{"encode", nullptr},
    MethodRow{"endswith", ends_with},
    MethodRow{"expandtabs", nullptr},
    MethodRow{"find", find_first},
    MethodRow{"format", format_text},
    MethodRow{"format_map", nullptr},
    MethodRow{"index", index_first},
    MethodRow{"isidentifier", nullptr},
    MethodRow{"isprintable", nullptr},
    MethodRow{"istitle", nullptr},
    MethodRow{"join", join_texts},
    MethodRow{"ljust", justify_left},
    MethodRow{"lstrip", strip_left},
    MethodRow{"maketrans", nullptr},
    MethodRow{"partition", partition_left},
    MethodRow{"removeprefix", remove_prefix},
    MethodRow{"removesuffix", remove_suffix},
    MethodRow{"replace", replace_text},
    MethodRow{"rfind", find_last},
    MethodRow{"rindex", index_last},
    MethodRow{"rjust", justify_right},
    MethodRow{"rpartition", partition_right},
    MethodRow{"rsplit", split_right},
    MethodRow{"rstrip", strip_right},
    MethodRow{"split", split_left},
    MethodRow{"splitlines", split_lines},
    MethodRow{"startswith", starts_with},
    MethodRow{"strip", strip_both},
    MethodRow{"translate", nullptr},
    MethodRow{"zfill", zero_fill},
};

}  // namespace

const MethodRow* string_method(std::string_view name) {
  for (const MethodRow& row : kStringMethods) {
    if (row.name == name) return &row;
  }
  return string_case_method(name);
}

}  // namespace tessera::jinja
