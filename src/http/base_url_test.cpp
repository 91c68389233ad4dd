#include "http/base_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::http {
namespace {

using testing::HasSubstr;

std::string url_error(std::string_view text) {
  const auto url = parse_base_url(text);
  return url ? "accepted" : url.error().message;
}

TEST(BaseUrl, TakesHostPortAndPrefix) {
  const auto url = parse_base_url("http://gpu-3.example.org:8080/team/a/");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->host, "gpu-3.example.org");
  EXPECT_EQ(url->port, 8080);
  EXPECT_EQ(url->authority, "gpu-3.example.org:8080");
  EXPECT_EQ(url->prefix, "/team/a");
}

TEST(BaseUrl, WithoutAPortItIsEighty) {
  const auto url = parse_base_url("http://localhost");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->port, 80);
  EXPECT_EQ(url->authority, "localhost");
  EXPECT_EQ(url->prefix, "");
}

TEST(BaseUrl, AddressesOfVersionSixStandInBrackets) {
  const auto url = parse_base_url("http://[::1]:8000");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->authority, "[::1]:8000");
}

TEST(BaseUrl, TheAddressThatOpenAiClientsTakeIsTakenToo) {
  EXPECT_EQ(parse_base_url("http://h:1/v1")->prefix, "");
  EXPECT_EQ(parse_base_url("http://h:1/v1/")->prefix, "");
  EXPECT_EQ(parse_base_url("http://h:1/proxy/v1")->prefix, "/proxy");
  EXPECT_EQ(parse_base_url("http://h:1/av1")->prefix, "/av1");
}

TEST(BaseUrl, TakesThePathOfAUnixSocket) {
  const auto url = parse_base_url("unix:/run/sluice.sock");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->unix_path, "/run/sluice.sock");
  EXPECT_EQ(url->authority, "localhost");
  EXPECT_EQ(url->prefix, "");
  EXPECT_EQ(server_name(*url), "unix:/run/sluice.sock");
  EXPECT_EQ(server_name(*parse_base_url("http://h:8000/a")), "h port 8000");
  EXPECT_THAT(url_error("unix:"), HasSubstr("path of the Unix-domain socket is empty"));
  EXPECT_THAT(url_error("unix:/" + std::string(107, 'a')), HasSubstr("at most 107"));
}

TEST(BaseUrl, TakesHttps) {
  const auto url = parse_base_url("https://api.example.org/team/v1");
  ASSERT_TRUE(url.has_value());
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->port, 443);
  EXPECT_EQ(url->host, "api.example.org");
  EXPECT_EQ(url->prefix, "/team");
  EXPECT_EQ(parse_base_url("https://h:8443")->port, 8443);
  EXPECT_FALSE(parse_base_url("http://h")->tls);
}

TEST(BaseUrl, SaysWhatIsWrong) {
  EXPECT_THAT(url_error("127.0.0.1:8000"),
              HasSubstr("'127.0.0.1:8000': it does not begin with http://, https:// or unix:"));
  EXPECT_THAT(url_error("http://"), HasSubstr("host is missing"));
  EXPECT_THAT(url_error("http://:80"), HasSubstr("host is missing"));
  EXPECT_THAT(url_error("http://h:0"), HasSubstr("'0' is not a port"));
  EXPECT_THAT(url_error("http://h:65536"), HasSubstr("'65536' is not a port"));
  EXPECT_THAT(url_error("http://h:8x"), HasSubstr("'8x' is not a port"));
  EXPECT_THAT(url_error("http://h:"), HasSubstr("'' is not a port"));
  EXPECT_THAT(url_error("http://[::1"), HasSubstr("']' is missing"));
  EXPECT_THAT(url_error("http://[::1]8000"), HasSubstr("':PORT'"));
  EXPECT_THAT(url_error("http://me:secret@h:1"), HasSubstr("a user in the address"));
  EXPECT_THAT(url_error("http://h:1/a?b=c"), HasSubstr("query"));
  EXPECT_THAT(url_error("http://h:1/a b"), HasSubstr("blanks"));
  EXPECT_THAT(url_error("http://h\r\nX: y:1/"), HasSubstr("host is missing or not valid"));
}

}  // namespace
}  // namespace sluice::http
