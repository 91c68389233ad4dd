#include "base/json_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>

#include "base/json_depth.h"

namespace sluice {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kLargest = "1.7976931348623157e308";
constexpr std::size_t kLargestExponent = 308;
// Every integer with fewer digits fits 64 bits.
constexpr std::size_t kSafeDigits = 18;
// Digits that determine a double.
constexpr std::size_t kDoubleDigits = 17;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The offset after the string that starts at text[at] with a quote.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return text.size();
}

std::size_t end_of_number(std::string_view text, std::size_t at) {
  const auto belongs = [](char c) {
    return is_digit(c) || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
  };
  while (at < text.size() && belongs(text[at])) ++at;
  return at;
}

bool fits_64_bits(std::string_view integer) {
  const char* const end = integer.data() + integer.size();
  std::int64_t negative = 0;
  std::uint64_t positive = 0;
  const auto parsed = integer.front() == '-' ? std::from_chars(integer.data(), end, negative)
                                             : std::from_chars(integer.data(), end, positive);
  return parsed.ec == std::errc();
}

// Whether a number with a fraction or an exponent, without its sign, exceeds the largest double.
bool overflows(std::string_view number) {
  const std::size_t exponent_at = number.find_first_of("eE");
  if (exponent_at == std::string_view::npos && number.size() <= kLargestExponent) return false;
  double value = 0;
  const char* const end = number.data() + number.size();
  if (std::from_chars(number.data(), end, value).ec != std::errc::result_out_of_range) return false;
  // Out of range can also mean too small, which parsers read as 0. A number above 1 is too large.
  const std::string_view mantissa = number.substr(0, exponent_at);
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  const std::size_t first = mantissa.find_first_not_of("0.");
  if (first == std::string_view::npos) return false;
  const auto magnitude = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  if (exponent_at == std::string_view::npos) return magnitude > 0;
  std::string_view exponent = number.substr(exponent_at + 1);
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  std::int32_t shift = 0;
  const auto parsed = std::from_chars(exponent.data(), exponent.data() + exponent.size(), shift);
  if (parsed.ec == std::errc::result_out_of_range) return !exponent.starts_with('-');
  return magnitude + shift > 0;
}

// Appends a form of the number (given without its sign) that parsers accept. Returns false if the
// number needs no change.
bool append_readable(std::string_view digits, std::string_view with_sign, std::string& out) {
  if (!std::all_of(digits.begin(), digits.end(), is_digit)) {
    if (!overflows(digits)) return false;
    out += kLargest;
    return true;
  }
  if (digits.size() <= kSafeDigits || digits.front() == '0' || fits_64_bits(with_sign)) {
    return false;
  }
  if (digits.size() > kLargestExponent) {
    out += kLargest;
    return true;
  }
  out += digits.front();
  out += '.';
  out += digits.substr(1, kDoubleDigits);
  out += 'e';
  out += std::to_string(digits.size() - 1);
  return true;
}

// Copies a document with changes. It copies nothing before the first change, because most documents
// need none.
class Rewriter {
 public:
  Rewriter(std::string_view text, std::string& storage) : text_(text), storage_(storage) {
    storage_.clear();
  }

  Result<std::string_view> run() {
    int depth = 0;
    for (std::size_t at = 0; at < text_.size();) {
      const char c = text_[at];
      if (c == '"') {
        at = end_of_string(text_, at);
      } else if (is_digit(c) || c == '-' || c == 'I' || c == 'N') {
        at = number(at);
      } else {
        if (c == '[' || c == '{') ++depth;
        if (c == ']' || c == '}') --depth;
        if (depth > kMaxJsonDepth) {
          return invalid_argument("nested deeper than " + std::to_string(kMaxJsonDepth) +
                                  " levels");
        }
        ++at;
      }
    }
    if (copied_ == 0) return text_;
    storage_.append(text_.substr(copied_));
    return std::string_view(storage_);
  }

 private:
  // Handles the number, NaN or Infinity at `at`; returns the offset after it.
  std::size_t number(std::size_t at) {
    const std::size_t digits = text_[at] == '-' ? at + 1 : at;
    const std::string_view rest = text_.substr(digits);
    if (rest.starts_with("Infinity")) return replace(digits, 8, kLargest);
    if (rest.starts_with("NaN") && digits == at) return replace(at, 3, "null");
    const std::size_t end = end_of_number(text_, digits);
    if (end == digits) return digits + (digits == at ? 1 : 0);
    readable_.clear();
    if (append_readable(text_.substr(digits, end - digits), text_.substr(at, end - at),
                        readable_)) {
      replace(digits, end - digits, readable_);
    }
    return end;
  }

  std::size_t replace(std::size_t at, std::size_t bytes, std::string_view with) {
    storage_.append(text_.substr(copied_, at - copied_));
    storage_.append(with);
    copied_ = at + bytes;
    return copied_;
  }

  std::string_view text_;
  std::string& storage_;
  std::size_t copied_ = 0;  // bytes of the text that are in storage_, copied or replaced
  std::string readable_;
};

}  // namespace

Result<std::string_view> strict_json(std::string_view text, std::string& storage) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return Rewriter(text, storage).run();
}

}  // namespace sluice
