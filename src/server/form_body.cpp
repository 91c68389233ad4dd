#include "server/form_body.h"

#include <fmt/format.h>

#include <string_view>

#include "base/ascii.h"

namespace sluice {
namespace {

// "multipart/form-data" of "Multipart/Form-Data; boundary=x".
std::string_view media_type(std::string_view content_type) {
  return ascii::trimmed(content_type.substr(0, content_type.find(';')));
}

}  // namespace

std::optional<ApiError> refuse_form(const http::Request& request) {
  const std::string* content_type = request.header("Content-Type");
  if (content_type == nullptr) return std::nullopt;
  const std::string_view type = media_type(*content_type);
  std::string_view form;
  for (const std::string_view one : {"application/x-www-form-urlencoded", "multipart/form-data"}) {
    if (ascii::equals_ignoring_case(type, one)) form = one;
  }
  const std::size_t first = request.body.find_first_not_of(" \t\r\n");
  if (form.empty() || first == std::string::npos || request.body[first] == '{') return std::nullopt;
  return bad_field("", fmt::format("the body is a form (Content-Type: {}); expected a JSON object, "
                                   "with Content-Type: application/json",
                                   form));
}

}  // namespace sluice
