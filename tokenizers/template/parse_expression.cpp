#include <algorithm>

#include "tokenizers/template/parser.h"

namespace tessera::jinja {

namespace {

constexpr int kMaxExpressionDepth = 200;

}  // namespace

Parser::Nested::Nested(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ > kMaxExpressionDepth) {
    parser_.source_.fail(parser_.now().at, "E_TEMPLATE_DEPTH",
                         "expressions and statements nested at most " +
                             std::to_string(kMaxExpressionDepth) + " deep",
                         "more");
  }
}

ExprPtr Parser::make(ExprKind kind, std::size_t at) const {
  auto out = std::make_unique<Expr>();
  out->kind = kind;
  out->at = at;
  return out;
}

ExprPtr Parser::done(ExprPtr expr) const {
  const auto count = [&](const ExprPtr& part) {
    if (part) expr->depth = std::max(expr->depth, part->depth + 1);
  };
  for (const ExprPtr& part : expr->parts) count(part);
  for (const ExprPtr& part : expr->call.positional) count(part);
  for (const auto& named : expr->call.named) count(named.second);
  count(expr->call.list);
  count(expr->call.dict);
  if (expr->depth > kMaxExpressionDepth) {
    source_.fail(expr->at, "E_TEMPLATE_DEPTH",
                 "expressions nested at most " + std::to_string(kMaxExpressionDepth) + " deep",
                 "more");
  }
  return expr;
}

ExprPtr Parser::binary(ExprKind kind, const Token& op, ExprPtr left, ExprPtr right) {
  ExprPtr out = make(kind, op.at);
  out->operators.push_back(op.text);
  out->parts.push_back(std::move(left));
  out->parts.push_back(std::move(right));
  return done(std::move(out));
}

ExprPtr Parser::tuple(bool with_conditional, bool in_brackets, std::string_view end_name) {
  ExprPtr out = make(ExprKind::kTuple, now().at);
  bool is_tuple = false;
  const auto ends = [&] {
    return now().kind == TokenKind::kVariableEnd || now().kind == TokenKind::kBlockEnd ||
           now().op(")") || (!end_name.empty() && now().name(end_name));
  };
  for (;;) {
    if (!out->parts.empty()) expect_op(",");
    if (ends()) break;
    out->parts.push_back(expression(with_conditional));
    if (!now().op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!out->parts.empty()) return std::move(out->parts.front());
    if (!in_brackets) fail(now(), "an expression");
  }
  return done(std::move(out));
}

ExprPtr Parser::expression(bool with_conditional) {
  const Nested nested(*this);
  ExprPtr out = or_expression();
  while (with_conditional && now().name("if")) {
    ExprPtr choice = make(ExprKind::kConditional, next().at);
    choice->parts.push_back(std::move(out));
    choice->parts.push_back(or_expression());
    choice->parts.push_back(skip_name("else") ? expression() : nullptr);
    out = done(std::move(choice));
  }
  return out;
}

ExprPtr Parser::or_expression() {
  ExprPtr out = and_expression();
  while (now().name("or")) {
    const Token& op = next();
    out = binary(ExprKind::kOr, op, std::move(out), and_expression());
  }
  return out;
}

ExprPtr Parser::and_expression() {
  ExprPtr out = not_expression();
  while (now().name("and")) {
    const Token& op = next();
    out = binary(ExprKind::kAnd, op, std::move(out), not_expression());
  }
  return out;
}

ExprPtr Parser::not_expression() {
  if (!now().name("not")) return comparison();
  const Nested nested(*this);
  ExprPtr out = make(ExprKind::kNot, next().at);
  out->parts.push_back(not_expression());
  return done(std::move(out));
}

ExprPtr Parser::comparison() {
  ExprPtr first = sum();
  ExprPtr out = make(ExprKind::kCompare, now().at);
  out->parts.push_back(std::move(first));
  for (;;) {
    const Token& token = now();
    std::string op;
    if (token.kind == TokenKind::kOperator &&
        (token.text == "==" || token.text == "!=" || token.text == "<" || token.text == "<=" ||
         token.text == ">" || token.text == ">=")) {
      op = token.text;
      next();
    } else if (skip_name("in")) {
      op = "in";
    } else if (token.name("not") && after().name("in")) {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    out->operators.push_back(std::move(op));
    out->parts.push_back(sum());
  }
  if (out->operators.empty()) return std::move(out->parts.front());
  return done(std::move(out));
}

ExprPtr Parser::sum() {
  ExprPtr out = concatenation();
  while (now().op("+") || now().op("-")) {
    const Token& op = next();
    out = binary(ExprKind::kBinary, op, std::move(out), concatenation());
  }
  return out;
}

ExprPtr Parser::concatenation() {
  ExprPtr first = product();
  if (!now().op("~")) return first;
  ExprPtr out = make(ExprKind::kConcat, now().at);
  out->parts.push_back(std::move(first));
  while (skip_op("~")) out->parts.push_back(product());
  return done(std::move(out));
}

ExprPtr Parser::product() {
  ExprPtr out = power();
  while (now().op("*") || now().op("/") || now().op("//") || now().op("%")) {
    const Token& op = next();
    out = binary(ExprKind::kBinary, op, std::move(out), power());
  }
  return out;
}

ExprPtr Parser::power() {
  ExprPtr out = unary(true);
  while (now().op("**")) {
    const Token& op = next();
    out = binary(ExprKind::kBinary, op, std::move(out), unary(true));
  }
  return out;
}

ExprPtr Parser::unary(bool with_filter) {
  ExprPtr out;
  if (now().op("-") || now().op("+")) {
    const Nested nested(*this);
    const Token& op = next();
    out = make(op.text == "-" ? ExprKind::kNegate : ExprKind::kPlus, op.at);
    out->parts.push_back(unary(false));
    out = done(std::move(out));
  } else {
    out = primary();
  }
  out = postfix(std::move(out));
  return with_filter ? filtered(std::move(out)) : std::move(out);
}

ExprPtr Parser::primary() {
  const Token& token = next();
  ExprPtr out = make(ExprKind::kConst, token.at);
  switch (token.kind) {
    case TokenKind::kName:
      if (token.text == "true" || token.text == "True" || token.text == "false" ||
          token.text == "False") {
        out->value = Value::boolean(token.text == "true" || token.text == "True");
      } else if (token.text == "none" || token.text == "None") {
        out->value = Value::none();
      } else {
        out->kind = ExprKind::kName;
        out->name = token.text;
      }
      return out;
    case TokenKind::kString: {
      std::string text = token.text;
      while (now().kind == TokenKind::kString) text += next().text;
      out->text.text = MarkedText(text, false);
      out->value = Value::of(&out->text);
      return out;
    }
    case TokenKind::kInteger:
      out->value = Value::of(token.integer);
      return out;
    case TokenKind::kFloat:
      out->value = Value::of(token.number);
      return out;
    default:
      break;
  }
  if (token.op("[")) return list();
  if (token.op("{")) return dict();
  if (!token.op("(")) fail(token, "an expression");
  out = tuple(true, true);
  expect_op(")");
  return out;
}

ExprPtr Parser::list() {
  ExprPtr out = make(ExprKind::kList, now().at);
  while (!now().op("]")) {
    if (!out->parts.empty()) expect_op(",");
    if (now().op("]")) break;
    out->parts.push_back(expression());
  }
  expect_op("]");
  return done(std::move(out));
}

ExprPtr Parser::dict() {
  ExprPtr out = make(ExprKind::kDict, now().at);
  while (!now().op("}")) {
    if (!out->parts.empty()) expect_op(",");
    if (now().op("}")) break;
    out->parts.push_back(expression());
    expect_op(":");
    out->parts.push_back(expression());
  }
  expect_op("}");
  return done(std::move(out));
}

ExprPtr Parser::postfix(ExprPtr of) {
  for (;;) {
    if (now().op(".") || now().op("[")) {
      of = subscript(std::move(of));
    } else if (now().op("(")) {
      of = call(std::move(of));
    } else {
      return of;
    }
  }
}

ExprPtr Parser::filtered(ExprPtr of) {
  for (;;) {
    if (now().op("|")) {
      of = filters(std::move(of), false);
    } else if (now().name("is")) {
      of = test(std::move(of));
    } else if (now().op("(")) {
      of = call(std::move(of));
    } else {
      return of;
    }
  }
}

ExprPtr Parser::filters(ExprPtr of, bool begins_inline) {
  while (begins_inline || skip_op("|")) {
    begins_inline = false;
    ExprPtr out = make(ExprKind::kFilter, now().at);
    out->name = expect_name();
    while (skip_op(".")) out->name += "." + expect_name();
    out->parts.push_back(std::move(of));
    if (now().op("(")) out->call = call_arguments();
    of = done(std::move(out));
  }
  return of;
}

ExprPtr Parser::test(ExprPtr of) {
  const std::size_t at = next().at;
  const bool negated = skip_name("not");
  ExprPtr out = make(ExprKind::kTest, at);
  out->name = expect_name();
  while (skip_op(".")) out->name += "." + expect_name();
  out->parts.push_back(std::move(of));
  const Token& token = now();
  const bool value = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                     token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat ||
                     token.op("[") || token.op("{");
  if (token.op("(")) {
    out->call = call_arguments();
  } else if (value && !token.name("else") && !token.name("or") && !token.name("and")) {
    if (token.name("is")) fail(token, "no second test");
    out->call.positional.push_back(postfix(primary()));
  }
  out = done(std::move(out));
  if (!negated) return out;
  ExprPtr negation = make(ExprKind::kNot, at);
  negation->parts.push_back(std::move(out));
  return done(std::move(negation));
}

ExprPtr Parser::call(ExprPtr of) {
  ExprPtr out = make(ExprKind::kCall, now().at);
  out->parts.push_back(std::move(of));
  out->call = call_arguments();
  return done(std::move(out));
}

CallArguments Parser::call_arguments() {
  CallArguments out;
  expect_op("(");
  for (bool first = true; !now().op(")"); first = false) {
    if (!first) expect_op(",");
    if (now().op(")")) break;
    const Token& token = now();
    if (token.op("*") && !out.list && !out.dict) {
      next();
      out.list = expression();
    } else if (token.op("**") && !out.dict) {
      next();
      out.dict = expression();
    } else if (token.kind == TokenKind::kName && after().op("=") && !out.dict) {
      next();
      next();
      out.named.emplace_back(token.text, expression());
    } else if (out.list || out.dict || !out.named.empty()) {
      fail(token, "an argument in its place");
    } else {
      out.positional.push_back(expression());
    }
  }
  expect_op(")");
  return out;
}

ExprPtr Parser::subscript(ExprPtr of) {
  const Token& token = next();
  ExprPtr out = make(ExprKind::kItem, token.at);
  out->parts.push_back(std::move(of));
  if (token.op(".")) {
    const Token& name = next();
    if (name.kind == TokenKind::kName) {
      out->kind = ExprKind::kAttribute;
      out->name = name.text;
    } else if (name.kind == TokenKind::kInteger) {
      out->parts.push_back(make(ExprKind::kConst, name.at));
      out->parts.back()->value = Value::of(name.integer);
    } else {
      fail(name, "a name or a number");
    }
    return done(std::move(out));
  }
  ExprPtr first = now().op(":") ? nullptr : expression();
  if (now().op(":")) {
    out->kind = ExprKind::kSlice;
    out->parts.push_back(std::move(first));
    next();
    out->parts.push_back(slice_part("]"));
    out->parts.push_back(skip_op(":") ? slice_part("]") : nullptr);
  } else if (now().op(",")) {
    ExprPtr key = make(ExprKind::kTuple, token.at);
    key->parts.push_back(std::move(first));
    while (skip_op(",")) key->parts.push_back(expression());
    out->parts.push_back(done(std::move(key)));
  } else {
    out->parts.push_back(std::move(first));
  }
  expect_op("]");
  return done(std::move(out));
}

ExprPtr Parser::slice_part(std::string_view end) {
  return now().op(":") || now().op(end) ? nullptr : expression();
}

}  // namespace tessera::jinja
