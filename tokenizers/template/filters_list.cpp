// Filters of lists and dictionaries. What Jinja does lazily is done at once here and given as a
// generator: without a length, read once.
#include <algorithm>
#include <array>

#include "engine/core/index.h"
#include "tokenizers/template/interpreter.h"

namespace tessera::jinja {

namespace {

// What `fill` appends. Its trouble is that of the reader, as in Python, if there is one.
template <typename Fill>
Value generator(Interpreter& run, const Fill& fill) {
  std::vector<Value> items;
  const Trouble* trouble = nullptr;
  try {
    fill(items);
  } catch (const Trouble& thrown) {
    if (std::string_view(thrown.code) == "E_TEMPLATE_LIMIT") throw;
    trouble = run.heap().keep(thrown);
  }
  const Value out = run.heap().list(std::move(items), ListForm::kGenerator);
  out.list->trouble = trouble;
  return out;
}

// "a.b.0" as the keys that lead there.
std::vector<Value> path_of(Interpreter& run, const Value& attribute) {
  if (!attribute.is(Kind::kString)) return {attribute};
  std::vector<Value> out;
  const MarkedText& text = attribute.string->text;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.bytes().find('.', begin), text.size());
    const std::string_view part = text.bytes().substr(begin, end - begin);
    const bool digits = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    out.push_back(digits ? Value::of(std::int64_t{std::stoi(std::string(part))})
                         : run.heap().text(text.slice(begin, end)));
    begin = end + 1;
  }
  return out;
}

// item by the path of `attribute`; the item itself if that is null or None.
class Getter {
 public:
  Getter(Interpreter& run, const Value* attribute, const Value* fallback = nullptr)
      : run_(run), fallback_(fallback) {
    if (attribute != nullptr && !attribute->is(Kind::kNone)) path_ = path_of(run, *attribute);
  }

  Value operator()(Value item) const {
    for (const Value& part : path_) {
      item = run_.item(item, part);
      if (item.is(Kind::kUndefined) && fallback_ != nullptr && !fallback_->is(Kind::kNone)) {
        item = *fallback_;
      }
    }
    return item;
  }

 private:
  Interpreter& run_;
  const Value* fallback_;
  std::vector<Value> path_;
};

// Strings in lower case, unless case counts.
Value sort_key(Interpreter& run, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is(Kind::kString)) return value;
  return run.heap().text(change_case(run.heap(), value.string->text, false));
}

using Keyed = std::vector<std::pair<Value, Value>>;  // key, value

Keyed keyed(Interpreter& run, const std::vector<Value>& items, const Getter& get,
            bool case_sensitive) {
  Keyed out;
  for (const Value& item : items) out.emplace_back(sort_key(run, get(item), case_sensitive), item);
  return out;
}

std::vector<Value> sorted(Interpreter& run, Keyed items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    const Value& left = reverse ? b.first : a.first;
    const Value& right = reverse ? a.first : b.first;
    if (left.is(Kind::kUndefined)) trouble_undefined(left);
    return less(run.heap(), left, right);
  });
  std::vector<Value> out;
  for (const auto& item : items) out.push_back(item.second);
  return out;
}

Value filter_default(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "default", {"default_value", "boolean"});
  const bool absent = input.is(Kind::kUndefined) || (given.truth(1, false) && !truthy(input));
  if (!absent) return input;
  return given[0] != nullptr ? *given[0] : run.heap().text("");
}

Value filter_length(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "length", {});
  return Value::of(length_of(run.heap(), input));
}

Value filter_first(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "first", {});
  if (input.is(Kind::kList) && input.list->form == ListForm::kGenerator) {
    ListObject& list = *input.list;
    if (list.next < list.items.size()) return list.items[list.next++];
    if (list.trouble != nullptr) throw Trouble(*list.trouble);
    return run.undefined("first item");
  }
  if (input.is(Kind::kString)) return run.item(input, Value::of(std::int64_t{0}));
  const std::vector<Value> items = iterate(run.heap(), input);
  return items.empty() ? run.undefined("first item") : items.front();
}

Value filter_last(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "last", {});
  if (input.is(Kind::kList) && input.list->form == ListForm::kGenerator) {
    trouble_type("a list that can be read from its end", "a generator");
  }
  if (input.is(Kind::kString)) return run.item(input, Value::of(std::int64_t{-1}));
  const std::vector<Value> items = iterate(run.heap(), input);
  return items.empty() ? run.undefined("last item") : items.back();
}

Value filter_list(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "list", {});
  return run.heap().list(iterate(run.heap(), input));
}

Value filter_join(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "join", {"d", "attribute"});
  Heap& heap = run.heap();
  const MarkedText between = given[0] != nullptr ? str_of(heap, *given[0]) : MarkedText();
  const Getter get(run, given[1]);
  MarkedText out;
  bool first = true;
  for (const Value& item : iterate(heap, input)) {
    heap.take(between.size());
    if (!first) out.append(between);
    append_str(heap, out, get(item));
    first = false;
  }
  return heap.text(std::move(out));
}

std::vector<Value> pairs_of(Interpreter& run, const DictObject& dict) {
  std::vector<Value> out;
  for (const auto& [key, value] : dict.entries) {
    out.push_back(run.heap().list({key, value}, ListForm::kTuple));
  }
  return out;
}

Value filter_items(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "items", {});
  return generator(run, [&](std::vector<Value>& out) {
    if (input.is(Kind::kUndefined)) return;
    if (!input.is(Kind::kDict)) trouble_type("a dict for items", std::string(type_name(input)));
    out = pairs_of(run, *input.dict);
  });
}

Value filter_dictsort(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "dictsort", {"case_sensitive", "by", "reverse"});
  if (input.is(Kind::kUndefined)) trouble_undefined(input);
  if (!input.is(Kind::kDict)) trouble_type("a dict to sort", std::string(type_name(input)));
  const bool by_value = given[1] != nullptr && given[1]->is(Kind::kString) &&
                        given[1]->string->text.bytes() == "value";
  const Value position = Value::of(std::int64_t{by_value ? 1 : 0});
  Keyed items =
      keyed(run, pairs_of(run, *input.dict), Getter(run, &position), given.truth(0, false));
  return run.heap().list(sorted(run, std::move(items), given.truth(2, false)));
}

Value filter_sort(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "sort", {"reverse", "case_sensitive", "attribute"});
  const Value* attribute = given[2];
  if (attribute != nullptr && attribute->is(Kind::kString) &&
      attribute->string->text.bytes().find(',') != std::string_view::npos) {
    trouble_unsupported("one attribute to sort by", "several");
  }
  Keyed items =
      keyed(run, iterate(run.heap(), input), Getter(run, attribute), given.truth(1, false));
  return run.heap().list(sorted(run, std::move(items), given.truth(0, false)));
}

Value filter_unique(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "unique", {"case_sensitive", "attribute"});
  return generator(run, [&](std::vector<Value>& out) {
    std::vector<Value> seen;
    for (const auto& pair : keyed(run, iterate(run.heap(), input), Getter(run, given[1]),
                                  given.truth(0, false))) {
      const Value& key = pair.first;
      if (!hashable(key)) trouble_type("values that can be hashed", std::string(type_name(key)));
      const auto same = [&](const Value& other) { return equal(run.heap(), other, key); };
      if (std::any_of(seen.begin(), seen.end(), same)) continue;
      seen.push_back(key);
      out.push_back(pair.second);
    }
  });
}

Value extreme(Interpreter& run, const Value& input, const Call& call, bool largest) {
  const Bound given(call, largest ? "max" : "min", {"case_sensitive", "attribute"});
  const Keyed items =
      keyed(run, iterate(run.heap(), input), Getter(run, given[1]), given.truth(0, false));
  if (items.empty()) return run.undefined("least or greatest item");
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    const Value &a = items[largest ? best : i].first, &b = items[largest ? i : best].first;
    if (less(run.heap(), a, b)) best = i;
  }
  return items[best].second;
}

Value filter_min(Interpreter& run, const Value& input, const Call& call) {
  return extreme(run, input, call, false);
}
Value filter_max(Interpreter& run, const Value& input, const Call& call) {
  return extreme(run, input, call, true);
}

Value filter_sum(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "sum", {"attribute", "start"});
  const Getter get(run, given[0]);
  Value out = given[1] != nullptr ? *given[1] : Value::of(std::int64_t{0});
  if (out.is(Kind::kString)) trouble_type("a start of sum that is no string", "a string");
  for (const Value& item : iterate(run.heap(), input)) {
    out = binary_operation(run, "+", out, get(item));
  }
  return out;
}

Value filter_reverse(Interpreter& run, const Value& input, const Call& call) {
  const Bound none(call, "reverse", {});
  if (input.is(Kind::kString)) {
    const Value back = Value::of(std::int64_t{-1});
    return slice_value(run, input, nullptr, nullptr, &back);
  }
  std::vector<Value> items = iterate(run.heap(), input);
  std::reverse(items.begin(), items.end());
  const bool lazy =
      input.is(Kind::kDict) || (input.is(Kind::kList) && input.list->form != ListForm::kGenerator);
  return run.heap().list(std::move(items), lazy ? ListForm::kGenerator : ListForm::kList);
}

std::string_view name_argument(const Value& value) {
  if (!value.is(Kind::kString))
    trouble_type("the name of a filter or test", std::string(type_name(value)));
  return value.string->text.bytes();
}

// What is left of a call from argument `first` on.
Call rest_of(const Call& call, std::size_t first) {
  return {{call.positional.begin() + to_index(first), call.positional.end()}, call.named};
}

void map_items(Interpreter& run, const Value& input, const Call& call, std::vector<Value>& out) {
  if (!truthy(input)) return;
  if (call.positional.empty() && !call.named.empty()) {
    const Bound given(call, "map", {"attribute", "default"});
    const Getter get(run, &given.need(0), given[1]);
    for (const Value& item : iterate(run.heap(), input)) out.push_back(get(item));
    return;
  }
  if (call.positional.empty()) trouble_type("the filter that map applies", "none");
  const std::string_view name = name_argument(call.positional[0]);
  const Call more = rest_of(call, 1);
  for (const Value& item : iterate(run.heap(), input)) out.push_back(run.filter(name, item, more));
}

Value filter_map(Interpreter& run, const Value& input, const Call& call) {
  return generator(run, [&](std::vector<Value>& out) { map_items(run, input, call, out); });
}

void choose_items(Interpreter& run, const Value& input, const Call& call, bool by_attribute,
                  bool wanted, std::vector<Value>& out) {
  if (!truthy(input)) return;
  const std::size_t offset = by_attribute ? 1 : 0;
  if (call.positional.size() < offset) trouble_type("the attribute to select by", "none");
  const Getter get(run, by_attribute ? &call.positional[0] : nullptr);
  const bool tested = call.positional.size() > offset;
  const std::string_view name =
      tested ? name_argument(call.positional[offset]) : std::string_view{};
  const Call more = tested ? rest_of(call, offset + 1) : Call{};
  for (const Value& item : iterate(run.heap(), input)) {
    const Value value = get(item);
    if ((tested ? run.test(name, value, more) : truthy(value)) == wanted) out.push_back(item);
  }
}

Value chosen(Interpreter& run, const Value& input, const Call& call, bool by_attribute,
             bool wanted) {
  return generator(run, [&](std::vector<Value>& out) {
    choose_items(run, input, call, by_attribute, wanted, out);
  });
}

Value filter_select(Interpreter& run, const Value& input, const Call& call) {
  return chosen(run, input, call, false, true);
}
Value filter_reject(Interpreter& run, const Value& input, const Call& call) {
  return chosen(run, input, call, false, false);
}
Value filter_selectattr(Interpreter& run, const Value& input, const Call& call) {
  return chosen(run, input, call, true, true);
}
Value filter_rejectattr(Interpreter& run, const Value& input, const Call& call) {
  return chosen(run, input, call, true, false);
}

Value filter_batch(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "batch", {"linecount", "fill_with"});
  given.need(0);
  const auto size = to_size(std::clamp<std::int64_t>(given.integer(0, 1), 1, 100'000));
  return generator(run, [&](std::vector<Value>& out) {
    std::vector<Value> batch;
    for (const Value& item : iterate(run.heap(), input)) {
      if (batch.size() == size) out.push_back(run.heap().list(std::exchange(batch, {})));
      batch.push_back(item);
    }
    if (batch.empty()) return;
    const bool fill = given[1] != nullptr && !given[1]->is(Kind::kNone);
    while (fill && batch.size() < size) batch.push_back(*given[1]);
    out.push_back(run.heap().list(std::move(batch)));
  });
}

Value filter_attr(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "attr", {"name"});
  // Attributes alone: keys of a dictionary are none.
  if (input.is(Kind::kDict)) return run.undefined(name_argument(given.need(0)));
  return run.attribute(input, name_argument(given.need(0)));
}

constexpr std::array kListFilters = {
    FilterRow{"default", filter_default},
    FilterRow{"d", filter_default},
    FilterRow{"length", filter_length},
    FilterRow{"count", filter_length},
    FilterRow{"first", filter_first},
    FilterRow{"last", filter_last},
    FilterRow{"list", filter_list},
    FilterRow{"join", filter_join},
    FilterRow{"items", filter_items},
    FilterRow{"dictsort", filter_dictsort},
    FilterRow{"sort", filter_sort},
    FilterRow{"unique", filter_unique},
    FilterRow{"min", filter_min},
    FilterRow{"max", filter_max},
    FilterRow{"sum", filter_sum},
    FilterRow{"reverse", filter_reverse},
    FilterRow{"map", filter_map},
    FilterRow{"select", filter_select},
    FilterRow{"reject", filter_reject},
    FilterRow{"selectattr", filter_selectattr},
    FilterRow{"rejectattr", filter_rejectattr},
    FilterRow{"batch", filter_batch},
    FilterRow{"attr", filter_attr},
    FilterRow{"groupby", nullptr},
    FilterRow{"random", nullptr},
    FilterRow{"slice", nullptr},
};

}  // namespace

std::span<const FilterRow> list_filters() { return kListFilters; }

}  // namespace tessera::jinja
