#include "server/api_keys.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "base/file.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{4} << 20;
constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMinKeyBytes = 8;
constexpr std::size_t kMaxKeyBytes = 512;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') return words;
    const std::size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
}

// Names go into logs and metrics.
bool is_name(std::string_view name) {
  return name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                  c == '.' || c == '@';
         });
}

// What a header can carry.
bool is_key(std::string_view key) {
  return key.size() >= kMinKeyBytes && key.size() <= kMaxKeyBytes &&
         std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

bool equal_in_constant_time(const Sha256Digest& a, const Sha256Digest& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFileBytes));
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    log_warning(
        fmt::format("{}: others than its owner may read these API keys; chmod 600 it", path));
  }
  return parse(text, path);
}

Result<ApiKeys> ApiKeys::parse(std::string_view text, std::string_view path) {
  ApiKeys keys;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const auto words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    const auto refuse = [&](std::string_view why) {
      return invalid_argument(fmt::format("{}:{}: {}", path, number, why));
    };
    if (words.size() > 2) return refuse("must be `NAME KEY` or `KEY`; '#' begins a comment");
    // A message must not carry the key itself.
    if (words.size() == 2 && !is_name(words[0])) {
      return refuse("the name must be up to 64 letters, digits and any of - _ . @");
    }
    if (!is_key(words.back())) {
      return refuse("the key must be 8 to 512 visible ASCII characters");
    }
    Key key;
    key.name = words.size() == 2 ? std::string(words[0]) : fmt::format("key{}", number);
    key.digest = sha256(words.back());
    for (const Key& other : keys.keys_) {
      if (other.digest == key.digest) return refuse("this key is there twice");
    }
    keys.keys_.push_back(std::move(key));
  }
  if (keys.keys_.empty()) {
    return invalid_argument(fmt::format("{}: has no key; nobody could call", path));
  }
  return keys;
}

std::optional<std::string_view> ApiKeys::find(const std::string* authorization) const {
  if (authorization == nullptr) return std::nullopt;
  std::string_view value = *authorization;
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() <= kScheme.size()) return std::nullopt;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(value[i])) != kScheme[i]) return std::nullopt;
  }
  value.remove_prefix(kScheme.size());
  const std::size_t begin = value.find_first_not_of(' ');
  if (begin == std::string_view::npos) return std::nullopt;
  value.remove_prefix(begin);
  const Sha256Digest digest = sha256(value);
  // No early end: time tells nothing of which key it was, nor of how much of one was right.
  const Key* found = nullptr;
  for (const Key& key : keys_) {
    if (equal_in_constant_time(key.digest, digest)) found = &key;
  }
  if (found == nullptr) return std::nullopt;
  return found->name;
}

}  // namespace sluice
