// The parsed template: statements and expressions as plain data, read-only after parsing. Text of
// nodes points into the template's heap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template/heap.h"
#include "chat_template/ops.h"
#include "chat_template/value.h"

namespace sluice::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : std::uint8_t {
  kConst,
  kName,
  kNamespaceRef,  // ns.attr as a target of set
  kTuple,         // children: items
  kList,          // children: items
  kDict,          // children: key, value, key, value, ...
  kConditional,   // children: test, then, else (may be null)
  kAnd,           // children: left, right
  kOr,
  kNot,
  kNegate,
  kPlus,
  kArithmetic,
  kConcat,   // children: parts
  kCompare,  // children: first operand, then one per comparison
  kGetattr,  // children: object; name
  kGetitem,  // children: object, index
  kSlice,    // children: object, start, stop, step (each may be null)
  kCall,     // children: callee; arguments
  kFilter,   // children: value (null in filter blocks); name, arguments
  kTest,     // children: value; name, arguments
};

enum class Comparison : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::string_view> names;
  std::vector<ExprPtr> named;
  ExprPtr extra_positional;  // *args
  ExprPtr extra_named;       // **kwargs
};

struct Builtin;

struct Expr {
  ExprKind kind;
  int line = 0;
  int depth = 1;  // of the tree below, itself included
  Arithmetic op = Arithmetic::kAdd;
  int symbol = -1;  // kName and kNamespaceRef
  Value constant;
  std::string_view name;
  std::vector<ExprPtr> children;
  std::vector<Comparison> comparisons;
  std::unique_ptr<Arguments> arguments;
  const Builtin* builtin = nullptr;  // kFilter and kTest; null: unknown, an error when reached
};

template <class Function>
void for_each_child(const Expr& expr, Function function) {
  for (const ExprPtr& child : expr.children) {
    if (child) function(*child);
  }
  if (!expr.arguments) return;
  for (const ExprPtr& e : expr.arguments->positional) function(*e);
  for (const ExprPtr& e : expr.arguments->named) function(*e);
  if (expr.arguments->extra_positional) function(*expr.arguments->extra_positional);
  if (expr.arguments->extra_named) function(*expr.arguments->extra_named);
}

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Block = std::vector<StmtPtr>;

enum class StmtKind : std::uint8_t {
  kData,         // text
  kOutput,       // expressions: what is printed
  kSet,          // target, value
  kSetBlock,     // target, filter (may be null), body
  kIf,           // expressions: a test per branch, branches, else_body
  kFor,          // target, value, test (may be null), body, else_body
  kMacro,        // name/symbol, parameters, body
  kCallBlock,    // value (the call), parameters, body
  kFilterBlock,  // filter, body
  kWith,         // expressions: target, value, target, value, ...; body
  kScope,        // body: a scope of its own
  kBreak,
  kContinue,
};

struct Parameter {
  std::string_view name;
  int symbol = -1;
  ExprPtr fallback;  // null: none
};

struct Stmt {
  StmtKind kind;
  int line = 0;
  bool recursive = false;    // kFor
  bool uses_caller = false;  // kMacro and kCallBlock: the body reads these names
  bool uses_kwargs = false;
  bool uses_varargs = false;
  std::string_view text;  // kData; the name of a macro
  int symbol = -1;
  ExprPtr target;
  ExprPtr value;
  ExprPtr test;
  ExprPtr filter;
  std::vector<ExprPtr> expressions;
  std::vector<Parameter> parameters;
  std::vector<Block> branches;
  Block body;
  Block else_body;
  std::vector<int> hidden;  // symbols that start out undefined in the body (scope_analysis.h)
  std::vector<int> else_hidden;
};

// Fixed symbols of the names that the interpreter itself binds.
inline constexpr int kSymbolLoop = 0;
inline constexpr int kSymbolCaller = 1;
inline constexpr int kSymbolKwargs = 2;
inline constexpr int kSymbolVarargs = 3;

struct Template {
  Template() : heap(std::size_t{1} << 28, std::uint64_t{1} << 40) {}
  std::string source;  // with normalized newlines; text of nodes points into it
  Heap heap;           // constants
  std::vector<std::string_view> symbols;
  Block body;
  std::vector<int> hidden;
};

}  // namespace sluice::jinja
