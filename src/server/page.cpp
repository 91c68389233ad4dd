#include "server/page.h"

#include <fmt/format.h>

#include <span>

#include "base/base64.h"
#include "base/sha256.h"

namespace sluice {

// Made from page/index.html by the build.
extern const std::string_view kPageText;

namespace {

// The digests of the text between <tag> and </tag>, as sources of a policy.
std::string sources_of(std::string_view html, std::string_view tag) {
  const std::string open = fmt::format("<{}>", tag);
  const std::string close = fmt::format("</{}>", tag);
  std::string sources;
  while (true) {
    const std::size_t begin = html.find(open);
    if (begin == std::string_view::npos) break;
    html.remove_prefix(begin + open.size());
    const std::size_t end = html.find(close);
    if (end == std::string_view::npos) break;
    const Sha256Digest digest = sha256(html.substr(0, end));
    sources += fmt::format(" 'sha256-{}'", to_base64(std::as_bytes(std::span(digest))));
    html.remove_prefix(end);
  }
  return sources.empty() ? " 'none'" : sources;
}

}  // namespace

std::string_view page_html() { return kPageText; }

std::string security_policy_for(std::string_view html) {
  return fmt::format(
      "default-src 'none'; script-src{}; style-src{}; img-src data:; connect-src 'self'; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      sources_of(html, "script"), sources_of(html, "style"));
}

http::Response page_response(std::string_view html) {
  http::Response response;
  response.content_type = "text/html; charset=utf-8";
  response.headers = {{"Content-Security-Policy", security_policy_for(html)},
                      {"Cache-Control", "no-cache"},
                      {"X-Content-Type-Options", "nosniff"}};
  response.body = std::string(html);
  return response;
}

}  // namespace sluice
