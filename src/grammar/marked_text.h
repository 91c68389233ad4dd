// Free text that ends with a marker, as a part of a grammar: text before an answer's calls,
// reasoning, values without quotes.
// Pure function; one thread at a time for a grammar.
#pragma once

#include <cstdint>
#include <string_view>

#include "grammar/grammar.h"

namespace sluice {

// The byte in front of the text of a special token (TokenTrie). No UTF-8 text has it, so only a
// literal with this byte allows special tokens.
inline constexpr char kSpecialTokenMark = '\xFF';

enum class WithoutMarker : std::uint8_t { kRefused, kAllowed };

// Any text up to the first `marker`, the marker, and then `behind`. With kAllowed also any text
// that has no marker. A marker with a special token is found by its token alone.
// REQUIRES: the marker is not empty.
ExprId text_with_marker(Grammar& grammar, std::string_view marker, ExprId behind,
                        WithoutMarker without = WithoutMarker::kRefused);

}  // namespace sluice
