#include "server/api_keys.h"

#include <gtest/gtest.h>

#include <optional>

namespace sluice {
namespace {

std::string error_of(std::string_view text) {
  const auto keys = ApiKeys::parse(text, "keys.txt");
  return keys ? "" : keys.error().message;
}

std::optional<std::string_view> find(const ApiKeys& keys, const std::string& header) {
  const ApiKey* key = keys.find(&header);
  if (key == nullptr) return std::nullopt;
  return key->name;
}

TEST(ApiKeys, NamesCommentsBlankLinesAndWindowsLineEnds) {
  const auto keys = ApiKeys::parse(
      "# tenants\n\nalice sk-alice-1\r\nalice sk-alice-2  # the next one\nbob\tsk-bob-00",
      "keys.txt");
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->size(), 3U);
  EXPECT_EQ(find(*keys, "Bearer sk-alice-1"), "alice");
  EXPECT_EQ(find(*keys, "bearer   sk-alice-2"), "alice");
  EXPECT_EQ(find(*keys, "BEARER sk-bob-00"), "bob");
}

TEST(ApiKeys, AnAdminIsMarkedBehindTheKey) {
  const auto keys = ApiKeys::parse("ops sk-ops-0001 role=admin # us\nalice sk-alice-1", "keys");
  ASSERT_TRUE(keys) << keys.error().message;
  const std::string ops = "Bearer sk-ops-0001";
  const std::string alice = "Bearer sk-alice-1";
  EXPECT_TRUE(keys->find(&ops)->is_admin);
  EXPECT_FALSE(keys->find(&alice)->is_admin);
}

TEST(ApiKeys, RefusesUnknownKeys) {
  const auto keys = ApiKeys::parse("alice sk-alice-1\n", "keys.txt");
  ASSERT_TRUE(keys);
  EXPECT_EQ(keys->find(nullptr), nullptr);
  for (const char* header :
       {"", "Bearer", "Bearer ", "Bearer    ", "sk-alice-1", "Basic sk-alice-1", "Bearer sk-alice-",
        "Bearer sk-alice-11", "Bearer sk-alice-1 ", "Bearer SK-ALICE-1", "Bearer alice"}) {
    EXPECT_EQ(find(*keys, header), std::nullopt) << header;
  }
}

TEST(ApiKeys, BadLinesAreNamedAndTheKeyStaysOutOfTheMessage) {
  const std::string form = "a line must be `NAME KEY [SETTING=VALUE ...]`";
  EXPECT_EQ(error_of("alice sk-alice-1\nbob sk-bob-00 bob\n"),
            "keys.txt:2: " + form + "; '#' begins a comment");
  EXPECT_EQ(error_of("sk-nameless\n"), "keys.txt:1: " + form + ", where NAME is the tenant");
  EXPECT_EQ(error_of("sk-nameless role=admin\n"),
            "keys.txt:1: " + form + ", where NAME is the tenant");
  EXPECT_EQ(error_of("\n\nbob short\n"),
            "keys.txt:3: the key must be 8 to 512 visible ASCII characters");
  EXPECT_EQ(error_of("a sk-secret-1 share=2"),
            "keys.txt:1: unknown setting after the key; there are role=admin, rpm=N, tpm=N, "
            "concurrency=N, queue=N%, priority=N, weight=N and pins=SIZE");
  EXPECT_EQ(error_of("a sk-secret-1 weight=0"),
            "keys.txt:1: weight must be a whole number between 1 and 1000");
  EXPECT_EQ(error_of("a sk-secret-1 rpm=0"),
            "keys.txt:1: rpm must be a whole number between 1 and 1000000000");
  EXPECT_EQ(error_of("a sk-secret-1 queue=25"),
            "keys.txt:1: queue must be a whole number between 1% and 100%");
  EXPECT_EQ(error_of("a sk-secret-1 tpm=5 tpm=5"), "keys.txt:1: tpm is given twice");
  EXPECT_EQ(
      error_of("a sk-secret-1 tpm=5\na sk-secret-2 tpm=6"),
      "keys.txt:2: tpm differs from that of an earlier line with the same name; the keys of a "
      "name share its limits, so give it once");
  EXPECT_EQ(error_of("a sk-secret-1 role=king"),
            "keys.txt:1: the only role is admin; write role=admin");
  EXPECT_EQ(error_of("a sk-secret-1 role=admin role=admin"), "keys.txt:1: role is given twice");
  EXPECT_EQ(error_of("al/ice sk-alice-1"),
            "keys.txt:1: the name must be up to 64 letters, digits and any of - _ . @");
  EXPECT_EQ(error_of("a sk-secret-1\nb sk-secret-1"), "keys.txt:2: this key appears twice");
  EXPECT_EQ(error_of("# nothing\n"), "keys.txt: contains no key, so no client could call");
  EXPECT_EQ(error_of("a sk-\x01\x02secret").find("secret"), std::string::npos);
}

TEST(ApiKeys, TheKeysOfANameShareItsLimits) {
  const auto keys = ApiKeys::parse(
      "a sk-alice-1 rpm=60 queue=25%\nb sk-bob-000\na sk-alice-2 rpm=60 tpm=1000 concurrency=4 "
      "priority=-3 weight=2 pins=2MiB",
      "keys");
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->limits_of("a"), (KeyLimits{60, 1000, 4, 25, -3, 2, 2 << 20}));
  EXPECT_EQ(keys->limits_of("b"), KeyLimits{});
  EXPECT_EQ(keys->limits_of("nobody"), KeyLimits{});
}

TEST(ApiKeys, AMissingFileIsNamed) {
  const auto keys = ApiKeys::load("/nonexistent/keys.txt");
  ASSERT_FALSE(keys);
  EXPECT_NE(keys.error().message.find("/nonexistent/keys.txt"), std::string::npos);
}

TEST(ApiKeys, OneKeyForAllClients) {
  const auto keys = ApiKeys::single("token-abc123");
  ASSERT_TRUE(keys) << keys.error().message;
  const std::string right = "Bearer token-abc123";
  const std::string wrong = "Bearer token-abc124";
  ASSERT_NE(keys->find(&right), nullptr);
  EXPECT_EQ(keys->find(&right)->name, "default");
  EXPECT_FALSE(keys->find(&right)->is_admin);
  EXPECT_EQ(keys->find(&wrong), nullptr);
  const auto refused = ApiKeys::single("short");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.find("short"), std::string::npos);
}

}  // namespace
}  // namespace sluice
