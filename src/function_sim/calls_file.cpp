#include "function_sim/calls_file.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <unordered_map>

namespace sluice {
namespace {

constexpr std::string_view kHeader = "seconds,function,prompt_tokens,output_tokens";
constexpr double kLongest = 1e8;  // seconds

template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string_view take_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

class CallReader {
 public:
  CallReader(std::string_view path, std::span<const std::string> functions) : path_(path) {
    for (std::size_t i = 0; i < functions.size(); ++i) {
      numbers_.emplace(functions[i], static_cast<std::int32_t>(i));
    }
  }

  Status read(std::string_view line, std::int64_t number, std::vector<FunctionCall>& calls) {
    std::array<std::string_view, 4> fields;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::size_t end = i + 1 < fields.size() ? line.find(',') : line.size();
      if (end == std::string_view::npos) return bad(number, "has fewer than 4 fields");
      fields[i] = line.substr(0, end);
      line.remove_prefix(std::min(end + 1, line.size()));
    }
    double seconds = 0;
    if (!read_number(fields[0], seconds) || !(seconds >= 0) || seconds > kLongest) {
      return bad(number,
                 fmt::format("seconds: must be a number of at least 0, got '{}'", fields[0]));
    }
    FunctionCall call;
    call.arrival = from_seconds(seconds);
    if (!calls.empty() && call.arrival < calls.back().arrival) {
      return bad(number, "seconds: is before the line above; sort the calls by time");
    }
    const auto found = numbers_.find(std::string(fields[1]));
    if (found == numbers_.end()) {
      return bad(number,
                 fmt::format("function: the functions file has no '{}' (TENANT/NAME)", fields[1]));
    }
    call.function = found->second;
    if (!read_tokens(fields[2], call.prompt_tokens)) return bad_tokens(number, "prompt_tokens");
    if (!read_tokens(fields[3], call.output_tokens)) return bad_tokens(number, "output_tokens");
    calls.push_back(call);
    return {};
  }

  Error bad(std::int64_t line, std::string_view message) const {
    return invalid_argument(fmt::format("{}:{}: {}", path_, line, message));
  }

 private:
  static bool read_tokens(std::string_view text, std::int32_t& tokens) {
    return read_number(text, tokens) && tokens >= 1 && tokens <= kMaxCallTokens;
  }
  Error bad_tokens(std::int64_t line, std::string_view field) const {
    return bad(line, fmt::format("{}: must be a whole number from 1 to {}", field, kMaxCallTokens));
  }

  std::string_view path_;
  std::unordered_map<std::string, std::int32_t> numbers_;
};

}  // namespace

Result<std::vector<FunctionCall>> parse_calls(std::string_view text, std::string_view path,
                                              std::span<const std::string> functions) {
  CallReader reader(path, functions);
  if (take_line(text) != kHeader) {
    return reader.bad(1, fmt::format("the header must be \"{}\"", kHeader));
  }
  std::vector<FunctionCall> calls;
  for (std::int64_t number = 2; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    if (!line.empty()) RETURN_IF_ERROR(reader.read(line, number, calls));
  }
  if (calls.empty()) return reader.bad(1, "there are no calls");
  return calls;
}

}  // namespace sluice
