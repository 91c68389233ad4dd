// Tokens to a Template, with jinja2's grammar. Bounded: source size, nesting of statements and of
// expressions. Errors read "line N: what is wrong".
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "chat_template/ast.h"

namespace sluice::jinja {

inline constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;
inline constexpr int kMaxExpressionDepth = 150;
inline constexpr int kMaxStatementDepth = 60;

Result<std::unique_ptr<const Template>> parse_template(std::string_view source);

}  // namespace sluice::jinja
