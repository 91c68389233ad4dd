#include "server/form_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& content_type, const std::string& body) {
  http::Request request;
  request.headers = {{"content-type", content_type}};
  request.body = body;
  const auto error = refuse_form(request);
  return error ? error->message : "";
}

TEST(FormBody, IsRefusedByName) {
  EXPECT_THAT(refusal("application/x-www-form-urlencoded", "model=demo&prompt=x"),
              HasSubstr("is a form (Content-Type: application/x-www-form-urlencoded); expected a "
                        "JSON object, with Content-Type: application/json"));
  EXPECT_THAT(refusal(" Multipart/Form-Data ; boundary=b", "--b\r\nContent-Disposition: form-data"),
              HasSubstr("is a form (Content-Type: multipart/form-data)"));
}

TEST(FormBody, AnObjectIsReadUnderAnyContentType) {
  EXPECT_EQ(refusal("application/x-www-form-urlencoded", " {\"model\":\"demo\"}"), "");
  EXPECT_EQ(refusal("application/json", "model=demo"), "");
  EXPECT_EQ(refusal("text/plain", "model=demo"), "");
  EXPECT_EQ(refusal(";", "model=demo"), "");
  EXPECT_EQ(refusal("", "model=demo"), "");
}

TEST(FormBody, AnEmptyBodyIsNoForm) {
  EXPECT_EQ(refusal("application/x-www-form-urlencoded", ""), "");
  EXPECT_EQ(refusal("multipart/form-data; boundary=b", " \r\n"), "");
  EXPECT_FALSE(refuse_form(http::Request()).has_value());
}

}  // namespace
}  // namespace sluice
