#include "base/hmac.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "base/check.h"

namespace sluice {

struct Hmac::Context {
  EVP_MAC* mac = nullptr;
  EVP_MAC_CTX* context = nullptr;

  Context() : mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr)), context(EVP_MAC_CTX_new(mac)) {
    CHECK(mac != nullptr && context != nullptr);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(mac);
  }
};

Hmac::Hmac(const HmacKey& key) : context_(std::make_unique<Context>()) {
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_end()};
  CHECK(EVP_MAC_init(context_->context, reinterpret_cast<const unsigned char*>(key.data()),
                     key.size(), parameters) == 1);
}
Hmac::Hmac(Hmac&&) noexcept = default;
Hmac& Hmac::operator=(Hmac&&) noexcept = default;
Hmac::~Hmac() = default;

void Hmac::update(std::span<const std::byte> bytes) {
  CHECK(EVP_MAC_update(context_->context, reinterpret_cast<const unsigned char*>(bytes.data()),
                       bytes.size()) == 1);
}

HmacTag Hmac::finish() {
  HmacTag tag{};
  std::size_t length = 0;
  CHECK(EVP_MAC_final(context_->context, reinterpret_cast<unsigned char*>(tag.data()), &length,
                      tag.size()) == 1);
  CHECK(length == tag.size());
  CHECK(EVP_MAC_init(context_->context, nullptr, 0, nullptr) == 1);
  return tag;
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  CHECK(a.size() == b.size());
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

HmacKey derive_key(const HmacKey& secret, std::string_view label) {
  Hmac hmac(secret);
  return derive_key(hmac, label);
}

HmacKey derive_key(Hmac& of_secret, std::string_view label) {
  of_secret.update(std::as_bytes(std::span(label)));
  const std::byte counter{1};
  of_secret.update({&counter, 1});
  return of_secret.finish();
}

}  // namespace sluice
