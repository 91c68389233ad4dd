#include "base/aes_gcm.h"

#include <openssl/evp.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace sluice {
namespace {

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

int length_of(std::span<const std::byte> bytes) {
  CHECK(bytes.size() <= std::size_t{std::numeric_limits<int>::max()});
  return static_cast<int>(bytes.size());
}

// Bytes that are still in the cache when their tag is computed behind their copy.
constexpr std::size_t kPieceInCache = std::size_t{16} << 10;

}  // namespace

AesNonce random_nonce() {
  AesNonce nonce{};
  // Not OpenSSL's generator: its state is in this process and would be copied with it.
  CHECK(::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()));
  return nonce;
}

struct AesGcm::Context {
  EVP_CIPHER* cipher = nullptr;
  EVP_CIPHER_CTX* context = nullptr;

  Context()
      : cipher(EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr)), context(EVP_CIPHER_CTX_new()) {
    CHECK(cipher != nullptr && context != nullptr);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    EVP_CIPHER_CTX_free(context);
    EVP_CIPHER_free(cipher);
  }
};

AesGcm::AesGcm() : context_(std::make_unique<Context>()) {}
AesGcm::AesGcm(AesGcm&&) noexcept = default;
AesGcm& AesGcm::operator=(AesGcm&&) noexcept = default;
AesGcm::~AesGcm() = default;

AesTag AesGcm::seal(const AesKey& key, const AesNonce& nonce, std::span<const std::byte> beside,
                    std::span<const std::byte> plain, std::span<std::byte> sealed) {
  CHECK(plain.size() == sealed.size());
  EVP_CIPHER_CTX* const context = context_->context;
  CHECK(EVP_EncryptInit_ex2(context, context_->cipher, raw(key.data()), raw(nonce.data()),
                            nullptr) == 1);
  int done = 0;
  CHECK(EVP_EncryptUpdate(context, nullptr, &done, raw(beside.data()), length_of(beside)) == 1);
  CHECK(EVP_EncryptUpdate(context, raw(sealed.data()), &done, raw(plain.data()),
                          length_of(plain)) == 1);
  CHECK(done == length_of(plain));
  CHECK(EVP_EncryptFinal_ex(context, raw(sealed.data()) + done, &done) == 1 && done == 0);
  AesTag tag{};
  CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()),
                            tag.data()) == 1);
  return tag;
}

bool AesGcm::open(const AesKey& key, const AesNonce& nonce, std::span<const std::byte> beside,
                  std::span<const std::byte> sealed, const AesTag& tag,
                  std::span<std::byte> plain) {
  CHECK(plain.size() == sealed.size());
  EVP_CIPHER_CTX* const context = context_->context;
  CHECK(EVP_DecryptInit_ex2(context, context_->cipher, raw(key.data()), raw(nonce.data()),
                            nullptr) == 1);
  int done = 0;
  CHECK(EVP_DecryptUpdate(context, nullptr, &done, raw(beside.data()), length_of(beside)) == 1);
  CHECK(EVP_DecryptUpdate(context, raw(plain.data()), &done, raw(sealed.data()),
                          length_of(sealed)) == 1);
  CHECK(done == length_of(sealed));
  AesTag wanted = tag;  // OpenSSL takes no constant bytes
  CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(wanted.size()),
                            wanted.data()) == 1);
  if (EVP_DecryptFinal_ex(context, raw(plain.data()) + done, &done) == 1) return true;
  std::ranges::fill(plain, std::byte{0});
  return false;
}

AesTag AesGcm::copy_with_tag(const AesKey& key, const AesNonce& nonce,
                             std::span<const std::byte> beside, std::span<const std::byte> from,
                             std::span<std::byte> to) {
  CHECK(from.size() == to.size());
  EVP_CIPHER_CTX* const context = context_->context;
  CHECK(EVP_EncryptInit_ex2(context, context_->cipher, raw(key.data()), raw(nonce.data()),
                            nullptr) == 1);
  int done = 0;
  CHECK(EVP_EncryptUpdate(context, nullptr, &done, raw(beside.data()), length_of(beside)) == 1);
  for (std::size_t at = 0; at < from.size(); at += kPieceInCache) {
    const auto piece = to.subspan(at, std::min(kPieceInCache, from.size() - at));
    std::memcpy(piece.data(), from.data() + at, piece.size());
    CHECK(EVP_EncryptUpdate(context, nullptr, &done, raw(piece.data()), length_of(piece)) == 1);
  }
  AesTag tag{};
  unsigned char* const end = raw(tag.data());  // nothing is written there
  CHECK(EVP_EncryptFinal_ex(context, end, &done) == 1 && done == 0);
  CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()),
                            tag.data()) == 1);
  return tag;
}

}  // namespace sluice
