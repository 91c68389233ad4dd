#include "membership/bearer_token.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>

#include "base/file.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxFile = 4096;
constexpr std::size_t kLeast = 16;
constexpr std::size_t kMost = 1024;

}  // namespace

Result<BearerToken> BearerToken::load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFile));
  std::string_view token = std::string_view(text).substr(0, text.find('\n'));
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!token.empty() && is_blank(token.front())) token.remove_prefix(1);
  while (!token.empty() && is_blank(token.back())) token.remove_suffix(1);
  const bool printable = std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; });
  if (token.size() < kLeast || token.size() > kMost || !printable) {
    return invalid_argument(fmt::format(
        "{}: the first line must be a token of {} to {} printable characters without blanks, such "
        "as `openssl rand -hex 32` prints",
        path, kLeast, kMost));
  }
  struct stat info{};
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    log_warning(fmt::format("{}: users other than the owner may read the token; chmod 600", path));
  }
  return BearerToken(std::string(token));
}

bool BearerToken::admits(const std::string* authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization == nullptr || !authorization->starts_with(kScheme)) return false;
  const Sha256Digest given = sha256(std::string_view(*authorization).substr(kScheme.size()));
  unsigned char difference = 0;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto bits = static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(digest_[i]);
    difference = static_cast<unsigned char>(difference | bits);
  }
  return difference == 0;
}

}  // namespace sluice
