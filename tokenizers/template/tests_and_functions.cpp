// Tests ("is defined") and the functions of the environment.
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "tokenizers/template/interpreter.h"

namespace tessera::jinja {

namespace {

struct TestRow {
  std::string_view name;
  TestFunction run;
};

template <Kind kind>
bool is_kind(Interpreter&, const Value& input, const Call& call) {
  const Bound none(call, "test", {});
  return input.is(kind);
}

bool is_defined(Interpreter&, const Value& input, const Call&) {
  return !input.is(Kind::kUndefined);
}
bool is_true(Interpreter&, const Value& input, const Call&) {
  return input.is(Kind::kBool) && input.truth;
}
bool is_false(Interpreter&, const Value& input, const Call&) {
  return input.is(Kind::kBool) && !input.truth;
}
bool is_number(Interpreter&, const Value& input, const Call&) { return input.is_number(); }
bool is_iterable(Interpreter&, const Value& input, const Call&) {
  return input.is(Kind::kUndefined) || input.is(Kind::kString) || input.is(Kind::kList) ||
         input.is(Kind::kDict) || input.is(Kind::kLoop);
}
bool is_sequence(Interpreter&, const Value& input, const Call&) {
  return input.is(Kind::kUndefined) || input.is(Kind::kString) || input.is(Kind::kDict) ||
         (input.is(Kind::kList) && input.list->indexed());
}
bool is_lower_case(Interpreter& run, const Value& input, const Call&) {
  const Value text = run.heap().text(str_of(run.heap(), input));
  return string_method("islower")->run(run, text, {}).truth;
}
bool is_upper_case(Interpreter& run, const Value& input, const Call&) {
  const Value text = run.heap().text(str_of(run.heap(), input));
  return string_method("isupper")->run(run, text, {}).truth;
}
bool is_callable(Interpreter&, const Value& input, const Call&) {
  return input.is(Kind::kCallable) || input.is(Kind::kUndefined);
}
bool is_escaped(Interpreter&, const Value& input, const Call&) {
  return input.is(Kind::kString) && input.string->markup;
}

const Value& other_of(const Call& call) {
  const Bound given(call, "test", {"other"});
  return given.need(0);
}

bool is_equal(Interpreter& run, const Value& input, const Call& call) {
  return equal(run.heap(), input, other_of(call));
}
bool is_unequal(Interpreter& run, const Value& input, const Call& call) {
  return !equal(run.heap(), input, other_of(call));
}
bool is_in(Interpreter& run, const Value& input, const Call& call) {
  return contains(run.heap(), input, other_of(call));
}

bool ordered_less(Interpreter& run, const Value& a, const Value& b) {
  if (a.is(Kind::kUndefined)) trouble_undefined(a);
  if (b.is(Kind::kUndefined)) trouble_undefined(b);
  return less(run.heap(), a, b);
}
bool is_less(Interpreter& run, const Value& input, const Call& call) {
  return ordered_less(run, input, other_of(call));
}
bool is_greater(Interpreter& run, const Value& input, const Call& call) {
  return ordered_less(run, other_of(call), input);
}
bool is_at_most(Interpreter& run, const Value& input, const Call& call) {
  return is_less(run, input, call) || is_equal(run, input, call);
}
bool is_at_least(Interpreter& run, const Value& input, const Call& call) {
  return is_greater(run, input, call) || is_equal(run, input, call);
}

// The remainder is that of Python's "%".
std::int64_t remainder_of(Interpreter& run, const Value& input, std::int64_t by) {
  const Value rest = binary_operation(run, "%", input, Value::of(by));
  if (!rest.is_number()) return -1;  // a string is a format
  return rest.is(Kind::kFloat) ? (rest.number == 0   ? 0
                                  : rest.number == 1 ? 1
                                                     : -1)
                               : as_integer(rest);
}
bool is_odd(Interpreter& run, const Value& input, const Call&) {
  return remainder_of(run, input, 2) == 1;
}
bool is_even(Interpreter& run, const Value& input, const Call&) {
  return remainder_of(run, input, 2) == 0;
}
bool is_divisible(Interpreter& run, const Value& input, const Call& call) {
  const Bound given(call, "divisibleby", {"num"});
  given.need(0);
  return remainder_of(run, input, given.integer(0, 1)) == 0;
}

bool is_same(Interpreter&, const Value& input, const Call& call) {
  const Value& other = other_of(call);
  if (input.kind != other.kind) return false;
  switch (input.kind) {
    case Kind::kUndefined:
      return false;
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return input.truth == other.truth;
    case Kind::kInt:
      return input.integer == other.integer;
    case Kind::kFloat:
      return false;
    case Kind::kString:
      return input.string->text.bytes() == other.string->text.bytes();
    case Kind::kList:
      return input.list == other.list;
    case Kind::kLoop:
      return input.loop == other.loop;
    case Kind::kCallable:
      return input.callable == other.callable;
    default:
      return input.dict == other.dict;
  }
}

bool is_filter(Interpreter&, const Value& input, const Call&) {
  if (!input.is(Kind::kString)) return false;
  const auto same = [&](const FilterRow& row) { return row.name == input.string->text.bytes(); };
  return std::any_of(text_filters().begin(), text_filters().end(), same) ||
         std::any_of(list_filters().begin(), list_filters().end(), same);
}
bool is_test(Interpreter&, const Value& input, const Call&) {
  return input.is(Kind::kString) && find_test(input.string->text.bytes()) != nullptr;
}

constexpr std::array kTests = {
    TestRow{"defined", is_defined},
    TestRow{"undefined", is_kind<Kind::kUndefined>},
    TestRow{"none", is_kind<Kind::kNone>},
    TestRow{"boolean", is_kind<Kind::kBool>},
    TestRow{"true", is_true},
    TestRow{"false", is_false},
    TestRow{"integer", is_kind<Kind::kInt>},
    TestRow{"float", is_kind<Kind::kFloat>},
    TestRow{"number", is_number},
    TestRow{"string", is_kind<Kind::kString>},
    TestRow{"mapping", is_kind<Kind::kDict>},
    TestRow{"iterable", is_iterable},
    TestRow{"sequence", is_sequence},
    TestRow{"callable", is_callable},
    TestRow{"lower", is_lower_case},
    TestRow{"upper", is_upper_case},
    TestRow{"escaped", is_escaped},
    TestRow{"odd", is_odd},
    TestRow{"even", is_even},
    TestRow{"divisibleby", is_divisible},
    TestRow{"in", is_in},
    TestRow{"sameas", is_same},
    TestRow{"filter", is_filter},
    TestRow{"test", is_test},
    TestRow{"==", is_equal},
    TestRow{"eq", is_equal},
    TestRow{"equalto", is_equal},
    TestRow{"!=", is_unequal},
    TestRow{"ne", is_unequal},
    TestRow{"<", is_less},
    TestRow{"lt", is_less},
    TestRow{"lessthan", is_less},
    TestRow{">", is_greater},
    TestRow{"gt", is_greater},
    TestRow{"greaterthan", is_greater},
    TestRow{"<=", is_at_most},
    TestRow{"le", is_at_most},
    TestRow{">=", is_at_least},
    TestRow{"ge", is_at_least},
};

constexpr std::int64_t kMaxRange = 100'000;  // as Jinja's sandbox

Value make_range(Interpreter& run, const Value&, const Call& call) {
  const Bound given(call, "range", {"start", "stop", "step"});
  given.need(0);
  const bool one = given[1] == nullptr;
  const std::int64_t start = one ? 0 : given.integer(0, 0);
  const std::int64_t stop = one ? given.integer(0, 0) : given.integer(1, 0);
  const std::int64_t step = given.integer(2, 1);
  if (step == 0) trouble_type("a step that is not zero", "zero");
  std::vector<Value> out;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (std::ssize(out) == kMaxRange) {
      trouble_limit("a range of at most " + std::to_string(kMaxRange) + " numbers", "more");
    }
    run.heap().work(1);
    out.push_back(Value::of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  const std::string label = "range(" + std::to_string(start) + ", " + std::to_string(stop) +
                            (step == 1 ? ")" : ", " + std::to_string(step) + ")");
  return run.heap().list(std::move(out), ListForm::kRange, *run.heap().name(label));
}

// A dictionary of what dict() and namespace() are given.
DictObject* fields_of(Interpreter& run, const Call& call, std::string_view function) {
  Heap& heap = run.heap();
  DictObject* out = heap.dict();
  if (call.positional.size() > 1) trouble_type(std::string(function) + "() of one dict", "several");
  for (const Value& from : call.positional) {
    if (from.is(Kind::kDict)) {
      for (const auto& [key, value] : from.dict->entries) assign(heap, *out, key, value);
      continue;
    }
    for (const Value& pair : iterate(heap, from)) {
      const std::vector<Value> parts = iterate(heap, pair);
      if (parts.size() != 2) trouble_type("pairs of key and value", "something else");
      assign(heap, *out, parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : call.named) assign(heap, *out, heap.text(name), value);
  return out;
}

Value make_dict(Interpreter& run, const Value&, const Call& call) {
  return Value::of(fields_of(run, call, "dict"));
}

Value make_namespace(Interpreter& run, const Value&, const Call& call) {
  DictObject* fields = fields_of(run, call, "namespace");
  for (const auto& [key, value] : fields->entries) {
    if (key.is(Kind::kString) && key.string->text.bytes().starts_with("_")) {
      trouble_type("fields of a namespace without a leading underscore",
                   std::string(key.string->text.bytes()));
    }
  }
  return Value::name_space(fields);
}

Value raise_exception(Interpreter& run, const Value&, const Call& call) {
  const Bound given(call, "raise_exception", {"message"});
  throw Trouble{"E_TEMPLATE_RAISED",
                "a conversation that the template accepts",
                std::string(str_of(run.heap(), given.need(0)).bytes()),
                {}};
}

Value strftime_now(Interpreter& run, const Value&, const Call& call) {
  const Bound given(call, "strftime_now", {"format"});
  if (!given.need(0).is(Kind::kString)) trouble_type("a format of time", "another value");
  const MarkedText& text = given.need(0).string->text;
  // A time without a zone has no name of one.
  std::string format;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    if (c == '%' && i + 1 < text.size()) {
      const char kind = text.bytes()[++i];
      if (kind == 'z' || kind == 'Z') continue;
      if (kind == 'f') {
        format += "000000";
        continue;
      }
      format += c;
      format += kind;
    } else {
      format += c;
    }
  }
  constexpr std::size_t kMaxTime = 4096;
  if (format.find_first_of("0123456789") != std::string::npos && format.size() > kMaxTime / 8) {
    trouble_limit("a short format of time", "a long one");
  }
  std::vector<char> buffer(kMaxTime);
  const std::tm& now = run.now();
  // A byte in front tells an empty text from one that does not fit.
  const std::size_t size = std::strftime(buffer.data(), kMaxTime, (" " + format).c_str(), &now);
  if (size == 0) trouble_limit("a time of at most 4096 bytes", "more");
  return run.heap().text(std::string_view(buffer.data() + 1, size - 1));
}

Value unsupported_function(Interpreter&, const Value&, const Call&) {
  trouble_unsupported("a function that is known here", "cycler, joiner or lipsum");
}

constexpr std::array kFunctions = {
    FilterRow{"range", make_range},
    FilterRow{"dict", make_dict},
    FilterRow{"namespace", make_namespace},
    FilterRow{"raise_exception", raise_exception},
    FilterRow{"strftime_now", strftime_now},
    FilterRow{"cycler", unsupported_function},
    FilterRow{"joiner", unsupported_function},
    FilterRow{"lipsum", unsupported_function},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto found = std::find_if(kTests.begin(), kTests.end(),
                                  [&](const TestRow& row) { return row.name == name; });
  return found == kTests.end() ? nullptr : found->run;
}

std::span<const FilterRow> global_functions() { return kFunctions; }

}  // namespace tessera::jinja
