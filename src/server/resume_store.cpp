#include "server/resume_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "base/aes_gcm.h"
#include "base/file.h"
#include "base/sha256.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".resume";
constexpr std::size_t kMaxTokens = std::size_t{1} << 24;

// Little-endian, as all machines that Sluice runs on are. The tokens follow.
struct Head {
  std::int64_t saved = 0;  // Unix seconds
  std::uint64_t seed = 0;
};

void add(Hmac& hmac, std::string_view text) {
  const std::uint64_t size = text.size();
  hmac.update(std::as_bytes(std::span(&size, 1)));
  hmac.update(std::as_bytes(std::span(text)));
}

Error write_error(const std::string& path) {
  return unavailable(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

}  // namespace

ResumeStore::ResumeStore(std::string folder, const HmacKey& secret, std::int64_t max_age_s,
                         std::function<std::int64_t()> unix_time)
    : folder_(std::move(folder)),
      names_(derive_key(secret, "sluice/resume-names/1")),
      bodies_(derive_key(secret, "sluice/resume-bodies/1")),
      contents_(derive_key(secret, "sluice/resume-contents/1")),
      max_age_s_(max_age_s),
      unix_time_(std::move(unix_time)) {
  remove_old();
}

HmacTag ResumeStore::digest_body(std::string_view path, std::string_view body) const {
  Hmac hmac(bodies_);
  add(hmac, path);
  add(hmac, body);
  return hmac.finish();
}

std::string ResumeStore::path_of(const Key& key) const {
  Hmac hmac(names_);
  add(hmac, key.tenant);
  add(hmac, key.request_id);
  hmac.update(std::as_bytes(std::span(&key.root, 1)));
  hmac.update(key.body);
  return folder_ + "/" + to_hex(sha256(hmac.finish())).substr(0, 32) + std::string(kSuffix);
}

// Removes files of every model, by the time of their last change.
void ResumeStore::remove_old() const {
  std::error_code problem;
  fs::directory_iterator entries(folder_, problem);
  for (; !problem && entries != fs::directory_iterator(); entries.increment(problem)) {
    const fs::path& path = entries->path();
    struct stat facts{};
    if (path.extension() != kSuffix || ::stat(path.c_str(), &facts) != 0) continue;
    if (facts.st_mtime < unix_time_() - max_age_s_) ::unlink(path.c_str());
  }
}

Status ResumeStore::save(const Key& key, const Answer& answer) const {
  const Head head{unix_time_(), answer.seed};
  const std::size_t bytes = sizeof(head) + answer.tokens.size() * sizeof(TokenId);
  const AesNonce nonce = random_nonce();
  std::vector<std::byte> file(nonce.size() + sizeof(AesTag) + bytes);
  const std::span<std::byte> sealed = std::span(file).subspan(nonce.size() + sizeof(AesTag));
  std::memcpy(sealed.data(), &head, sizeof(head));
  if (!answer.tokens.empty()) {
    std::memcpy(sealed.data() + sizeof(head), answer.tokens.data(), bytes - sizeof(head));
  }
  const std::string path = path_of(key);
  AesGcm cipher;
  const AesTag tag =
      cipher.seal(contents_, nonce, std::as_bytes(std::span(path).last(39)), sealed, sealed);
  std::ranges::copy(nonce, file.begin());
  std::ranges::copy(tag, file.begin() + static_cast<std::ptrdiff_t>(nonce.size()));
  const std::string part = path + ".part";
  {
    const FileDescriptor out(
        ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!out.valid()) return write_error(part);
    const ssize_t written = ::write(out.get(), file.data(), file.size());
    if (written >= 0 && written != static_cast<ssize_t>(file.size())) errno = ENOSPC;
    if (written != static_cast<ssize_t>(file.size()) || ::fsync(out.get()) != 0) {
      Error error = write_error(part);
      ::unlink(part.c_str());
      return error;
    }
  }
  if (::rename(part.c_str(), path.c_str()) != 0) return write_error(path);
  return {};
}

std::optional<ResumeStore::Answer> ResumeStore::take(const Key& key) const {
  const std::string path = path_of(key);
  const FileDescriptor in(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts{};
  // The call that removes the file has the answer, if two equal calls come at once.
  if (!in.valid() || ::fstat(in.get(), &facts) != 0 || ::unlink(path.c_str()) != 0) return {};
  const auto size = static_cast<std::size_t>(facts.st_size);
  constexpr std::size_t kBefore = sizeof(AesNonce) + sizeof(AesTag);
  if (size < kBefore + sizeof(Head) || size > kBefore + sizeof(Head) + kMaxTokens * 4) return {};
  std::vector<std::byte> file(size);
  if (::read(in.get(), file.data(), size) != facts.st_size) return {};
  AesNonce nonce{};
  AesTag tag{};
  std::memcpy(nonce.data(), file.data(), nonce.size());
  std::memcpy(tag.data(), file.data() + nonce.size(), tag.size());
  const std::span<std::byte> plain = std::span(file).subspan(kBefore);
  AesGcm cipher;
  if (!cipher.open(contents_, nonce, std::as_bytes(std::span(path).last(39)), plain, tag, plain)) {
    return {};
  }
  Head head;
  std::memcpy(&head, plain.data(), sizeof(head));
  if (head.saved < unix_time_() - max_age_s_) return {};
  Answer answer{head.seed, std::vector<TokenId>((plain.size() - sizeof(head)) / sizeof(TokenId))};
  if (!answer.tokens.empty()) {
    std::memcpy(answer.tokens.data(), plain.data() + sizeof(head),
                answer.tokens.size() * sizeof(TokenId));
  }
  return answer;
}

}  // namespace sluice
