// The fields that /v1/chat/completions and /v1/completions have in common.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/field_reader.h"
#include "server/generation_call.h"

namespace sluice {

// Bounds of one call that no model sets.
inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopBytes = 1024;
inline constexpr std::size_t kMaxStopTokenIds = 1024;
inline constexpr std::size_t kMaxLogitBiases = 4096;
inline constexpr std::size_t kMaxBadWords = 256;
inline constexpr std::size_t kMaxBadWordBytes = 256;
inline constexpr std::size_t kMaxAllowedTokenIds = std::size_t{1} << 20;
inline constexpr std::size_t kMaxModelBytes = 1024;
inline constexpr std::size_t kMaxUserBytes = 512;
inline constexpr std::size_t kMaxCacheSaltBytes = 1024;

// Reads model, sampling, streaming and vLLM's extras, and refuses known fields that are not served.
// The fields for length and logprobs are not read here, because the two calls name them
// differently.
void read_common_fields(FieldReader& reader, GenerationCall& call);

// The parts of it that calls without sampling have, too: how a long prompt is cut; and user, salt
// of the cache, priority and timeout.
void read_truncation(FieldReader& reader, GenerationCall& call);
void read_account_fields(FieldReader& reader, GenerationCall& call);
// OpenAI's prompt_cache_retention, which is among those.
void read_cache_retention(FieldReader& reader, GenerationCall& call);

// The field that an error of validate() names at the start of its message.
std::string sampling_field(const Error& error);

// Checks the ranges of SamplingParams. `max_tokens_name` and `logprobs_name` are the call's names
// of those fields. max_tokens is not checked if it was not given and has no default.
void check_sampling(FieldReader& reader, const GenerationCall& call,
                    std::string_view max_tokens_name, std::string_view logprobs_name);

}  // namespace sluice
