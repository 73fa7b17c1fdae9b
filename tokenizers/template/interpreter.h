// Runs a parsed template. Names live in scopes as in Jinja: loops, macros and blocks of their own
// have one, branches have none. What a macro reads is looked up where it was defined.
#pragma once

#include <ctime>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/template/program.h"
#include "tokenizers/template/template.h"
#include "tokenizers/template/value.h"

namespace tessera::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;
  bool captured = false;  // a macro was defined in it
};

struct Call {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// Arguments of a function by the names of its parameters; null where none was given.
class Bound {
 public:
  // Trouble for too many arguments, unknown names and names given twice.
  Bound(const Call& call, std::string_view function, std::initializer_list<std::string_view> names);
  const Value* operator[](std::size_t index) const { return values_[index]; }
  // Trouble if it was not given.
  const Value& need(std::size_t index) const;
  bool truth(std::size_t index, bool fallback) const;
  std::int64_t integer(std::size_t index, std::int64_t fallback) const;

 private:
  std::string_view function_;
  std::vector<const Value*> values_;
};

class Interpreter {
 public:
  Interpreter(const Program& program, const TemplateLimits& limits, const std::tm& now);

  Heap& heap() { return heap_; }
  // Error as template.h says.
  MarkedText run(std::vector<std::pair<std::string_view, Value>> variables);

  // object.name and object[key], as Jinja's environment finds them.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  Value call(const Value& callee, const Call& call);
  Value filter(std::string_view name, const Value& input, const Call& call);
  bool test(std::string_view name, const Value& input, const Call& call);
  const std::tm& now() const { return now_; }
  Value undefined(std::string_view name) { return Value::undefined(heap_.name(name)); }

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

  // Statements.
  Flow run_body(const Body& body, Scope* scope, MarkedText& out);
  Flow run_statement(const Stmt& stmt, Scope* scope, MarkedText& out);
  Flow run_if(const Stmt& stmt, Scope* scope, MarkedText& out);
  Flow run_for(const Stmt& stmt, Scope* scope, MarkedText& out);
  std::vector<Value> loop_items(const Stmt& stmt, Scope* scope);
  void run_call_block(const Stmt& stmt, Scope* scope, MarkedText& out);
  void store(const Target& target, const Value& value, Scope* scope, Scope* names);
  // `name` is the template's: it lives as long as the program.
  void define(const std::string& name, const Value& value, Scope* scope);
  MarkedText captured_body(const Body& body, Scope* parent);
  Value macro_object(const MacroNode& macro, Scope* scope);

  // Expressions.
  Value evaluate(const Expr& expr, Scope* scope);
  Value evaluate_compound(const Expr& expr, Scope* scope);
  Value evaluate_compare(const Expr& expr, Scope* scope);
  Value evaluate_dict(const Expr& expr, Scope* scope);
  Value evaluate_concat(const Expr& expr, Scope* scope);
  Value evaluate_slice(const Expr& expr, Scope* scope);
  Value through_filters(const Expr& expr, const Value& input, Scope* scope);
  Value look_up(const Expr& name, Scope* scope);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& parts, Scope* scope);
  Call arguments(const CallArguments& call, Scope* scope);

  Value call_macro(const CallableObject& macro, const Call& call);
  void bind_macro(const MacroNode& macro, const Call& call, Scope* scope);
  Value call_method(const CallableObject& method, const Call& call);
  Value loop_attribute(const LoopObject& loop, std::string_view name);
  Scope* make_scope(Scope* parent);

  // Counts how deep the interpreter stands.
  class Nested {
   public:
    explicit Nested(Interpreter& interpreter);
    ~Nested() { --interpreter_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Interpreter& interpreter_;
  };

  const Program& program_;
  TemplateLimits limits_;
  std::tm now_;
  Heap heap_;
  std::deque<Scope> scopes_;
  std::size_t at_ = 0;  // byte of the source, for messages
  int depth_ = 0;
};

// What a filter, a test or a function does, by name; null for a name that is not known.
using FilterFunction = Value (*)(Interpreter&, const Value& input, const Call&);
using TestFunction = bool (*)(Interpreter&, const Value& input, const Call&);
using MethodFunction = Value (*)(Interpreter&, const Value& self, const Call&);
struct FilterRow {
  std::string_view name;
  FilterFunction run;  // null for one of Jinja that is not built here
};
struct MethodRow {
  std::string_view name;
  MethodFunction run;  // null for one of Python that is not built here
};
std::span<const FilterRow> text_filters();
std::span<const FilterRow> list_filters();
TestFunction find_test(std::string_view name);
// Null for a name that Python's str does not have.
const MethodRow* string_method(std::string_view name);
const MethodRow* string_case_method(std::string_view name);
// Functions that templates call: range, dict, namespace, raise_exception, strftime_now.
std::span<const FilterRow> global_functions();

// left op right, Python's. "+ - * / // % **"
Value binary_operation(Interpreter& run, std::string_view op, const Value& left,
                       const Value& right);
// format % values, and format.format(...)
Value format_percent(Interpreter& run, const StringObject& format, const Value& values);
Value format_braces(Interpreter& run, const StringObject& format, const Call& call);
// text[start:stop:step] of strings and lists; absent parts are null.
Value slice_value(Interpreter& run, const Value& object, const Value* start, const Value* stop,
                  const Value* step);
MarkedText escape_html(Heap& heap, const MarkedText& text);
MarkedText change_case(Heap& heap, const MarkedText& text, bool upper);

}  // namespace tessera::jinja
