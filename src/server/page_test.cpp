#include "server/page.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Page, IsWholeAndLoadsNothingFromElsewhere) {
  const std::string html(page_html());
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_NE(html.find("</html>"), std::string::npos);
  EXPECT_EQ(html.find(" src=\"http"), std::string::npos);
  EXPECT_EQ(html.find("@import"), std::string::npos);
  EXPECT_EQ(html.find("/*include"), std::string::npos) << "a shared part was not put in";
  EXPECT_NE(html.find("const poll ="), std::string::npos);
}

TEST(Page, ThePolicyNamesScriptsAndStylesByDigest) {
  // printf 'alert(1)' | openssl dgst -sha256 -binary | base64
  const std::string policy = security_policy_for("<style>p{}</style><script>alert(1)</script>");
  EXPECT_NE(policy.find("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"),
            std::string::npos)
      << policy;
  EXPECT_NE(policy.find("style-src 'sha256-"), std::string::npos);
  EXPECT_NE(security_policy_for("<p>").find("script-src 'none'"), std::string::npos);
  const std::string own = security_policy_for(page_html());
  EXPECT_NE(own.find("script-src 'sha256-"), std::string::npos);
  EXPECT_NE(own.find("style-src 'sha256-"), std::string::npos);
}

}  // namespace
}  // namespace sluice
