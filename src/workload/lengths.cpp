#include "workload/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "workload/csv.h"
#include "workload/quote_field.h"
#include "workload/seed.h"
#include "workload/workload.h"

namespace sluice {

namespace {

// A point of a quantile function, which is linear between its points.
struct Quantile {
  double share;
  double tokens;
};

struct NamedLengths {
  std::string_view name;
  std::span<const Quantile> prompt;
  std::span<const Quantile> output;
  std::int32_t max_total;  // longer requests were removed as outliers
};

// Medians and P90 are those of Sarathi-Serve's table 2. The other points of the ShareGPT
// distribution are quantiles of the lengths that the paper's authors publish beside their code; for
// the arxiv distribution, whose 16k form is not public, they are chosen to give the table's
// deviations (with its two output deviations, which look swapped, exchanged).
constexpr Quantile kShareGptPrompt[] = {
    {0, 4},      {0.1, 74},   {0.2, 382},  {0.3, 777},   {0.4, 1203},  {0.5, 1730}, {0.6, 2401},
    {0.7, 3235}, {0.8, 4278}, {0.9, 5696}, {0.95, 6563}, {0.99, 7434}, {1, 8100}};
constexpr Quantile kShareGptOutput[] = {{0, 4},     {0.1, 84},  {0.2, 181},  {0.3, 271},
                                        {0.4, 346}, {0.5, 415}, {0.6, 493},  {0.7, 581},
                                        {0.8, 683}, {0.9, 834}, {0.99, 998}, {1, 1024}};
constexpr Quantile kArxivPrompt[] = {{0, 600},     {0.1, 3050},  {0.25, 4850}, {0.5, 7059},
                                     {0.75, 9600}, {0.9, 12985}, {1, 15750}};
constexpr Quantile kArxivOutput[] = {{0, 40},     {0.1, 112}, {0.25, 155}, {0.5, 208},
                                     {0.75, 280}, {0.9, 371}, {1, 495}};
constexpr std::array<NamedLengths, 2> kNamed = {{
    {"sharegpt", kShareGptPrompt, kShareGptOutput, 8192},
    {"arxiv", kArxivPrompt, kArxivOutput, 16384},
}};

std::int32_t draw(std::span<const Quantile> quantiles, SplitMix64& random) {
  const double share = random.uniform();
  std::size_t i = 1;
  while (quantiles[i].share <= share) ++i;  // the last share is 1, and `share` below it
  const Quantile& a = quantiles[i - 1];
  const Quantile& b = quantiles[i];
  const double tokens =
      a.tokens + (b.tokens - a.tokens) * ((share - a.share) / (b.share - a.share));
  return static_cast<std::int32_t>(std::lround(tokens));
}

RequestLengths draw(const NamedLengths& named, SplitMix64& random) {
  const std::int32_t prompt = draw(named.prompt, random);
  // An output that would make the request an outlier is drawn again, so that the prompts are
  // unchanged.
  std::int32_t output = draw(named.output, random);
  while (prompt + output > named.max_total) output = draw(named.output, random);
  return {prompt, output};
}

struct Range {
  std::int32_t first = 0;
  std::int32_t last = 0;
};

// "P" or "P1-P2" with 1 <= P1 <= P2.
std::optional<Range> parse_range(std::string_view text, bool may_span) {
  const auto number = [](std::string_view part) {
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() ? value : 0;
  };
  const std::size_t dash = may_span ? text.find('-') : std::string_view::npos;
  const std::int32_t first = number(text.substr(0, dash));
  const std::int32_t last = dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  if (first < 1 || last < first || last > kMaxRequestTokens) {
    return std::nullopt;
  }
  return Range{first, last};
}

// "fixed:P,O" and "uniform:P1-P2,O1-O2"; nothing for other specs.
Result<std::optional<std::array<Range, 2>>> parse_ranges(std::string_view spec) {
  const bool uniform = spec.starts_with("uniform:");
  if (!uniform && !spec.starts_with("fixed:")) return std::optional<std::array<Range, 2>>();
  const std::string_view ranges = spec.substr(spec.find(':') + 1);
  const std::size_t comma = ranges.find(',');
  if (comma != std::string_view::npos) {
    const auto prompt = parse_range(ranges.substr(0, comma), uniform);
    const auto output = parse_range(ranges.substr(comma + 1), uniform);
    if (prompt && output) return std::optional<std::array<Range, 2>>({*prompt, *output});
  }
  return invalid_argument(
      fmt::format("lengths {}: expected {}, of 1 to {} tokens", quote_field(spec),
                  uniform ? "uniform:P1-P2,O1-O2, least and greatest prompt and output length"
                          : "fixed:P,O, prompt and output length",
                  kMaxRequestTokens));
}

std::int32_t draw(const Range& range, SplitMix64& random) {
  const auto width = static_cast<std::uint64_t>(range.last - range.first) + 1;
  return range.first + static_cast<std::int32_t>(random.below(width));
}

Result<std::vector<RequestLengths>> read_length_csv(const std::string& path) {
  constexpr std::uint64_t kMaxBytes = 1'000'000'000;
  auto text = read_file(path, kMaxBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) {
    return not_found(fmt::format("lengths {}: no such name ({}) and no such file",
                                 quote_field(path), join(length_names(), ", ")));
  }
  if (!text) return std::move(text).error();
  ASSIGN_OR_RETURN(CsvReader csv, CsvReader::open(*text, path));
  const auto prompt = csv.find("num_prefill_tokens");
  const auto output = csv.find("num_decode_tokens");
  if (!prompt || !output) {
    const bool times = csv.find("TIMESTAMP").has_value();
    return invalid_argument(fmt::format(
        "{}:1: no column \"{}\"; a length file has num_prefill_tokens and num_decode_tokens{}",
        path, prompt ? "num_decode_tokens" : "num_prefill_tokens",
        times ? ", this one looks like a trace with times: give it as --trace" : ""));
  }
  std::vector<RequestLengths> rows;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) break;
    RequestLengths row;
    ASSIGN_OR_RETURN(row.prompt_tokens, csv.length(*prompt));
    ASSIGN_OR_RETURN(row.output_tokens, csv.length(*output));
    rows.push_back(row);
  }
  if (rows.empty()) {
    return invalid_argument(fmt::format("{}:{}: ends without a row of lengths", path, csv.line()));
  }
  return rows;
}

// The rows in an order that the seed determines, repeated as needed.
Result<std::vector<RequestLengths>> from_csv(const std::string& path, std::size_t count,
                                             std::uint64_t seed) {
  ASSIGN_OR_RETURN(std::vector<RequestLengths> rows, read_length_csv(path));
  SplitMix64 random = workload_random(seed, WorkloadPart::kOrder);
  for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random.below(i)]);
  std::vector<RequestLengths> lengths(count);
  for (std::size_t i = 0; i < count; ++i) lengths[i] = rows[i % rows.size()];
  return lengths;
}

}  // namespace

std::vector<std::string_view> length_names() {
  std::vector<std::string_view> names;
  for (const NamedLengths& named : kNamed) names.push_back(named.name);
  names.insert(names.end(), {"fixed:P,O", "uniform:P1-P2,O1-O2"});
  return names;
}

RequestLengths shorten(RequestLengths lengths, std::int32_t max_total) {
  CHECK(max_total >= 2 && lengths.prompt_tokens >= 1 && lengths.output_tokens >= 1);
  const std::int64_t total = std::int64_t{lengths.prompt_tokens} + lengths.output_tokens;
  if (total <= max_total) return lengths;
  const auto in_proportion = [&](std::int32_t tokens) {
    // Below max_total, because the other length is positive; so one token for the other length
    // fits.
    const std::int64_t part = std::int64_t{tokens} * max_total / total;
    return static_cast<std::int32_t>(std::max<std::int64_t>(part, 1));
  };
  return {in_proportion(lengths.prompt_tokens), in_proportion(lengths.output_tokens)};
}

std::string name_of_lengths(std::string_view spec, double scale) {
  return scale == 1 ? std::string(spec) : fmt::format("{} x {}", spec, scale);
}

Status check_length_scale(double scale) {
  constexpr double kLeastScale = 1e-6;
  constexpr double kMostScale = 100;
  if (scale >= kLeastScale && scale <= kMostScale) return {};
  return invalid_argument(fmt::format("length scale: got {}, expected a number from {} to {}",
                                      scale, kLeastScale, kMostScale));
}

std::optional<RequestLengths> scale_lengths(RequestLengths lengths, double scale) {
  const auto scaled = [&](std::int32_t tokens) {
    return std::max(std::floor(tokens * scale + 0.5), 1.0);
  };
  const double prompt = scaled(lengths.prompt_tokens);
  const double output = scaled(lengths.output_tokens);
  if (std::max(prompt, output) > kMaxRequestTokens) return std::nullopt;
  return RequestLengths{static_cast<std::int32_t>(prompt), static_cast<std::int32_t>(output)};
}

Result<std::vector<RequestLengths>> make_lengths(std::string_view spec, std::int64_t count,
                                                 std::int32_t max_total, std::uint64_t seed,
                                                 std::int64_t* shortened, double scale) {
  RETURN_IF_ERROR(check_length_scale(scale));
  if (count < 1 || count > kMaxWorkloadRequests) {
    return invalid_argument(
        fmt::format("number of requests: got {}, expected 1 to {}", count, kMaxWorkloadRequests));
  }
  if (max_total != 0 && max_total < 2) {
    return invalid_argument(fmt::format(
        "context: got {} tokens, expected at least 2, one of prompt and one of output", max_total));
  }
  std::int64_t too_long = 0;
  std::vector<RequestLengths> lengths(static_cast<std::size_t>(count));
  SplitMix64 random = workload_random(seed, WorkloadPart::kLengths);
  ASSIGN_OR_RETURN(const auto ranges, parse_ranges(spec));
  const auto* named = std::find_if(kNamed.begin(), kNamed.end(),
                                   [&](const NamedLengths& n) { return n.name == spec; });
  if (ranges) {
    for (RequestLengths& one : lengths) {
      one.prompt_tokens = draw((*ranges)[0], random);
      one.output_tokens = draw((*ranges)[1], random);
    }
  } else if (named != kNamed.end()) {
    for (RequestLengths& one : lengths) one = draw(*named, random);
  } else {
    ASSIGN_OR_RETURN(lengths, from_csv(std::string(spec), lengths.size(), seed));
  }
  for (RequestLengths& one : lengths) {
    const auto scaled = scale_lengths(one, scale);
    if (!scaled) {
      return invalid_argument(
          fmt::format("lengths {}: {} tokens times the length scale {} are "
                      "more than {}; use a smaller scale",
                      quote_field(spec), std::max(one.prompt_tokens, one.output_tokens), scale,
                      kMaxRequestTokens));
    }
    one = *scaled;
  }
  if (max_total != 0) {
    for (RequestLengths& one : lengths) {
      const bool fits = std::int64_t{one.prompt_tokens} + one.output_tokens <= max_total;
      too_long += fits ? 0 : 1;
      one = shorten(one, max_total);
    }
  }
  if (shortened != nullptr) *shortened = too_long;
  return lengths;
}

std::vector<WorkloadRequest> requests_of(const std::vector<RequestLengths>& lengths,
                                         const std::vector<Duration>& arrivals) {
  CHECK(lengths.size() == arrivals.size());
  std::vector<WorkloadRequest> requests;
  requests.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    requests.push_back({arrivals[i], lengths[i].prompt_tokens, lengths[i].output_tokens, {}});
  }
  return requests;
}

}  // namespace sluice
