// The bytes of a file of ResumeStore: an answer, its seed and the time, encrypted with AES-256-GCM.
// The tag also covers the file's name, so that a file does not pass for another one. Functions; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/hmac.h"
#include "base/token_id.h"

namespace sluice {

struct ResumeFile {
  std::int64_t saved = 0;  // Unix seconds
  std::uint64_t seed = 0;
  std::vector<TokenId> tokens;
};

inline constexpr std::size_t kMaxResumeTokens = std::size_t{1} << 24;

// The length of a file with so many tokens.
std::size_t resume_file_bytes(std::size_t tokens);
// REQUIRES: at most kMaxResumeTokens tokens.
std::vector<std::byte> seal_resume_file(const HmacKey& key, std::string_view name,
                                        const ResumeFile& file);
// Nothing: the bytes are damaged, or were sealed under another key or name.
std::optional<ResumeFile> open_resume_file(const HmacKey& key, std::string_view name,
                                           std::vector<std::byte> bytes);

}  // namespace sluice
