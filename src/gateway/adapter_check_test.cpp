#include "gateway/adapter_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/base64.h"
#include "base/file.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// The key of ed25519_test, and its signature of the files "ab" and "c", both made by openssl.
constexpr std::string_view kPrivate =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIOF8aNwAYibJEpn9VE2hpCK5K2HkgkiZRoME41JDgVTM\n"
    "-----END PRIVATE KEY-----\n";
constexpr std::string_view kPublic = "MCowBQYDK2VwAyEALYD9rcfKYTgqbWt57sAM4ZWYOAi9V90aQ0yoLH7+KXM=";
constexpr std::string_view kSignature =
    "RuDFz9EWYzsiCKRYM0eaQPKo+m8cAdUkOqTPvJFDnWiJN37bZykoGI/"
    "GbiUXww+L8qQkTAL9D0XvJRWMnXf+BA==";

class AdapterCheckTest : public testing::Test {
 protected:
  AdapterCheckTest() {
    std::string name = (std::filesystem::temp_directory_path() / "adapter_check_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    write("adapter_config.json", "ab");
    write("adapter_model.safetensors", "c");
  }
  ~AdapterCheckTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, std::string_view text) const {
    ASSERT_TRUE(write_file(folder_ + "/" + name, text));
  }
  std::string error(const AdapterChecks& checks) const {
    const Status status = check_adapter(folder_, checks);
    return status ? "" : status.error().message;
  }

  std::string folder_;
  const AdapterChecks signed_{{}, {parse_ed25519_public_key(kPublic).value()}};
};

TEST_F(AdapterCheckTest, TheDigestIsOfBothFiles) {
  const auto digest = adapter_files_digest(folder_);
  ASSERT_TRUE(digest) << digest.error().message;
  EXPECT_EQ(*digest, sha256("abc"));
  EXPECT_EQ(error({*digest, {}}), "");
  EXPECT_THAT(error({sha256("abd"), {}}), HasSubstr("pinned"));
}

TEST_F(AdapterCheckTest, TakesASignatureOfOpenssl) {
  EXPECT_THAT(error(signed_), HasSubstr("adapter.sig is missing"));
  write("adapter.sig", from_base64(kSignature).value());
  EXPECT_EQ(error(signed_), "");
  AdapterChecks others = signed_;
  others.signers[0][0] ^= 1;
  EXPECT_THAT(error(others), HasSubstr("not a signature of these files"));
  others.signers.push_back(signed_.signers[0]);
  EXPECT_EQ(error(others), "");  // one of several keys
}

TEST_F(AdapterCheckTest, ChangedFilesAndShortSignaturesFail) {
  write("adapter.sig", from_base64(kSignature).value());
  write("adapter_config.json", "a");
  EXPECT_THAT(error(signed_), HasSubstr("not a signature of these files"));
  write("adapter_config.json", "ab");
  write("adapter.sig", from_base64(kSignature).value().substr(1));
  EXPECT_THAT(error(signed_), HasSubstr("has 63 bytes"));
  write("adapter.sig", from_base64(kSignature).value() + "\n");
  EXPECT_THAT(error(signed_), HasSubstr("more than the limit of 64 bytes"));
}

TEST_F(AdapterCheckTest, SignsAsOpensslDoes) {
  write("key.pem", kPrivate);
  const auto made = sign_adapter(folder_, folder_ + "/key.pem");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->digest, sha256("abc"));
  EXPECT_EQ(ed25519_public_key_text(made->key), kPublic);
  EXPECT_EQ(read_file(folder_ + "/adapter.sig", 64).value(), from_base64(kSignature).value());
  write("key.pem", kPublic);
  EXPECT_THAT(sign_adapter(folder_, folder_ + "/key.pem").error().message,
              HasSubstr("key.pem: is not an Ed25519 private key"));
}

}  // namespace
}  // namespace sluice
