#include "base/ed25519.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>

#include "base/base64.h"
#include "base/check.h"

namespace sluice {
namespace {

// The bytes before the 32 of a key in its SubjectPublicKeyInfo (RFC 8410, 4 and 10.1).
constexpr std::array<std::uint8_t, 12> kKeyInfo = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                                   0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// OpenSSL would ask for a passphrase on the terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

}  // namespace

std::optional<Ed25519PublicKey> parse_ed25519_public_key(std::string_view base64) {
  const auto info = from_base64(base64);
  Ed25519PublicKey key{};
  if (!info || info->size() != kKeyInfo.size() + key.size()) return std::nullopt;
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(info->data()), info->size());
  if (!std::ranges::equal(bytes.first(kKeyInfo.size()), kKeyInfo)) return std::nullopt;
  std::ranges::copy(bytes.subspan(kKeyInfo.size()), key.begin());
  return key;
}

std::string ed25519_public_key_text(const Ed25519PublicKey& key) {
  std::array<std::uint8_t, kKeyInfo.size() + std::tuple_size_v<Ed25519PublicKey>> info{};
  std::ranges::copy(key, std::ranges::copy(kKeyInfo, info.begin()).out);
  return to_base64(std::as_bytes(std::span(info)));
}

Result<Ed25519Signed> sign_ed25519(std::string_view private_key, std::string_view message) {
  CHECK(private_key.size() <= std::size_t{std::numeric_limits<int>::max()});
  const char* const pem = private_key.empty() ? "" : private_key.data();  // null is an error
  const Owned<BIO> text(BIO_new_mem_buf(pem, static_cast<int>(private_key.size())));
  CHECK(text != nullptr);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(text.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519) {
    return invalid_argument(
        "is not an Ed25519 private key in PEM without a passphrase; `openssl genpkey -algorithm "
        "ed25519` makes one");
  }
  Ed25519Signed made;
  std::size_t length = made.key.size();
  CHECK(EVP_PKEY_get_raw_public_key(key.get(), made.key.data(), &length) == 1);
  CHECK(length == made.key.size());
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  CHECK(context != nullptr);
  CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1);
  length = made.signature.size();
  CHECK(EVP_DigestSign(context.get(), made.signature.data(), &length, raw(message),
                       message.size()) == 1);
  CHECK(length == made.signature.size());
  return made;
}

bool verify_ed25519(const Ed25519PublicKey& key, std::string_view message,
                    const Ed25519Signature& signature) {
  const Owned<EVP_PKEY> loaded(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()));
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  CHECK(loaded != nullptr && context != nullptr);
  CHECK(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, loaded.get()) == 1);
  const bool good = EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                                     raw(message), message.size()) == 1;
  ERR_clear_error();
  return good;
}

}  // namespace sluice
