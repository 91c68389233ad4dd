#include "server/api_keys.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "base/file.h"
#include "base/hmac.h"
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

// Whether a header can contain the key.
bool is_key(std::string_view key) {
  return key.size() >= kMinKeyBytes && key.size() <= kMaxKeyBytes &&
         std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

// A line of the file.
struct KeyLine {
  ApiKey key;
  KeyLimits limits;
};

Status read_setting(std::string_view word, KeyLine& line) {
  ApiKey& key = line.key;
  if (word == "role=admin") {
    if (key.is_admin) return invalid_argument("role is given twice");
    key.is_admin = true;
    return {};
  }
  const std::string_view name = word.substr(0, word.find('='));
  if (name.size() == word.size()) {
    return invalid_argument("a line must be `NAME KEY [SETTING=VALUE ...]`; '#' begins a comment");
  }
  if (name == "role") return invalid_argument("the only role is admin; write role=admin");
  Status read = read_limit(name, word.substr(name.size() + 1), line.limits);
  if (read || read.error().code != ErrorCode::kNotFound) return read;
  // The word may be a misplaced key, so the message does not repeat it.
  return invalid_argument(
      "unknown setting after the key; there are role=admin, rpm=N, tpm=N, concurrency=N, queue=N%, "
      "priority=N, weight=N and pins=SIZE");
}

// A message must not carry the key itself.
Result<KeyLine> parse_line(std::span<const std::string_view> words) {
  if (words.size() < 2 || words[1].starts_with("role=")) {
    return invalid_argument(
        "a line must be `NAME KEY [SETTING=VALUE ...]`, where NAME is the tenant");
  }
  if (!is_name(words[0])) {
    return invalid_argument("the name must be up to 64 letters, digits and any of - _ . @");
  }
  if (!is_key(words[1])) {
    return invalid_argument("the key must be 8 to 512 visible ASCII characters");
  }
  KeyLine line;
  line.key.name = words[0];
  line.key.digest = sha256(words[1]);
  for (const std::string_view word : words.subspan(2)) RETURN_IF_ERROR(read_setting(word, line));
  return line;
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFileBytes));
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    log_warning(
        fmt::format("{}: users other than its owner may read these API keys; run chmod 600", path));
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
    const auto at = [&](const Error& error) {
      return invalid_argument(fmt::format("{}:{}: {}", path, number, error.message));
    };
    auto line = parse_line(words);
    if (!line) return at(line.error());
    for (const ApiKey& other : keys.keys_) {
      if (other.digest == line->key.digest) return at(invalid_argument("this key appears twice"));
    }
    const Status merged = merge_limits(line->limits, keys.limits_[line->key.name]);
    if (!merged) return at(merged.error());
    keys.keys_.push_back(std::move(line->key));
  }
  if (keys.keys_.empty()) {
    return invalid_argument(fmt::format("{}: contains no key, so no client could call", path));
  }
  return keys;
}

Result<ApiKeys> ApiKeys::single(std::string_view key) {
  if (!is_key(key)) {
    return invalid_argument(
        "--api-key (or SLUICE_API_KEY): the key must be 8 to 512 visible ASCII characters");
  }
  ApiKeys keys;
  keys.keys_.push_back({"default", false, sha256(key)});
  return keys;
}

const KeyLimits& ApiKeys::limits_of(std::string_view name) const {
  static const KeyLimits kNone;
  const auto found = limits_.find(name);
  return found == limits_.end() ? kNone : found->second;
}

bool ApiKeys::any_admin() const {
  return std::any_of(keys_.begin(), keys_.end(), [](const ApiKey& key) { return key.is_admin; });
}

const ApiKey* ApiKeys::find(const std::string* authorization) const {
  if (authorization == nullptr) return nullptr;
  std::string_view value = *authorization;
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() <= kScheme.size()) return nullptr;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(value[i])) != kScheme[i]) return nullptr;
  }
  value.remove_prefix(kScheme.size());
  const std::size_t begin = value.find_first_not_of(' ');
  if (begin == std::string_view::npos) return nullptr;
  return find_key(value.substr(begin));
}

const ApiKey* ApiKeys::find_key(std::string_view value) const {
  const Sha256Digest digest = sha256(value);
  const auto bytes = std::as_bytes(std::span(digest));
  // The loop has no early end: the time must not depend on which key matches or how much of it.
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_) {
    if (equal_in_constant_time(std::as_bytes(std::span(key.digest)), bytes)) found = &key;
  }
  return found;
}

}  // namespace sluice
