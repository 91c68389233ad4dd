#include "chat_template/lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>

#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, Heap& heap) : source_(source), heap_(heap) {}

  Result<std::vector<Token>> run() {
    while (position_ < source_.size()) RETURN_IF_ERROR(lex_root());
    emit(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  char at(std::size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  bool starts_with(std::size_t i, std::string_view text) const {
    return source_.substr(std::min(i, source_.size())).starts_with(text);
  }

  void emit(TokenType type, std::string_view text, Value constant = Value()) {
    tokens_.push_back({type, line_, text, constant});
  }
  Error fail(std::string_view message) const { return syntax_error(line_, message); }

  // Moves to `end`, counting lines.
  void advance(std::size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    line_starting_ = end > position_ && source_[end - 1] == '\n';
    position_ = end;
  }

  std::size_t skip_space(std::size_t i) const {
    while (i < source_.size()) {
      std::size_t next = i;
      if (!is_space(next_code_point(source_, &next))) break;
      i = next;
    }
    return i;
  }

  // Text before a tag, without the whitespace that the tag's sign or lstrip_blocks removes.
  std::string_view trimmed_data(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip_space(text, Side::kRight);
    if (sign == '+' || is_variable) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_starting_) return text;
    const std::string_view blanks = text.substr(begin);
    return strip_space(blanks, Side::kBoth).empty() ? text.substr(0, begin) : text;
  }

  void emit_data(std::string_view text, char sign, bool is_variable) {
    const std::string_view kept = trimmed_data(text, sign, is_variable);
    if (!kept.empty()) emit(TokenType::kData, kept);
  }

  // The end of the raw block's begin tag at `tag`; nothing if the tag is another one.
  std::optional<std::size_t> raw_tag_end(std::size_t tag, std::string_view word) const {
    std::size_t i = tag + 2;
    if (at(i) == '-' || at(i) == '+') ++i;
    i = skip_space(i);
    if (!starts_with(i, word)) return std::nullopt;
    i = skip_space(i + word.size());
    const bool closing = word == "endraw";
    if (starts_with(i, "-%}")) return skip_space(i + 3);
    if (closing && starts_with(i, "+%}")) return i + 3;
    if (!starts_with(i, "%}")) return std::nullopt;
    return i + 2 + (closing && at(i + 2) == '\n' ? 1 : 0);
  }

  char sign_at(std::size_t i) const { return at(i) == '-' || at(i) == '+' ? at(i) : '\0'; }

  Status lex_root() {
    std::size_t tag = position_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos) {
        emit(TokenType::kData, source_.substr(position_));
        advance(source_.size());
        return {};
      }
      const char kind = at(tag + 1);
      if (kind == '%' || kind == '{' || kind == '#') break;
      ++tag;
    }
    const char sign = sign_at(tag + 2);
    const char kind = at(tag + 1);
    emit_data(source_.substr(position_, tag - position_), sign, kind == '{');
    if (kind == '%') {
      if (const auto raw = raw_tag_end(tag, "raw")) return lex_raw(*raw);
    }
    advance(tag + 2 + (sign != '\0' ? 1 : 0));
    if (kind == '#') return lex_comment();
    emit(kind == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    return lex_code(kind == '%');
  }

  Status lex_raw(std::size_t body) {
    advance(body);
    for (std::size_t tag = source_.find("{%", body); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 1)) {
      const auto end = raw_tag_end(tag, "endraw");
      if (!end) continue;
      emit_data(source_.substr(position_, tag - position_), sign_at(tag + 2), false);
      advance(*end);
      return {};
    }
    return fail("Missing end of raw directive");
  }

  Status lex_comment() {
    const std::size_t close = source_.find("#}", position_);
    if (close == std::string_view::npos) return fail("Missing end of comment tag");
    const char sign = close > position_ ? sign_at(close - 1) : '\0';
    std::size_t end = close + 2;
    if (sign == '-') {
      end = skip_space(end);
    } else if (sign == '\0' && at(end) == '\n') {
      ++end;
    }
    advance(end);
    return {};
  }

  // The end of the current tag, if it ends at the position.
  std::optional<std::size_t> tag_end(bool is_block) const {
    const std::string_view close = is_block ? "%}" : "}}";
    const char sign = at(position_);
    if (sign == '-' && starts_with(position_ + 1, close)) return skip_space(position_ + 3);
    if (is_block && sign == '+' && starts_with(position_ + 1, close)) return position_ + 3;
    if (!starts_with(position_, close)) return std::nullopt;
    return position_ + 2 + (is_block && at(position_ + 2) == '\n' ? 1 : 0);
  }

  Status lex_code(bool is_block) {
    std::string open;  // the closing brackets that are due
    while (position_ < source_.size()) {
      if (open.empty()) {
        if (const auto end = tag_end(is_block)) {
          emit(is_block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
          advance(*end);
          return {};
        }
      }
      const std::size_t after_space = skip_space(position_);
      if (after_space != position_) {
        advance(after_space);
        continue;
      }
      const char c = at(position_);
      if (is_digit(c)) {
        RETURN_IF_ERROR(lex_number());
      } else if (c == '\'' || c == '"') {
        RETURN_IF_ERROR(lex_string(c));
      } else if (const std::size_t end = name_end(); end != position_) {
        emit(TokenType::kName, source_.substr(position_, end - position_));
        advance(end);
      } else {
        RETURN_IF_ERROR(lex_operator(open));
      }
    }
    return {};
  }

  std::size_t name_end() const {
    std::size_t i = position_;
    while (i < source_.size()) {
      std::size_t next = i;
      const char32_t c = next_code_point(source_, &next);
      const bool letter = c == '_' || is_alpha(c);
      if (!letter && !(i != position_ && is_decimal(c))) break;
      i = next;
    }
    return i;
  }

  // The end of digits that may hold single underscores between them.
  template <class IsDigit>
  std::size_t digits_end(std::size_t i, IsDigit is) const {
    while (is(at(i)) || (at(i) == '_' && is(at(i + 1)))) ++i;
    return i;
  }

  std::string_view without_underscores(std::string_view digits, std::string* buffer) const {
    buffer->clear();
    std::copy_if(digits.begin(), digits.end(), std::back_inserter(*buffer),
                 [](char c) { return c != '_'; });
    return *buffer;
  }

  Status lex_number() {
    std::string buffer;
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    const std::size_t whole = digits_end(position_, is_digit);
    std::size_t end = whole;
    if (at(end) == '.' && is_digit(at(end + 1))) end = digits_end(end + 1, is_digit);
    if (at(end) == 'e' || at(end) == 'E') {
      const std::size_t digits = end + (at(end + 1) == '+' || at(end + 1) == '-' ? 2 : 1);
      if (is_digit(at(digits))) end = digits_end(digits, is_digit);
    }
    if (end != whole && !after_dot) {
      const auto value =
          parse_float(without_underscores(source_.substr(position_, end - position_), &buffer));
      if (!value) return fail("bad float literal");
      emit(TokenType::kNumber, source_.substr(position_, end - position_), Value::real(*value));
      advance(end);
      return {};
    }
    return lex_integer(whole);
  }

  Status lex_integer(std::size_t end) {
    std::string buffer;
    const char kind = static_cast<char>(at(position_ + 1) | 0x20);
    int base = 10;
    if (at(position_) == '0') {
      const auto is_of_base = [&](char c) {
        if (kind == 'x') return std::isxdigit(static_cast<unsigned char>(c)) != 0;
        return c >= '0' && c <= (kind == 'o' ? '7' : '1');
      };
      const std::size_t digits = position_ + 2 + (at(position_ + 2) == '_' ? 1 : 0);
      if ((kind == 'x' || kind == 'o' || kind == 'b') && is_of_base(at(digits))) {
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
        end = digits_end(digits, is_of_base);
      } else {
        end = digits_end(position_, [](char c) { return c == '0'; });
      }
    }
    const std::string_view text = source_.substr(position_, end - position_);
    const auto value = parse_integer(without_underscores(text, &buffer), base);
    if (!value && base != 10) return fail("integer literal does not fit 64 bits");
    emit(TokenType::kNumber, text,
         value ? Value::integer(*value) : Value::big_integer(heap_.store(buffer)));
    advance(end);
    return {};
  }

  Status lex_string(char quote) {
    std::size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size())
      return fail("unexpected char " + std::string(1, quote) + ": the string is not closed");
    const std::string_view body = source_.substr(position_ + 1, end - position_ - 1);
    std::string_view text = body;
    if (body.find('\\') != std::string_view::npos) {
      std::string decoded;
      RETURN_IF_ERROR(unescape(body, &decoded));
      text = heap_.store(decoded);
    }
    emit(TokenType::kString, text);
    advance(end + 1);
    return {};
  }

  // One escape of Python's unicode-escape; `i` is after the backslash.
  Status append_escape(std::string_view body, std::size_t* i, std::string* out) const {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = body[(*i)++];
    if (c == '\n') return {};
    if (const std::size_t k = kLetters.find(c); k != std::string_view::npos) {
      out->push_back(kMeanings[k]);
      return {};
    }
    std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    std::uint32_t code = 0;
    if (digits != 0) {
      const std::string_view hex = body.substr(*i, digits);
      const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
      if (hex.size() != digits || error != std::errc() || end != hex.data() + hex.size()) {
        return fail("truncated \\" + std::string(1, c) + " escape in a string");
      }
      *i += digits;
    } else if (c >= '0' && c <= '7') {
      --*i;
      for (digits = 0; digits < 3 && *i < body.size() && body[*i] >= '0' && body[*i] <= '7';
           ++digits) {
        code = code * 8 + static_cast<std::uint32_t>(body[(*i)++] - '0');
      }
    } else if (c == 'N') {
      return fail("\\N{...} escapes are not supported in strings");
    } else {
      out->push_back('\\');
      out->push_back(c);
      return {};
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return fail("a string escape is not a Unicode character");
    }
    utf8::append(code, *out);
    return {};
  }

  Status unescape(std::string_view body, std::string* out) const {
    for (std::size_t i = 0; i < body.size();) {
      if (body[i] != '\\') {
        out->push_back(body[i++]);
        continue;
      }
      if (++i >= body.size()) return fail("\\ at end of string");
      RETURN_IF_ERROR(append_escape(body, &i, out));
    }
    return {};
  }

  Status lex_operator(std::string& open) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    std::size_t size = 0;
    for (const std::string_view two : kTwo) {
      if (starts_with(position_, two)) size = 2;
    }
    const char c = at(position_);
    if (size == 0 && kOne.find(c) != std::string_view::npos) size = 1;
    if (size == 0) {
      std::size_t end = position_;
      next_code_point(source_, &end);
      return fail("unexpected char " + quote(source_.substr(position_, end - position_)));
    }
    if (size == 1) {
      if (c == '{' || c == '(' || c == '[') open.push_back(c == '{' ? '}' : c == '(' ? ')' : ']');
      if (c == '}' || c == ')' || c == ']') {
        if (open.empty()) return fail("unexpected '" + std::string(1, c) + "'");
        const char expected = open.back();
        open.pop_back();
        if (expected != c) {
          return fail("unexpected '" + std::string(1, c) + "', expected '" +
                      std::string(1, expected) + "'");
        }
      }
    }
    emit(TokenType::kOperator, source_.substr(position_, size));
    advance(position_ + size);
    return {};
  }

  std::string_view source_;
  Heap& heap_;
  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source, Heap& heap) {
  return Lexer(source, heap).run();
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out.push_back('\n');
    } else {
      out.push_back(source[i]);
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

Error syntax_error(int line, std::string_view message) {
  return invalid_argument("line " + std::to_string(line) + ": " + std::string(message));
}

}  // namespace sluice::jinja
