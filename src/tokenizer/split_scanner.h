// Hand-written scanners for the pre-tokenizer patterns of real models: several times as fast as a
// regular expression, with exactly the reference's version of Unicode. Like its pattern, each
// scanner covers its whole text with matches. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace sluice {

enum class KnownPattern {
  kGpt2,          // GPT-2, OPT, Falcon: the pattern built into ByteLevel
  kWordsDigit1,   // Qwen 1.5 to 3: one digit a piece
  kWordsDigits3,  // Llama 3: up to three digits a piece
  kThreeDigits,   // Falcon's [0-9][0-9][0-9]; the only one that leaves text unmatched
};

// The scanner for a pattern whose text is exactly a known one.
std::optional<KnownPattern> recognize_pattern(std::string_view regex);

// The end of the match that starts at text[at], at < text.size(). `at` means no match (kThreeDigits
// only). REQUIRES: valid UTF-8, at is the end of the previous match or the start.
std::size_t scan_match(KnownPattern pattern, std::string_view text, std::size_t at);

}  // namespace sluice
