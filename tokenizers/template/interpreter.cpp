// Statements, macros and calls.
#include "tokenizers/template/interpreter.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera::jinja {

namespace {

template <typename Row>
const Row* row_named(std::span<const Row> rows, std::string_view name) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

Bound::Bound(const Call& call, std::string_view function,
             std::initializer_list<std::string_view> names)
    : function_(function), values_(names.size(), nullptr) {
  if (call.positional.size() > names.size()) {
    trouble_type(
        std::string(function) + "() with at most " + std::to_string(names.size()) + " arguments",
        std::to_string(call.positional.size()));
  }
  for (std::size_t i = 0; i < call.positional.size(); ++i) values_[i] = &call.positional[i];
  for (const auto& [name, value] : call.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    const auto index = to_size(found - names.begin());
    if (found == names.end() || values_[index] != nullptr) {
      trouble_type("arguments of " + std::string(function) + "()",
                   "'" + std::string(name) + "', unknown or given twice");
    }
    values_[index] = &value;
  }
}

const Value& Bound::need(std::size_t index) const {
  if (values_[index] == nullptr) {
    trouble_type(
        std::string(function_) + "() with at least " + std::to_string(index + 1) + " arguments",
        "fewer");
  }
  return *values_[index];
}

bool Bound::truth(std::size_t index, bool fallback) const {
  return values_[index] == nullptr ? fallback : truthy(*values_[index]);
}

std::int64_t Bound::integer(std::size_t index, std::int64_t fallback) const {
  const Value* value = values_[index];
  if (value == nullptr) return fallback;
  if (value->is(Kind::kUndefined)) trouble_undefined(*value);
  if (!value->is(Kind::kInt) && !value->is(Kind::kBool)) {
    trouble_type("a whole number in " + std::string(function_) + "()",
                 std::string(type_name(*value)));
  }
  return as_integer(*value);
}

Interpreter::Interpreter(const Program& program, const TemplateLimits& limits, const std::tm& now)
    : program_(program), limits_(limits), now_(now), heap_(limits.max_steps, limits.max_bytes) {}

Interpreter::Nested::Nested(Interpreter& interpreter) : interpreter_(interpreter) {
  if (++interpreter_.depth_ > interpreter_.limits_.max_depth) {
    --interpreter_.depth_;
    trouble_limit("macros and expressions at most " +
                      std::to_string(interpreter_.limits_.max_depth) + " deep",
                  "more");
  }
}

Scope* Interpreter::make_scope(Scope* parent) {
  heap_.take(sizeof(Scope));
  return &scopes_.emplace_back(Scope{parent, {}, false});
}

MarkedText Interpreter::run(std::vector<std::pair<std::string_view, Value>> variables) {
  try {
    Scope* root = make_scope(nullptr);
    root->names = std::move(variables);
    MarkedText out;
    if (run_body(program_.body, make_scope(root), out) != Flow::kNext) {
      trouble_type("break and continue within a loop", "one without");
    }
    if (out.size() > limits_.max_output_bytes) {
      trouble_limit("a prompt of at most " + std::to_string(limits_.max_output_bytes) + " bytes",
                    std::to_string(out.size()));
    }
    return out;
  } catch (Trouble& trouble) {
    const bool raised = std::string_view(trouble.code) == "E_TEMPLATE_RAISED";
    throw Error({.kind = raised ? ErrorKind::kUsage : ErrorKind::kModel,
                 .code = trouble.code,
                 .file = program_.source.file,
                 .where = program_.source.place(at_),
                 .expected = std::move(trouble.expected),
                 .found = std::move(trouble.found),
                 .hint = std::move(trouble.hint)});
  }
}

Interpreter::Flow Interpreter::run_body(const Body& body, Scope* scope, MarkedText& out) {
  for (const Stmt& stmt : body) {
    const Flow flow = run_statement(stmt, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& stmt, Scope* scope, MarkedText& out) {
  const Nested nested(*this);
  heap_.work(1);
  at_ = stmt.at;
  switch (stmt.kind) {
    case StmtKind::kText:
      heap_.take(stmt.text.size());
      out.append(stmt.text);
      break;
    case StmtKind::kPrint:
      append_str(heap_, out, evaluate(*stmt.expr, scope));
      break;
    case StmtKind::kIf:
      return run_if(stmt, scope, out);
    case StmtKind::kFor:
      return run_for(stmt, scope, out);
    case StmtKind::kSet:
      store(stmt.target, evaluate(*stmt.expr, scope), scope, scope);
      break;
    case StmtKind::kBlockSet: {
      const Value text = heap_.text(captured_body(stmt.branches[0].body, scope));
      store(stmt.target, stmt.expr ? through_filters(*stmt.expr, text, scope) : text, scope, scope);
      break;
    }
    case StmtKind::kMacro:
      define(stmt.macro->name, macro_object(*stmt.macro, scope), scope);
      break;
    case StmtKind::kCallBlock:
      run_call_block(stmt, scope, out);
      break;
    case StmtKind::kFilterBlock: {
      const Value text = heap_.text(captured_body(stmt.branches[0].body, scope));
      append_str(heap_, out, through_filters(*stmt.expr, text, scope));
      break;
    }
    case StmtKind::kGeneration:
      out.append(captured_body(stmt.macro->body, scope));
      break;
    case StmtKind::kWith: {
      Scope* inner = make_scope(scope);
      for (const auto& [target, value] : stmt.with) {
        store(target, evaluate(*value, scope), scope, inner);
      }
      return run_body(stmt.branches[0].body, inner, out);
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt, Scope* scope, MarkedText& out) {
  for (const Branch& branch : stmt.branches) {
    if (branch.test && !truthy(evaluate(*branch.test, scope))) continue;
    return run_body(branch.body, scope, out);
  }
  return Flow::kNext;
}

std::vector<Value> Interpreter::loop_items(const Stmt& stmt, Scope* scope) {
  std::vector<Value> items = iterate(heap_, evaluate(*stmt.expr, scope));
  if (!stmt.test) return items;
  std::vector<Value> kept;
  Scope* inner = make_scope(scope);
  for (const Value& item : items) {
    inner->names.clear();
    store(stmt.target, item, scope, inner);
    if (truthy(evaluate(*stmt.test, inner))) kept.push_back(item);
  }
  return kept;
}

Interpreter::Flow Interpreter::run_for(const Stmt& stmt, Scope* scope, MarkedText& out) {
  static const std::string_view kLoop = "loop";
  const Value items = heap_.list(loop_items(stmt, scope));
  if (items.list->items.empty()) return run_body(stmt.branches[1].body, scope, out);
  LoopObject* loop = heap_.loop();
  loop->over = items.list;
  Scope* inner = make_scope(scope);
  for (std::size_t i = 0; i < items.list->items.size(); ++i) {
    heap_.work(1);
    loop->index0 = to_index(i);
    // A macro of an earlier turn keeps the names it saw.
    if (inner->captured) inner = make_scope(scope);
    inner->names.clear();
    inner->names.emplace_back(kLoop, Value::of(loop));
    store(stmt.target, items.list->items[i], scope, inner);
    if (run_body(stmt.branches[0].body, inner, out) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void Interpreter::store(const Target& target, const Value& value, Scope* scope, Scope* names) {
  if (!target.items.empty()) {
    const std::vector<Value> parts = iterate(heap_, value);
    if (parts.size() != target.items.size()) {
      trouble_type(std::to_string(target.items.size()) + " values to assign",
                   std::to_string(parts.size()));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) store(target.items[i], parts[i], scope, names);
    return;
  }
  if (!target.field.empty()) {
    Expr name;
    name.name = target.name;
    const Value object = look_up(name, scope);
    if (!object.is(Kind::kNamespace) || target.field[0] == '_') {
      trouble_type("a field of a namespace to assign to", target.name + "." + target.field);
    }
    return assign(heap_, *object.dict, heap_.text(target.field), value);
  }
  define(target.name, value, names);
}

void Interpreter::define(const std::string& name, const Value& value, Scope* scope) {
  heap_.work(scope->names.size() / 8);
  for (auto& [known, old] : scope->names) {
    if (known != name) continue;
    old = value;
    return;
  }
  heap_.take(sizeof(std::pair<std::string_view, Value>));
  scope->names.emplace_back(name, value);
}

MarkedText Interpreter::captured_body(const Body& body, Scope* parent) {
  MarkedText out;
  run_body(body, make_scope(parent), out);
  heap_.take(out.size());
  return out;
}

Value Interpreter::macro_object(const MacroNode& macro, Scope* scope) {
  for (Scope* at = scope; at != nullptr && !at->captured; at = at->parent) at->captured = true;
  return Value::of(heap_.callable(
      {.kind = CallableObject::Kind::kMacro, .macro = &macro, .scope = scope, .name = macro.name}));
}

void Interpreter::run_call_block(const Stmt& stmt, Scope* scope, MarkedText& out) {
  const Value callee = evaluate(*stmt.expr->parts[0], scope);
  Call call = arguments(stmt.expr->call, scope);
  call.named.emplace_back("caller", macro_object(*stmt.macro, scope));
  append_str(heap_, out, this->call(callee, call));
}

Value Interpreter::call(const Value& callee, const Call& call) {
  if (callee.is(Kind::kUndefined)) trouble_undefined(callee);
  if (!callee.is(Kind::kCallable)) {
    trouble_type("a function to call", std::string(type_name(callee)));
  }
  const CallableObject& object = *callee.callable;
  switch (object.kind) {
    case CallableObject::Kind::kMacro:
      return call_macro(object, call);
    case CallableObject::Kind::kMethod:
      return call_method(object, call);
    default:
      return row_named(global_functions(), object.name)->run(*this, Value::none(), call);
  }
}

void Interpreter::bind_macro(const MacroNode& macro, const Call& call, Scope* scope) {
  std::vector<bool> used(call.named.size());
  const auto named = [&](std::string_view name) -> const Value* {
    for (std::size_t i = 0; i < call.named.size(); ++i) {
      if (used[i] || call.named[i].first != name) continue;
      used[i] = true;
      return &call.named[i].second;
    }
    return nullptr;
  };
  const std::size_t count = macro.arguments.size(), first_default = count - macro.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = macro.arguments[i];
    const Value* given = i < call.positional.size() ? &call.positional[i] : named(name);
    Value value = Value::undefined(&name);
    if (given != nullptr)
      value = *given;
    else if (i >= first_default)
      value = evaluate(*macro.defaults[i - first_default], scope);
    scope->names.emplace_back(name, value);
  }
  if (macro.reads_caller) {
    const Value* caller = named("caller");
    if (caller != nullptr) scope->names.emplace_back("caller", *caller);
  }
  DictObject* rest = macro.reads_kwargs ? heap_.dict() : nullptr;
  for (std::size_t i = 0; i < call.named.size(); ++i) {
    if (used[i]) continue;
    if (rest == nullptr) {
      trouble_type("the arguments of macro " + macro.name,
                   "'" + std::string(call.named[i].first) + "'");
    }
    assign(heap_, *rest, heap_.text(call.named[i].first), call.named[i].second);
  }
  if (rest != nullptr) scope->names.emplace_back("kwargs", Value::of(rest));
  const std::size_t taken = std::min(count, call.positional.size());
  if (macro.reads_varargs) {
    std::vector<Value> more(call.positional.begin() + to_index(taken), call.positional.end());
    scope->names.emplace_back("varargs", heap_.list(std::move(more), ListForm::kTuple));
  } else if (taken < call.positional.size()) {
    trouble_type("macro " + macro.name + " with at most " + std::to_string(count) + " arguments",
                 std::to_string(call.positional.size()));
  }
}

Value Interpreter::call_macro(const CallableObject& object, const Call& call) {
  const Nested nested(*this);
  Scope* scope = make_scope(object.scope);
  heap_.take(sizeof(std::pair<std::string_view, Value>) * (object.macro->arguments.size() + 3));
  bind_macro(*object.macro, call, scope);
  MarkedText out;
  run_body(object.macro->body, scope, out);
  return heap_.text(std::move(out));
}

Value Interpreter::filter(std::string_view name, const Value& input, const Call& call) {
  heap_.work(1);
  const FilterRow* row = row_named(text_filters(), name);
  if (row == nullptr) row = row_named(list_filters(), name);
  if (row == nullptr) trouble_type("a filter that Jinja has", "'" + std::string(name) + "'");
  if (row->run == nullptr) {
    trouble_unsupported("a filter that is built here", "'" + std::string(name) + "'");
  }
  return row->run(*this, input, call);
}

bool Interpreter::test(std::string_view name, const Value& input, const Call& call) {
  heap_.work(1);
  const TestFunction function = find_test(name);
  if (function == nullptr) trouble_type("a test that Jinja has", "'" + std::string(name) + "'");
  return function(*this, input, call);
}

}  // namespace tessera::jinja
