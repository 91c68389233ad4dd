#include "workload/trace_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cmath>
#include <utility>

#include "base/file.h"
#include "workload/csv.h"
#include "workload/quote_field.h"
#include "workload/timestamp.h"
#include "workload/trace_builder.h"

namespace sluice {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

Result<Workload> parse_azure_csv(std::string_view text, std::string_view name,
                                 const TraceOptions& options) {
  TraceBuilder builder(name, options);
  ASSIGN_OR_RETURN(CsvReader csv, CsvReader::open(text, name));
  std::size_t places[3] = {};
  const std::string_view columns[3] = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto place = csv.find(columns[i]);
    if (!place) {
      const bool lengths = csv.find("num_prefill_tokens").has_value();
      return invalid_argument(fmt::format(
          "{}:1: no column \"{}\"; a trace is a csv with TIMESTAMP, ContextTokens and "
          "GeneratedTokens, or lines of JSON with timestamp, input_length and output_length{}",
          name, columns[i],
          lengths ? "; this one has lengths without times: give it as --lengths" : ""));
    }
    places[i] = *place;
  }
  while (!builder.full()) {
    ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) break;
    const auto time = parse_timestamp(csv.field(places[0]));
    if (!time) return csv.unexpected(places[0], "a time as 2023-11-16 18:15:46.6805900");
    TraceRequest request;
    request.line = csv.line();
    request.time_field = columns[0];
    request.time_text = csv.field(places[0]);
    request.time = *time;
    ASSIGN_OR_RETURN(request.lengths.prompt_tokens, csv.length(places[1]));
    ASSIGN_OR_RETURN(request.lengths.output_tokens, csv.length(places[2]));
    RETURN_IF_ERROR(builder.add(request));
  }
  return builder.finish();
}

// One line of a Mooncake trace.
class MooncakeLine {
 public:
  MooncakeLine(std::string_view name, std::int64_t line) : name_(name), line_(line) {}

  Status parse(simdjson::dom::parser& parser, std::string_view text) {
    const auto error = parser.parse(text.data(), text.size()).get(object_);
    if (error == simdjson::SUCCESS) return {};
    return at_line(fmt::format("got {}, expected a JSON object ({})", quote_field(text),
                               simdjson::error_message(error)));
  }

  Result<TraceRequest> read() {
    TraceRequest request;
    request.line = line_;
    request.time_field = "timestamp";
    ASSIGN_OR_RETURN(request.time, time());
    time_text_ = simdjson::minify(object_["timestamp"].value_unsafe());
    request.time_text = time_text_;
    ASSIGN_OR_RETURN(request.lengths.prompt_tokens, length("input_length"));
    ASSIGN_OR_RETURN(request.lengths.output_tokens, length("output_length"));
    ASSIGN_OR_RETURN(request.prefix_pieces, pieces(request.lengths.prompt_tokens));
    return request;
  }

 private:
  Error at_line(std::string_view message) const {
    return invalid_argument(fmt::format("{}:{}: {}", name_, line_, message));
  }
  Error unexpected(std::string_view member, std::string_view expected) const {
    simdjson::dom::element value;
    if (object_[member].get(value) != simdjson::SUCCESS) {
      return at_line(fmt::format("no \"{}\", expected {}", member, expected));
    }
    return at_line(fmt::format("\"{}\": got {}, expected {}", member,
                               quote_field(std::string(simdjson::minify(value))), expected));
  }

  Result<Duration> time() const {
    // A century of milliseconds.
    constexpr double kMost = 100.0 * 366 * 24 * 3600 * 1000;
    double ms = 0;
    if (object_["timestamp"].get(ms) != simdjson::SUCCESS || ms < 0 || ms > kMost) {
      return unexpected("timestamp", "a time in milliseconds, at least 0");
    }
    return Duration(static_cast<std::int64_t>(std::floor(ms * 1e6 + 0.5)));
  }

  Result<std::int32_t> length(std::string_view member) const {
    std::uint64_t tokens = 0;
    if (object_[member].get(tokens) != simdjson::SUCCESS || tokens < 1 ||
        tokens > static_cast<std::uint64_t>(kMaxRequestTokens)) {
      return unexpected(member,
                        fmt::format("a whole number of tokens from 1 to {}", kMaxRequestTokens));
    }
    return static_cast<std::int32_t>(tokens);
  }

  Result<std::vector<std::uint64_t>> pieces(std::int32_t prompt_tokens) const {
    constexpr std::string_view kExpected = "a list of whole numbers, one per 512 tokens of input";
    std::vector<std::uint64_t> pieces;
    simdjson::dom::element value;
    if (object_["hash_ids"].get(value) != simdjson::SUCCESS) return pieces;
    simdjson::dom::array list;
    if (value.get(list) != simdjson::SUCCESS) return unexpected("hash_ids", kExpected);
    const std::int32_t most = (prompt_tokens + kPrefixPieceTokens - 1) / kPrefixPieceTokens;
    for (const simdjson::dom::element item : list) {
      std::uint64_t id = 0;
      if (item.get(id) != simdjson::SUCCESS) return unexpected("hash_ids", kExpected);
      pieces.push_back(id);
    }
    if (std::cmp_greater(pieces.size(), most)) {
      return at_line(
          fmt::format("\"hash_ids\": got {} of them, expected at most {}, one per {} of the {} "
                      "tokens of \"input_length\"",
                      pieces.size(), most, kPrefixPieceTokens, prompt_tokens));
    }
    return pieces;
  }

  std::string_view name_;
  std::int64_t line_;
  simdjson::dom::object object_;
  std::string time_text_;
};

Result<Workload> parse_mooncake_jsonl(std::string_view text, std::string_view name,
                                      const TraceOptions& options) {
  TraceBuilder builder(name, options);
  simdjson::dom::parser parser;
  std::int64_t line_number = 0;
  while (!text.empty() && !builder.full()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos &&
        text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
      break;  // blank to the end of the file
    }
    MooncakeLine parsed(name, line_number);
    RETURN_IF_ERROR(parsed.parse(parser, line));
    ASSIGN_OR_RETURN(TraceRequest request, parsed.read());
    RETURN_IF_ERROR(builder.add(request));
  }
  return builder.finish();
}

}  // namespace

Result<Workload> parse_trace(std::string_view text, std::string_view name,
                             const TraceOptions& options) {
  RETURN_IF_ERROR(TraceBuilder(name, options).check_options());
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t first = text.find_first_not_of(" \t");
  const bool json = first != std::string_view::npos && text[first] == '{';
  return json ? parse_mooncake_jsonl(text, name, options) : parse_azure_csv(text, name, options);
}

Result<Workload> read_trace(const std::string& path, const TraceOptions& options) {
  constexpr std::uint64_t kMaxBytes = 1'000'000'000;
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  return parse_trace(text, path, options);
}

}  // namespace sluice
