// Stripping, splitting, quoting and number texts (text.h).
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

template <class Drop>
std::string_view strip_if(std::string_view text, Side side, Drop drop) {
  std::size_t begin = 0;
  if (side != Side::kRight) {
    while (begin < text.size()) {
      std::size_t next = begin;
      if (!drop(next_code_point(text, &next))) break;
      begin = next;
    }
  }
  std::size_t end = text.size();
  if (side != Side::kLeft) {
    while (end > begin) {
      const std::size_t start = utf8::previous(text, end);
      std::size_t next = start;
      if (!drop(next_code_point(text, &next))) break;
      end = start;
    }
  }
  return text.substr(begin, end - begin);
}

bool is_line_end(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

void append_hex(std::string& out, char prefix, int digits, char32_t c) {
  static constexpr char kHex[] = "0123456789abcdef";
  out.push_back('\\');
  out.push_back(prefix);
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
    out.push_back(kHex[(c >> shift) & 0xF]);
  }
}

// Drops the underscores that Python allows between digits; false for any other underscore.
bool drop_underscores(std::string_view text, std::string* out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out->push_back(text[i]);
      continue;
    }
    const auto is_digit = [&](std::size_t k) {
      return k < text.size() && std::isalnum(static_cast<unsigned char>(text[k])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return false;
  }
  return true;
}

}  // namespace

std::string_view strip_space(std::string_view text, Side side) {
  return strip_if(text, side, is_space);
}

std::string_view strip_chars(std::string_view text, std::string_view chars, Side side) {
  std::vector<char32_t> set;
  for (std::size_t i = 0; i < chars.size();) set.push_back(next_code_point(chars, &i));
  std::sort(set.begin(), set.end());
  return strip_if(text, side,
                  [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::vector<std::string_view> split_space(std::string_view text, std::int64_t max_splits,
                                          Side from) {
  std::vector<std::string_view> parts;
  while (true) {
    text = strip_space(text, from == Side::kLeft ? Side::kLeft : Side::kRight);
    if (text.empty()) break;
    if (max_splits >= 0 && static_cast<std::int64_t>(parts.size()) >= max_splits) {
      parts.push_back(strip_space(text, from == Side::kLeft ? Side::kLeft : Side::kRight));
      break;
    }
    if (from == Side::kLeft) {
      std::size_t end = 0;
      while (end < text.size()) {
        std::size_t next = end;
        if (is_space(next_code_point(text, &next))) break;
        end = next;
      }
      parts.push_back(text.substr(0, end));
      text.remove_prefix(end);
    } else {
      std::size_t begin = text.size();
      while (begin > 0) {
        const std::size_t start = utf8::previous(text, begin);
        std::size_t next = start;
        if (is_space(next_code_point(text, &next))) break;
        begin = start;
      }
      parts.push_back(text.substr(begin));
      text = text.substr(0, begin);
    }
  }
  if (from == Side::kRight) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t at = i;
    const char32_t c = next_code_point(text, &i);
    if (!is_line_end(c)) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(text.substr(begin, (keep_ends ? i : at) - begin));
    begin = i;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string quote(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char mark = has_single && !has_double ? '"' : '\'';
  std::string out(1, mark);
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, &i);
    if (c == static_cast<char32_t>(mark) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      utf8::append(c, out);
    } else if (c < 0x100) {
      append_hex(out, 'x', 2, c);
    } else if (c < 0x10000) {
      append_hex(out, 'u', 4, c);
    } else {
      append_hex(out, 'U', 8, c);
    }
  }
  out.push_back(mark);
  return out;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  // The shortest digits that read back as the same number; Python lays them out itself.
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out.push_back('-');
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  const std::string_view power_text = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
  int exponent = 0;
  std::from_chars(power_text.data(), power_text.data() + power_text.size(), exponent);
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c != '.') digits.push_back(c);
  }
  if (exponent < -4 || exponent >= 16) {
    out.push_back(digits[0]);
    if (digits.size() > 1) out.append(".").append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    const std::string power = std::to_string(std::abs(exponent));
    if (power.size() < 2) out.push_back('0');
    return out + power;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  text = strip_space(text, Side::kBoth);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    const int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      base = prefix;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  std::string digits;
  if (!drop_underscores(text, &digits) || digits.empty() || digits[0] == '-') return std::nullopt;
  if (base == 0) {
    if (digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) return std::nullopt;
    base = 10;
  }
  if (negative) digits.insert(0, "-");
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip_space(text, Side::kBoth);
  std::string digits;
  if (!drop_underscores(text, &digits) || digits.empty()) return std::nullopt;
  std::string_view rest = digits;
  bool negative = false;
  if (rest[0] == '+' || rest[0] == '-') {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  const std::string word = to_lower(rest);
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = HUGE_VAL;
  } else if (word == "nan") {
    value = std::nan("");
  } else {
    // from_chars would also read "inf" and "nan(..)": only digits and a point may begin a number.
    if (word.empty() || (word[0] != '.' && (word[0] < '0' || word[0] > '9'))) return std::nullopt;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (end != rest.data() + rest.size()) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
      // from_chars does not say on which side; the exponent's sign does, as no digits can.
      value = word.find("e-") != std::string::npos || word[0] == '0' ? 0.0 : HUGE_VAL;
    } else if (error != std::errc()) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

}  // namespace sluice::jinja
