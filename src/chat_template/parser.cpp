#include "chat_template/parser.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "chat_template/expression_parser.h"
#include "chat_template/name_analysis.h"
#include "chat_template/scope_analysis.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

using Words = std::vector<std::string_view>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Block> parse_all() { return parse_body({}); }

 private:
  StmtPtr make_statement(StmtKind kind, int line) const {
    auto statement = std::make_unique<Stmt>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  bool at_any_word(const Words& words) const {
    return std::any_of(words.begin(), words.end(), [&](auto word) { return at_word(word); });
  }

  // Statements up to a tag of `end_words`, whose word becomes the current token.
  Result<Block> parse_body(const Words& end_words) {
    if (static_cast<int>(open_tags_.size()) > kMaxStatementDepth) {
      return fail("statements are nested deeper than " + std::to_string(kMaxStatementDepth) +
                  " levels");
    }
    Block body;
    while (current().type != TokenType::kEnd) {
      const Token& token = current();
      if (token.type == TokenType::kData) {
        StmtPtr data = make_statement(StmtKind::kData, token.line);
        data->text = token.text;
        body.push_back(std::move(data));
        next();
      } else if (token.type == TokenType::kVariableBegin) {
        StmtPtr output = make_statement(StmtKind::kOutput, token.line);
        next();
        ASSIGN_OR_RETURN(ExprPtr expr, parse_tuple({}));
        output->expressions.push_back(std::move(expr));
        if (current().type != TokenType::kVariableEnd) {
          return unexpected("end of print statement");
        }
        next();
        body.push_back(std::move(output));
      } else {
        next();  // a block begins: all other tokens are inside of tags
        if (at_any_word(end_words)) return body;
        ASSIGN_OR_RETURN(StmtPtr statement, parse_statement(end_words));
        body.push_back(std::move(statement));
        RETURN_IF_ERROR(expect_block_end());
      }
    }
    if (!end_words.empty()) return unclosed("Unexpected end of template.", end_words, false);
    return body;
  }

  Status expect_block_end() {
    if (current().type != TokenType::kBlockEnd) return unexpected("end of statement block");
    next();
    return {};
  }

  // The body after the current tag, whose end word is consumed.
  Result<Block> parse_block_until(const Words& end_words) {
    skip_operator(":");
    RETURN_IF_ERROR(expect_block_end());
    return parse_body(end_words);
  }
  Result<Block> parse_block_to(std::string_view end_word) {
    ASSIGN_OR_RETURN(Block body, parse_block_until({end_word}));
    next();
    return body;
  }

  Error unclosed(std::string message, const Words& end_words, bool nesting_mistake) const {
    if (!end_words.empty()) {
      std::string looking;
      for (const std::string_view word : end_words) {
        looking += (looking.empty() ? "" : " or ") + quote(word);
      }
      message += nesting_mistake
                     ? " You probably made a nesting mistake. Jinja is expecting this tag, but "
                       "currently looking for " +
                           looking + "."
                     : " Jinja was looking for the following tags: " + looking + ".";
    }
    if (!open_tags_.empty()) {
      message +=
          " The innermost block that needs to be closed is " + quote(open_tags_.back()) + ".";
    }
    return fail(message);
  }

  Result<StmtPtr> parse_statement(const Words& end_words) {
    if (current().type != TokenType::kName) return fail("tag name expected");
    const std::string_view tag = current().text;
    using Method = Result<StmtPtr> (Parser::*)();
    static constexpr std::pair<std::string_view, Method> kTags[] = {
        {"for", &Parser::parse_for},
        {"if", &Parser::parse_if},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"call", &Parser::parse_call_tag},
        {"filter", &Parser::parse_filter_tag},
        {"with", &Parser::parse_with},
        {"print", &Parser::parse_print},
        {"break", &Parser::parse_break},
        {"continue", &Parser::parse_continue},
        {"generation", &Parser::parse_generation},
    };
    const auto* found = std::find_if(std::begin(kTags), std::end(kTags),
                                     [&](const auto& entry) { return entry.first == tag; });
    if (found == std::end(kTags)) {
      static constexpr std::string_view kRefused[] = {"block",  "extends", "include",
                                                      "import", "from",    "autoescape"};
      if (std::find(std::begin(kRefused), std::end(kRefused), tag) != std::end(kRefused)) {
        return fail("the tag " + quote(tag) + " is not supported: a chat template is one file");
      }
      const bool expected_outside =
          std::find(expected_.begin(), expected_.end(), tag) != expected_.end();
      return unclosed("Encountered unknown tag " + quote(tag) + ".", end_words, expected_outside);
    }
    open_tags_.push_back(tag);
    const std::size_t expected_before = expected_.size();
    expected_.insert(expected_.end(), end_words.begin(), end_words.end());
    Result<StmtPtr> statement = (this->*found->second)();
    expected_.resize(expected_before);
    open_tags_.pop_back();
    return statement;
  }

  // The statement of the current tag, past the tag's word.
  StmtPtr begin(StmtKind kind) {
    StmtPtr statement = make_statement(kind, current().line);
    next();
    return statement;
  }

  Result<StmtPtr> parse_set() {
    StmtPtr set = begin(StmtKind::kSet);
    ASSIGN_OR_RETURN(set->target,
                     parse_assign_target("", TupleRules::Items::kTargetsAndNamespaces));
    if (skip_operator("=")) {
      ASSIGN_OR_RETURN(set->value, parse_tuple({}));
      return set;
    }
    set->kind = StmtKind::kSetBlock;
    ASSIGN_OR_RETURN(set->filter, parse_filters(nullptr, FirstPipe::kNeeded));
    ASSIGN_OR_RETURN(set->body, parse_block_to("endset"));
    return set;
  }

  Result<StmtPtr> parse_for() {
    StmtPtr loop = begin(StmtKind::kFor);
    ++loop_depth_;
    Result<StmtPtr> result = parse_for_parts(std::move(loop));
    --loop_depth_;
    return result;
  }

  Result<StmtPtr> parse_for_parts(StmtPtr loop) {
    ASSIGN_OR_RETURN(loop->target, parse_assign_target("in", TupleRules::Items::kTargets));
    if (!skip_word("in")) return unexpected("in");
    TupleRules rules;
    rules.conditional = Conditional::kNotAllowed;
    rules.end_word = "recursive";
    ASSIGN_OR_RETURN(loop->value, parse_tuple(rules));
    if (skip_word("if")) {
      ASSIGN_OR_RETURN(loop->test, parse_expression());
    }
    loop->recursive = skip_word("recursive");
    ++breakable_;
    Result<Block> body = parse_block_until({"endfor", "else"});
    --breakable_;
    ASSIGN_OR_RETURN(loop->body, std::move(body));
    const bool has_else = at_word("else");
    next();
    if (has_else) {
      ASSIGN_OR_RETURN(loop->else_body, parse_block_to("endfor"));
    }
    return loop;
  }

  Result<StmtPtr> parse_if() {
    StmtPtr statement = begin(StmtKind::kIf);
    while (true) {
      TupleRules rules;
      rules.conditional = Conditional::kNotAllowed;
      ASSIGN_OR_RETURN(ExprPtr test, parse_tuple(rules));
      ASSIGN_OR_RETURN(Block body, parse_block_until({"elif", "else", "endif"}));
      statement->expressions.push_back(std::move(test));
      statement->branches.push_back(std::move(body));
      const std::string_view word = current().text;
      next();
      if (word == "endif") return statement;
      if (word == "else") break;
    }
    ASSIGN_OR_RETURN(statement->else_body, parse_block_to("endif"));
    return statement;
  }

  // The body is a function of its own, so `break` cannot leave it.
  Result<Block> parse_function_body(std::string_view end_word) {
    const int breakable = std::exchange(breakable_, 0);
    Result<Block> body = parse_block_to(end_word);
    breakable_ = breakable;
    return body;
  }

  Status parse_signature(Stmt& statement) {
    RETURN_IF_ERROR(expect_operator("("));
    bool has_default = false;
    while (!at_operator(")")) {
      if (!statement.parameters.empty()) RETURN_IF_ERROR(expect_operator(","));
      ASSIGN_OR_RETURN(const Token name, expect_name());
      Parameter parameter;
      parameter.name = name.text;
      parameter.symbol = symbol(name.text);
      if (skip_operator("=")) {
        ASSIGN_OR_RETURN(parameter.fallback, parse_expression());
        has_default = true;
      } else if (has_default) {
        return fail("non-default argument follows default argument");
      }
      statement.parameters.push_back(std::move(parameter));
    }
    return expect_operator(")");
  }

  Result<StmtPtr> parse_macro() {
    StmtPtr macro = begin(StmtKind::kMacro);
    ASSIGN_OR_RETURN(const Token name, expect_name());
    macro->text = name.text;
    macro->symbol = symbol(name.text);
    RETURN_IF_ERROR(parse_signature(*macro));
    ASSIGN_OR_RETURN(macro->body, parse_function_body("endmacro"));
    return macro;
  }

  Result<StmtPtr> parse_call_tag() {
    StmtPtr call = begin(StmtKind::kCallBlock);
    call->symbol = kSymbolCaller;
    if (at_operator("(")) RETURN_IF_ERROR(parse_signature(*call));
    ASSIGN_OR_RETURN(call->value, parse_expression());
    if (call->value->kind != ExprKind::kCall) return syntax_error(call->line, "expected call");
    ASSIGN_OR_RETURN(call->body, parse_function_body("endcall"));
    return call;
  }

  Result<StmtPtr> parse_filter_tag() {
    StmtPtr filter = begin(StmtKind::kFilterBlock);
    ASSIGN_OR_RETURN(filter->filter, parse_filters(nullptr, FirstPipe::kAbsent));
    ASSIGN_OR_RETURN(filter->body, parse_block_to("endfilter"));
    return filter;
  }

  Result<StmtPtr> parse_with() {
    StmtPtr with = begin(StmtKind::kWith);
    while (current().type != TokenType::kBlockEnd) {
      if (!with->expressions.empty()) RETURN_IF_ERROR(expect_operator(","));
      ASSIGN_OR_RETURN(ExprPtr target, parse_assign_target("", TupleRules::Items::kTargets));
      RETURN_IF_ERROR(expect_operator("="));
      ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      with->expressions.push_back(std::move(target));
      with->expressions.push_back(std::move(value));
    }
    ASSIGN_OR_RETURN(with->body, parse_block_to("endwith"));
    return with;
  }

  Result<StmtPtr> parse_print() {
    StmtPtr output = begin(StmtKind::kOutput);
    while (current().type != TokenType::kBlockEnd) {
      if (!output->expressions.empty()) RETURN_IF_ERROR(expect_operator(","));
      ASSIGN_OR_RETURN(ExprPtr expr, parse_expression());
      output->expressions.push_back(std::move(expr));
    }
    return output;
  }

  // transformers marks the assistant's text with it; the text is unchanged. There it is a call
  // block, so it has a scope of its own.
  Result<StmtPtr> parse_generation() {
    StmtPtr scope = begin(StmtKind::kScope);
    ASSIGN_OR_RETURN(scope->body, parse_function_body("endgeneration"));
    return scope;
  }

  Result<StmtPtr> parse_break() {
    if (breakable_ == 0) return fail("'break' outside loop");
    return begin(StmtKind::kBreak);
  }
  Result<StmtPtr> parse_continue() {
    if (breakable_ == 0) return fail("'continue' not properly in loop");
    return begin(StmtKind::kContinue);
  }

  std::vector<std::string_view> open_tags_;
  std::vector<std::string_view> expected_;  // end words of the statements around
  int breakable_ = 0;
};

}  // namespace

Result<std::unique_ptr<const Template>> parse_template(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return invalid_argument("the template has " + std::to_string(source.size()) +
                            " bytes; at most " + std::to_string(kMaxSourceBytes) + " are allowed");
  }
  if (utf8::find_invalid(source)) return invalid_argument("the template is not valid UTF-8");
  auto result = std::make_unique<Template>();
  result->source = normalize_newlines(source);
  ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(result->source, result->heap));
  Parser parser(std::move(tokens), *result);
  ASSIGN_OR_RETURN(result->body, parser.parse_all());
  RETURN_IF_ERROR(analyse_names(*result));
  analyse_scopes(*result);
  return std::unique_ptr<const Template>(std::move(result));
}

}  // namespace sluice::jinja
