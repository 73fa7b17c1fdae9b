// A parsed template: statements that hold expressions. Depth is bounded while parsing, so that
// walking needs no more checks of its own.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizers/template/lexer.h"
#include "tokenizers/template/value.h"

namespace tessera::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr list, dict;  // *list, **dict
};

enum class ExprKind : std::uint8_t {
  kConst,        // value; a string in `text`
  kName,         // name
  kList,         // parts
  kTuple,        // parts
  kDict,         // parts: key, value, key, value
  kConditional,  // parts: value, test, other value or null
  kOr,           // parts: two
  kAnd,
  kNot,
  kCompare,  // parts; operators between them
  kBinary,   // operators[0]
  kConcat,   // parts
  kNegate,
  kPlus,
  kAttribute,  // parts[0].name
  kItem,       // parts[0][parts[1]]
  kSlice,      // parts[0][parts[1]:parts[2]:parts[3]], absent ones null
  kCall,       // parts[0](call)
  kFilter,     // parts[0] | name(call); of a filter block parts[0] is null
  kTest,       // parts[0] is name(call)
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  std::size_t at = 0;  // byte in the source
  int depth = 1;
  std::string name;
  std::vector<std::string> operators;
  std::vector<ExprPtr> parts;
  CallArguments call;
  Value value;
  StringObject text;
};

// What an assignment writes to: a name, a field of a namespace, or several.
struct Target {
  std::string name, field;
  std::vector<Target> items;
};

struct Stmt;
using Body = std::vector<Stmt>;

struct MacroNode {
  std::string name;
  std::vector<std::string> arguments;
  std::vector<ExprPtr> defaults;  // of the last arguments
  Body body;
  bool reads_caller = false, reads_varargs = false, reads_kwargs = false;
};

enum class StmtKind : std::uint8_t {
  kText,         // text
  kPrint,        // expr
  kIf,           // branches; one without a test is the last
  kFor,          // target in expr if test: branches[0], else branches[1]
  kSet,          // target = expr
  kBlockSet,     // target = body, through the filters of expr, if any
  kMacro,        // macro
  kCallBlock,    // expr is a call; macro is its body
  kFilterBlock,  // body through the filters of expr
  kGeneration,   // macro: the answer of an assistant
  kWith,         // names = values: branches[0]
  kBreak,
  kContinue,
};

struct Branch {
  ExprPtr test;
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  std::size_t at = 0;
  MarkedText text;
  ExprPtr expr, test;
  Target target;
  std::vector<Branch> branches;
  std::unique_ptr<MacroNode> macro;
  std::vector<std::pair<Target, ExprPtr>> with;
  bool recursive = false;
};

struct Program {
  Source source;
  Body body;
};

// Error kModel: E_TEMPLATE_SYNTAX, E_TEMPLATE_DEPTH, E_TEMPLATE_UNSUPPORTED for what chat templates
// have no use for (include, import, extends).
Program parse_program(Source source);

}  // namespace tessera::jinja
