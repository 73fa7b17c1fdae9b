#include <algorithm>

#include "tokenizers/template/parser.h"

namespace tessera::jinja {

bool Parser::skip_name(std::string_view name) {
  if (!now().name(name)) return false;
  next();
  return true;
}

bool Parser::skip_op(std::string_view op) {
  if (!now().op(op)) return false;
  next();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail(now(), "'" + std::string(op) + "'");
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (now().kind != kind) fail(now(), std::string(what));
  next();
}

std::string Parser::expect_name() {
  if (now().kind != TokenKind::kName) fail(now(), "a name");
  return next().text;
}

std::string Parser::shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return "'" + token.text + "'";
    case TokenKind::kEnd:
      return "the end of the template";
  }
  return {};
}

void Parser::fail(const Token& token, std::string expected) const {
  source_.fail(token.at, "E_TEMPLATE_SYNTAX", std::move(expected), shown(token));
}

Body Parser::body(std::initializer_list<std::string_view> ends) {
  const Nested nested(*this);
  Body out;
  for (;;) {
    const Token& token = next();
    switch (token.kind) {
      case TokenKind::kData: {
        Stmt& text = out.emplace_back();
        text.at = token.at;
        text.text = MarkedText(token.text, false);
        break;
      }
      case TokenKind::kVariableBegin: {
        Stmt& print = out.emplace_back();
        print.kind = StmtKind::kPrint;
        print.at = now().at;
        print.expr = tuple(true, false);
        expect(TokenKind::kVariableEnd, "'}}'");
        break;
      }
      case TokenKind::kBlockBegin:
        if (now().kind == TokenKind::kName &&
            std::find(ends.begin(), ends.end(), now().text) != ends.end()) {
          return out;
        }
        out.push_back(statement());
        expect(TokenKind::kBlockEnd, "'%}'");
        break;
      default:
        if (ends.size() > 0) fail(token, "'" + std::string(*(ends.end() - 1)) + "'");
        return out;
    }
  }
}

// The body of a tag whose first part was read.
Body Parser::tag_body(std::initializer_list<std::string_view> ends) {
  skip_op(":");
  expect(TokenKind::kBlockEnd, "'%}'");
  return body(ends);
}

Body Parser::closed_body(std::string_view end) {
  Body out = tag_body({end});
  next();
  return out;
}

Stmt Parser::statement() {
  Stmt out;
  out.at = now().at;
  const Token& token = next();
  if (token.kind != TokenKind::kName) fail(token, "the name of a tag");
  const std::string& name = token.text;
  if (name == "if") return if_statement(std::move(out));
  if (name == "for") return for_statement(std::move(out));
  if (name == "set") return set_statement(std::move(out));
  if (name == "macro") return macro_statement(std::move(out));
  if (name == "call") return call_statement(std::move(out));
  if (name == "with") return with_statement(std::move(out));
  if (name == "break" || name == "continue") {
    out.kind = name == "break" ? StmtKind::kBreak : StmtKind::kContinue;
    return out;
  }
  if (name == "generation") {
    out.kind = StmtKind::kGeneration;
    out.macro = std::make_unique<MacroNode>();
    out.macro->body = closed_body("endgeneration");
    return out;
  }
  if (name == "filter") {
    out.kind = StmtKind::kFilterBlock;
    out.expr = filters(nullptr, true);
    out.branches.emplace_back().body = closed_body("endfilter");
    return out;
  }
  for (const std::string_view known :
       {"include", "import", "from", "extends", "block", "autoescape", "print", "do", "trans"}) {
    if (name != known) continue;
    source_.fail(token.at, "E_TEMPLATE_UNSUPPORTED", "a tag of chat templates", "'" + name + "'");
  }
  fail(token, "a tag that is known here");
}

Stmt Parser::if_statement(Stmt out) {
  out.kind = StmtKind::kIf;
  for (;;) {
    Branch& branch = out.branches.emplace_back();
    branch.test = tuple(false, false);
    branch.body = tag_body({"elif", "else", "endif"});
    const std::string end = next().text;
    if (end == "elif") continue;
    if (end == "else") out.branches.emplace_back().body = closed_body("endif");
    return out;
  }
}

Stmt Parser::for_statement(Stmt out) {
  out.kind = StmtKind::kFor;
  out.target = target(false);
  if (!skip_name("in")) fail(now(), "'in'");
  out.expr = tuple(false, false, "recursive");
  if (skip_name("if")) out.test = expression();
  if (now().name("recursive")) {
    source_.fail(now().at, "E_TEMPLATE_UNSUPPORTED", "a loop that does not call itself",
                 "'recursive'");
  }
  out.branches.emplace_back().body = tag_body({"endfor", "else"});
  const bool otherwise = next().text == "else";
  out.branches.emplace_back();
  if (otherwise) out.branches[1].body = closed_body("endfor");
  return out;
}

Stmt Parser::set_statement(Stmt out) {
  out.target = target(true);
  if (skip_op("=")) {
    out.kind = StmtKind::kSet;
    out.expr = tuple(true, false);
    return out;
  }
  out.kind = StmtKind::kBlockSet;
  if (now().op("|")) out.expr = filters(nullptr, false);
  out.branches.emplace_back().body = closed_body("endset");
  return out;
}

void Parser::signature(MacroNode& macro) {
  expect_op("(");
  while (!now().op(")")) {
    if (!macro.arguments.empty()) expect_op(",");
    const Token& name = now();
    macro.arguments.push_back(expect_name());
    if (skip_op("=")) {
      macro.defaults.push_back(expression());
    } else if (!macro.defaults.empty()) {
      fail(name, "an argument with a default");
    }
  }
  expect_op(")");
}

// Whether the tokens from `begin` on name what a macro is given only if it reads it.
void Parser::note_reads(MacroNode& macro, std::size_t begin) const {
  for (std::size_t i = begin; i < at_; ++i) {
    const Token& token = tokens_[i];
    if (token.kind != TokenKind::kName || (i > 0 && tokens_[i - 1].op("."))) continue;
    macro.reads_caller |= token.text == "caller";
    macro.reads_varargs |= token.text == "varargs";
    macro.reads_kwargs |= token.text == "kwargs";
  }
}

Stmt Parser::macro_statement(Stmt out) {
  out.kind = StmtKind::kMacro;
  out.macro = std::make_unique<MacroNode>();
  out.macro->name = expect_name();
  signature(*out.macro);
  const std::size_t begin = at_;
  out.macro->body = closed_body("endmacro");
  note_reads(*out.macro, begin);
  return out;
}

Stmt Parser::call_statement(Stmt out) {
  out.kind = StmtKind::kCallBlock;
  out.macro = std::make_unique<MacroNode>();
  out.macro->name = "caller";
  if (now().op("(")) signature(*out.macro);
  const Token& called = now();
  out.expr = expression();
  if (out.expr->kind != ExprKind::kCall) fail(called, "a call");
  const std::size_t begin = at_;
  out.macro->body = closed_body("endcall");
  note_reads(*out.macro, begin);
  return out;
}

Stmt Parser::with_statement(Stmt out) {
  out.kind = StmtKind::kWith;
  while (now().kind != TokenKind::kBlockEnd) {
    if (!out.with.empty()) expect_op(",");
    Target name = target(false);
    expect_op("=");
    out.with.emplace_back(std::move(name), expression());
  }
  out.branches.emplace_back().body = closed_body("endwith");
  return out;
}

Target Parser::one_target(bool with_field) {
  const Nested nested(*this);
  Target out;
  if (skip_op("(")) {
    out = target(with_field);
    expect_op(")");
    return out;
  }
  const Token& token = now();
  out.name = expect_name();
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (out.name == constant) fail(token, "a name to assign to");
  }
  if (with_field && skip_op(".")) out.field = expect_name();
  return out;
}

Target Parser::target(bool with_field) {
  Target first = one_target(with_field);
  if (!now().op(",")) return first;
  Target out;
  out.items.push_back(std::move(first));
  while (skip_op(",")) {
    if (now().name("in") || now().op("=") || now().op(")")) break;
    out.items.push_back(one_target(with_field));
  }
  return out;
}

Program parse_program(Source source) {
  Program out;
  out.source = std::move(source);
  out.body = Parser(out.source, tokenize(out.source)).body({});
  return out;
}

}  // namespace tessera::jinja
