#include "server/resume_file.h"

#include <algorithm>
#include <cstring>

#include "base/aes_gcm.h"
#include "base/check.h"

namespace sluice {
namespace {

// Little-endian, as all machines that Sluice runs on are. The tokens follow.
struct Head {
  std::int64_t saved = 0;
  std::uint64_t seed = 0;
};

constexpr std::size_t kSealBytes = sizeof(AesNonce) + sizeof(AesTag);  // nonce, then tag

}  // namespace

std::size_t resume_file_bytes(std::size_t tokens) {
  return kSealBytes + sizeof(Head) + tokens * sizeof(TokenId);
}

std::vector<std::byte> seal_resume_file(const HmacKey& key, std::string_view name,
                                        const ResumeFile& file) {
  CHECK(file.tokens.size() <= kMaxResumeTokens);
  std::vector<std::byte> bytes(resume_file_bytes(file.tokens.size()));
  const std::span<std::byte> sealed = std::span(bytes).subspan(kSealBytes);
  const Head head{file.saved, file.seed};
  std::memcpy(sealed.data(), &head, sizeof(head));
  std::ranges::copy(std::as_bytes(std::span(file.tokens)), sealed.begin() + sizeof(head));
  const AesNonce nonce = random_nonce();
  const AesTag tag = AesGcm().seal(key, nonce, std::as_bytes(std::span(name)), sealed, sealed);
  std::ranges::copy(nonce, bytes.begin());
  std::ranges::copy(tag, bytes.begin() + nonce.size());
  return bytes;
}

std::optional<ResumeFile> open_resume_file(const HmacKey& key, std::string_view name,
                                           std::vector<std::byte> bytes) {
  if (bytes.size() < resume_file_bytes(0)) return {};
  const std::size_t tokens = (bytes.size() - resume_file_bytes(0)) / sizeof(TokenId);
  if (tokens > kMaxResumeTokens || bytes.size() != resume_file_bytes(tokens)) return {};
  AesNonce nonce{};
  AesTag tag{};
  std::memcpy(nonce.data(), bytes.data(), nonce.size());
  std::memcpy(tag.data(), bytes.data() + nonce.size(), tag.size());
  const std::span<std::byte> plain = std::span(bytes).subspan(kSealBytes);
  if (!AesGcm().open(key, nonce, std::as_bytes(std::span(name)), plain, tag, plain)) return {};
  Head head;
  std::memcpy(&head, plain.data(), sizeof(head));
  ResumeFile file{head.saved, head.seed, std::vector<TokenId>(tokens)};
  std::ranges::copy(plain.subspan(sizeof(head)),
                    std::as_writable_bytes(std::span(file.tokens)).begin());
  return file;
}

}  // namespace sluice
