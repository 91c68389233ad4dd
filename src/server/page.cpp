#include "server/page.h"

#include <fmt/format.h>

#include <cstdint>

#include "base/sha256.h"

namespace sluice {

// Made from page/index.html by the build.
extern const std::string_view kPageText;

namespace {

std::string base64(const Sha256Digest& digest) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < digest.size(); i += 3) {
    const std::size_t bytes = digest.size() - i < 3 ? digest.size() - i : 3;
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < bytes ? digest[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= bytes ? kLetters[group >> (18 - 6 * k) & 63U] : '=';
    }
  }
  return out;
}

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
    sources += fmt::format(" 'sha256-{}'", base64(sha256(html.substr(0, end))));
    html.remove_prefix(end);
  }
  return sources.empty() ? " 'none'" : sources;
}

}  // namespace

std::string page_html() { return std::string(kPageText); }

std::string security_policy_for(std::string_view html) {
  return fmt::format(
      "default-src 'none'; script-src{}; style-src{}; img-src data:; connect-src 'self'; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      sources_of(html, "script"), sources_of(html, "style"));
}

const std::string& page_security_policy() {
  static const std::string policy = security_policy_for(kPageText);
  return policy;
}

}  // namespace sluice
