// Recursive descent over tokens: expressions in parse_expression.cpp, statements in
// parse_statement.cpp.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "tokenizers/template/program.h"

namespace tessera::jinja {

class Parser {
 public:
  Parser(const Source& source, std::vector<Token> tokens)
      : source_(source), tokens_(std::move(tokens)) {}

  // Up to a block tag that begins with one of `ends`, which is left as the current token; without
  // ends the whole template.
  Body body(std::initializer_list<std::string_view> ends);

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  void expect_op(std::string_view op);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name();
  [[noreturn]] void fail(const Token& token, std::string expected) const;
  static std::string shown(const Token& token);

  // Statements.
  Stmt statement();
  Stmt if_statement(Stmt out);
  Stmt for_statement(Stmt out);
  Stmt set_statement(Stmt out);
  Stmt macro_statement(Stmt out);
  Stmt call_statement(Stmt out);
  Stmt with_statement(Stmt out);
  Body tag_body(std::initializer_list<std::string_view> ends);
  Body closed_body(std::string_view end);
  void signature(MacroNode& macro);
  void note_reads(MacroNode& macro, std::size_t begin) const;
  Target target(bool with_field);
  Target one_target(bool with_field);

  // Expressions, from the loosest to the tightest.
  ExprPtr tuple(bool with_conditional, bool in_brackets, std::string_view end_name = {});
  ExprPtr expression(bool with_conditional = true);
  ExprPtr or_expression();
  ExprPtr and_expression();
  ExprPtr not_expression();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter);
  ExprPtr primary();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr of);
  ExprPtr filtered(ExprPtr of);
  ExprPtr filters(ExprPtr of, bool begins_inline);
  ExprPtr test(ExprPtr of);
  ExprPtr call(ExprPtr of);
  ExprPtr subscript(ExprPtr of);
  ExprPtr slice_part(std::string_view end);
  CallArguments call_arguments();

  ExprPtr make(ExprKind kind, std::size_t at) const;
  // Sets the depth from the parts.
  ExprPtr done(ExprPtr expr) const;
  ExprPtr binary(ExprKind kind, const Token& op, ExprPtr left, ExprPtr right);

  // Counts how deep the parser stands.
  class Nested {
   public:
    explicit Nested(Parser& parser);
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  const Source& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace tessera::jinja
