// Small tokenizers for tests, as the texts of tokenizer.json files: a byte-level one and one of the
// SentencePiece kind. Tests change fields of the JSON before they load it. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sluice {

nlohmann::json added_token(int id, const std::string& content, bool special = true);

// The letter that stands for a byte.
std::string byte_letter(unsigned char byte);

// Ids 0 to 255 are the bytes; then one token for each merge; then <|bos|>, <|end|>.
nlohmann::json byte_level_json();
inline constexpr int kHello = 259;
inline constexpr int kSpaceWorld = 264;
inline constexpr int kTwelve = 265;
inline constexpr int kTwoSpaces = 266;
inline constexpr int kBos = 267;
inline constexpr int kEnd = 268;

// Ids: <unk> <s> </s>, then the 256 byte tokens, then U+2581, a to z, then the merges.
nlohmann::json sentencepiece_json();
inline constexpr int kByteZero = 3;
inline constexpr int kMark = 259;
inline constexpr int kLetterA = 260;
inline constexpr int kSpaceThe = 288;
inline constexpr int kAb = 289;

}  // namespace sluice
