// The messages of memory lending as JSON bodies. docs/elastic-memory.md describes the fields.
// Errors name the field. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "lending/lending_book.h"
#include "lending/lending_message.h"

namespace sluice {

inline constexpr std::size_t kMaxLendingBody = std::size_t{1} << 20;

// "join" and so on: the last part of the verb's path.
std::string_view lend_verb_name(LendVerb verb);
// All verbs, in order.
std::span<const LendVerb> lend_verbs();

// Fields that the verb does not have are refused, so that a misspelt one is noticed.
Result<LendRequest> parse_lend_request(LendVerb verb, std::string_view body);
std::string lend_request_json(const LendRequest& request);

std::string lend_answer_json(const LendAnswer& answer);
// The answer of a coordinator. Errors: it is not one.
Result<LendAnswer> parse_lend_answer(std::string_view body);

std::string lending_status_json(const LendingStatus& status);

}  // namespace sluice
