#include "front/tool_literals.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxLiteralDepth = 64;
constexpr std::string_view kLiteralSpace = " \t\r\n";

class LiteralReader {
 public:
  // An empty `quote`: Python's literals.
  LiteralReader(std::string_view text, std::string_view quote) : rest_(text), quote_(quote) {}

  bool at_end() {
    skip_space();
    return rest_.empty();
  }

  bool take(std::string_view mark) {
    skip_space();
    if (!rest_.starts_with(mark)) return false;
    rest_.remove_prefix(mark.size());
    return true;
  }

  // A name up to `mark`, and the mark.
  std::optional<std::string> take_name(char mark) {
    skip_space();
    const std::size_t at = rest_.find(mark);
    if (at == std::string_view::npos) return std::nullopt;
    std::string_view name = rest_.substr(0, at);
    name = name.substr(0, name.find_last_not_of(kLiteralSpace) + 1);
    if (name.empty() || name.find_first_of("\"'(){}[],=") != std::string_view::npos) {
      return std::nullopt;
    }
    rest_.remove_prefix(at + 1);
    return std::string(name);
  }

  // (KEY `mark` VALUE, ..) up to `end`, behind the opening bracket.
  std::optional<Json> members(char mark, char end, int depth) {
    Json object = Json::object();
    while (!take({&end, 1})) {
      if (!object.empty() && !take(",")) return std::nullopt;
      if (!object.empty() && take({&end, 1})) break;
      const auto key = take_key(mark);
      if (!key) return std::nullopt;
      auto one = value(depth + 1);
      if (!one) return std::nullopt;
      object[*key] = *std::move(one);
    }
    return std::optional<Json>(std::move(object));
  }

 private:
  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kLiteralSpace), rest_.size()));
  }

  bool at_quote() const {
    return rest_.starts_with('"') || (python() && rest_.starts_with('\'')) ||
           (!python() && rest_.starts_with(quote_));
  }
  bool python() const { return quote_.empty(); }

  std::optional<std::string> take_key(char mark) {
    skip_space();
    if (!at_quote()) return take_name(mark);
    auto key = take_string();
    if (!key || !take({&mark, 1})) return std::nullopt;
    return key;
  }

  std::optional<Json> value(int depth) {
    if (depth > kMaxLiteralDepth) return std::nullopt;
    skip_space();
    if (at_quote()) {
      auto text = take_string();
      return text ? std::optional<Json>(std::in_place, *std::move(text)) : std::nullopt;
    }
    if (take("{")) return members(':', '}', depth);
    if (take("[")) return items(']', depth);
    if (python() && take("(")) return items(')', depth);
    return bare();
  }

  std::optional<Json> items(char end, int depth) {
    Json array = Json::array();
    while (!take({&end, 1})) {
      if (!array.empty() && !take(",")) return std::nullopt;
      if (!array.empty() && take({&end, 1})) break;
      auto one = value(depth + 1);
      if (!one) return std::nullopt;
      array.push_back(*std::move(one));
    }
    return std::optional<Json>(std::move(array));
  }

  // Numbers and names of values; in Gemma's calls also text that a model left without its mark.
  std::optional<Json> bare() {
    std::string_view text = rest_.substr(0, rest_.find_first_of(",]})"));
    rest_.remove_prefix(text.size());
    text = text.substr(0, text.find_last_not_of(kLiteralSpace) + 1);
    if (text.empty()) return std::nullopt;
    if (text == "None" || text == "null") return std::optional<Json>(std::in_place, nullptr);
    if (text == "True" || text == "true") return std::optional<Json>(std::in_place, true);
    if (text == "False" || text == "false") return std::optional<Json>(std::in_place, false);
    Json number = parse_ordered_json(text);
    if (number.is_number()) return std::optional<Json>(std::move(number));
    if (python()) return std::nullopt;
    return std::optional<Json>(std::in_place, std::string(text));
  }

  std::optional<std::string> take_string() {
    if (!python() && rest_.starts_with(quote_)) {
      rest_.remove_prefix(quote_.size());
      const std::size_t end = rest_.find(quote_);
      if (end == std::string_view::npos) return std::nullopt;
      std::string text(rest_.substr(0, end));
      rest_.remove_prefix(end + quote_.size());
      return text;
    }
    const char end = rest_.front();
    rest_.remove_prefix(1);
    std::string text;
    while (!rest_.empty() && rest_.front() != end) {
      if (rest_.front() != '\\') {
        const std::size_t plain =
            std::min(rest_.find_first_of(end == '"' ? "\\\"" : "\\'"), rest_.size());
        text += rest_.substr(0, plain);
        rest_.remove_prefix(plain);
      } else if (!take_escape(text)) {
        return std::nullopt;
      }
    }
    if (rest_.empty()) return std::nullopt;
    rest_.remove_prefix(1);
    return text;
  }

  // As Python: an escape that is not known stays as it is.
  bool take_escape(std::string& text) {
    if (rest_.size() < 2) return false;
    const char kind = rest_[1];
    rest_.remove_prefix(2);
    constexpr std::string_view kKinds = "\"'\\/bfnrt";
    constexpr std::string_view kValues = "\"'\\/\b\f\n\r\t";
    if (const std::size_t at = kKinds.find(kind); at != std::string_view::npos) {
      text += kValues[at];
      return true;
    }
    if (kind == '\n') return true;
    if (kind == 'x' || kind == 'u' || kind == 'U') return take_code(kind, text);
    text += '\\';
    text += kind;
    return true;
  }

  bool take_code(char kind, std::string& text) {
    auto code = take_hex(kind == 'x' ? 2 : kind == 'u' ? 4 : 8);
    if (!code) return false;
    const bool high = *code >= 0xD800 && *code < 0xDC00;
    if (high && rest_.starts_with("\\u")) {
      const std::string_view before = rest_;
      rest_.remove_prefix(2);
      const auto low = take_hex(4);
      if (!low) return false;
      if (*low >= 0xDC00 && *low < 0xE000) {
        utf8::append(0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00), text);
        return true;
      }
      rest_ = before;
    }
    if (*code >= 0x110000) return false;
    if (*code >= 0xD800 && *code < 0xE000) {
      text += utf8::kReplacement;  // a half of a pair
    } else {
      utf8::append(*code, text);
    }
    return true;
  }

  std::optional<std::uint32_t> take_hex(std::size_t digits) {
    if (rest_.size() < digits) return std::nullopt;
    std::uint32_t value = 0;
    for (const char c : rest_.substr(0, digits)) {
      constexpr std::string_view kDigits = "0123456789abcdef0123456789ABCDEF";
      const std::size_t at = kDigits.find(c);
      if (at == std::string_view::npos) return std::nullopt;
      value = value * 16 + static_cast<std::uint32_t>(at % 16);
    }
    rest_.remove_prefix(digits);
    return value;
  }

  std::string_view rest_;
  std::string_view quote_;
};

}  // namespace

std::optional<std::vector<ToolCall>> read_python_calls(std::string_view text) {
  LiteralReader reader(text, {});
  if (!reader.take("[")) return std::nullopt;
  std::vector<ToolCall> calls;
  while (!reader.take("]")) {
    if (!calls.empty() && !reader.take(",")) return std::nullopt;
    if (!calls.empty() && reader.take("]")) break;
    auto name = reader.take_name('(');
    if (!name) return std::nullopt;
    const auto arguments = reader.members('=', ')', 0);
    if (!arguments) return std::nullopt;
    calls.push_back({*std::move(name), dump_json(*arguments)});
  }
  if (!reader.at_end()) return std::nullopt;
  return calls;
}

std::optional<ToolCall> read_gemma_call(std::string_view text, std::string_view quote) {
  LiteralReader reader(text, quote);
  if (!reader.take("call:")) return std::nullopt;
  auto name = reader.take_name('{');
  if (!name) return std::nullopt;
  const auto arguments = reader.members(':', '}', 0);
  if (!arguments || !reader.at_end()) return std::nullopt;
  return ToolCall{*std::move(name), dump_json(*arguments)};
}

}  // namespace sluice
