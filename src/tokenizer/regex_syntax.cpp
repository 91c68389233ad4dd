#include "tokenizer/regex_syntax.h"

#include <cctype>
#include <cstdio>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/unicode_tables.h"

namespace sluice {
namespace {

std::string class_body(unicode::Ranges ranges) {
  std::string out;
  std::uint32_t at = 0;
  for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) {
    const std::uint32_t first = at + ranges[i];
    at = first + ranges[i + 1];
    char text[40];
    std::snprintf(text, sizeof text, "\\x{%x}-\\x{%x}", first, at - 1);
    out += text;
  }
  return out;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) RETURN_IF_ERROR(step());
    return std::move(out_);
  }

 private:
  static Error refuse(std::string_view construct) {
    return unsupported("regular expression: '" + std::string(construct) + "' is not supported");
  }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }

  Status step() {
    const char c = peek();
    switch (c) {
      case '[': atom_ = out_.size(); return char_class();
      case '(': return open_group();
      case ')':
        atom_ = groups_.empty() ? out_.size() : groups_.back();
        if (!groups_.empty()) groups_.pop_back();
        break;
      case '\\': atom_ = out_.size(); return escape(Place::kOutside);
      case '{': return interval();
      case '*':
      case '+':
      case '?':
      case '|':
      case '^':
      case '$': break;
      default:
        atom_ = out_.size();
        // Copies all bytes of a character at once, so that an atom never starts inside a character.
        while ((static_cast<unsigned char>(peek(1)) & 0xC0) == 0x80) out_ += in_[at_++];
        break;
    }
    out_ += in_[at_++];
    return {};
  }

  Status open_group() {
    groups_.push_back(out_.size());
    out_ += in_[at_++];
    if (peek() == '*') return refuse("(*");
    if (peek() != '?') return {};
    out_ += in_[at_++];
    const char kind = peek();
    if (kind == ':' || kind == '=' || kind == '!' || kind == '>' || kind == '<') return {};
    for (; peek() == 'i' || peek() == 'm' || peek() == '-'; ++at_) {
      out_ += peek() == 'm' ? 's' : peek();  // Ruby's m is "dot matches newline"
    }
    if (peek() != ':' && peek() != ')') {
      return refuse("(?" + std::string(in_.substr(at_, 1)));
    }
    if (peek() == ')') {
      groups_.pop_back();
      out_ += in_[at_++];
    }
    return {};
  }

  // {n,m}: Ruby's {n,m}+ repeats the interval, PCRE2's is possessive; {n}? differs too.
  Status interval() {
    std::size_t end = at_ + 1;
    std::size_t commas = 0;
    for (; end < in_.size() && in_[end] != '}'; ++end) {
      if (in_[end] == ',') {
        ++commas;
      } else if (std::isdigit(static_cast<unsigned char>(in_[end])) == 0) {
        return refuse("{ as a letter; write \\{");
      }
    }
    if (end == in_.size() || end == at_ + 1 || commas > 1) return refuse("{ as a letter");
    std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    if (body == ",") return refuse("{,}");
    at_ = end + 1;
    const std::string text =
        "{" + std::string(body.front() == ',' ? "0" : "") + std::string(body) + "}";
    if (peek() == '+') {
      out_.insert(atom_, "(?:");
      out_ += text + ")";
      return {};
    }
    if (peek() == '?' && commas == 0) return refuse("{n}?");
    out_ += text;
    return {};
  }

  Status char_class() {
    out_ += in_[at_++];
    if (peek() == '^') out_ += in_[at_++];
    if (peek() == ']') return refuse("[] or [^]");
    while (at_ < in_.size() && peek() != ']') {
      if (peek() == '[') return refuse("[ inside a class");
      if (peek() == '&' && peek(1) == '&') return refuse("&& inside a class");
      if (peek() == '\\') {
        RETURN_IF_ERROR(escape(Place::kInside));
      } else {
        out_ += in_[at_++];
      }
    }
    if (at_ == in_.size()) return invalid_argument("regular expression: [ without ]");
    out_ += in_[at_++];
    return {};
  }

  enum class Place { kOutside, kInside };
  enum class Sense { kPositive, kNegative };

  Status put_class(const std::string& body, Sense sense, Place place, std::string_view name) {
    if (place == Place::kOutside) {
      out_ += (sense == Sense::kNegative ? "[^" : "[") + body + "]";
    } else if (sense == Sense::kNegative) {
      return refuse(std::string(name) + " inside a class");
    } else {
      out_ += body;
    }
    return {};
  }

  static std::string category_body(std::string_view name) {
    std::string body = "\\p{" + std::string(name) + "}";
    for (const unicode::NewInCategory& entry : unicode::newer_than_pcre2()) {
      if (entry.category == name) body += class_body(entry.ranges);
    }
    return body;
  }

  Status property(Sense sense, Place place) {
    const std::size_t start = at_ - 2;
    const std::size_t end = in_.find('}', at_);
    if (peek() != '{' || end == std::string_view::npos) return refuse("\\p without {name}");
    std::string_view name = in_.substr(at_ + 1, end - at_ - 1);
    if (name.starts_with('^')) {
      name.remove_prefix(1);
      sense = sense == Sense::kNegative ? Sense::kPositive : Sense::kNegative;
    }
    if (name.empty()) return refuse("\\p{}");
    for (const char c : name) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') return refuse("\\p{..}");
    }
    at_ = end + 1;
    return put_class(category_body(name), sense, place, in_.substr(start, at_ - start));
  }

  Status escape(Place place) {
    const char c = peek(1);
    if (at_ + 1 >= in_.size()) return invalid_argument("regular expression: ends with \\");
    const std::string name = {'\\', c};
    at_ += 2;
    const Sense sense =
        std::isupper(static_cast<unsigned char>(c)) != 0 ? Sense::kNegative : Sense::kPositive;
    switch (c) {
      case 's':
      case 'S': return put_class(class_body(unicode::spaces()), sense, place, name);
      case 'h':
      case 'H': return put_class("0-9a-fA-F", sense, place, name);
      case 'd':
      case 'D': return put_class(category_body("Nd"), sense, place, name);
      case 'p':
      case 'P': return property(sense, place);
      case 'v': out_ += "\\x{b}"; return {};
      case 'u': return code_point(4);
      case 'x':
        if (peek() != '{') return code_point(2);
        out_ += name;  // the braces are copied as letters of the escape
        while (at_ < in_.size() && peek() != '}') out_ += in_[at_++];
        if (at_ < in_.size()) out_ += in_[at_++];
        return {};
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e': break;
      case 'A':
      case 'z':
        if (place == Place::kInside) return refuse(name);
        break;
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) return refuse(name);
        break;
    }
    out_ += name;
    while ((static_cast<unsigned char>(peek()) & 0xC0) == 0x80) out_ += in_[at_++];
    return {};
  }

  Status code_point(std::size_t digits) {
    std::string hex;
    for (; hex.size() < digits && std::isxdigit(static_cast<unsigned char>(peek())) != 0; ++at_) {
      hex += peek();
    }
    const bool is_byte = digits == 2 && hex.size() == 2 && hex[0] >= '8';
    if (hex.size() != digits || is_byte) return refuse("\\x or \\u of a byte or too short");
    out_ += "\\x{" + hex + "}";
    return {};
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;             // where the last atom starts in out_
  std::vector<std::size_t> groups_;  // where the open groups start in out_
};

}  // namespace

Result<std::string> to_pcre2_syntax(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace sluice
