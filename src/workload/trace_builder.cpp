#include "workload/trace_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/rng.h"
#include "workload/quote_field.h"

namespace sluice {

namespace {

constexpr double kLeastScale = 1e-6;
constexpr double kMostScale = 1e6;

std::size_t pieces_of(std::int32_t prompt_tokens) {
  return static_cast<std::size_t>((prompt_tokens + kPrefixPieceTokens - 1) / kPrefixPieceTokens);
}

Status check_rate_scale(double scale) {
  if (scale >= kLeastScale && scale <= kMostScale) return {};
  return invalid_argument(fmt::format("rate scale: got {}, expected a number from {} to {}", scale,
                                      kLeastScale, kMostScale));
}

}  // namespace

Status TraceBuilder::check_options() const {
  RETURN_IF_ERROR(check_rate_scale(options_.rate_scale));
  RETURN_IF_ERROR(check_length_scale(options_.length_scale));
  if (options_.max_requests < 0) {
    return invalid_argument(
        fmt::format("number of requests: got {}, expected 0 (all) or more", options_.max_requests));
  }
  if (options_.max_total != 0 && options_.max_total < 2) {
    return invalid_argument(
        fmt::format("context: got {} tokens, expected at least 2, one of prompt and one of output",
                    options_.max_total));
  }
  return {};
}

Error TraceBuilder::at_line(std::int64_t line, std::string_view message) const {
  return invalid_argument(fmt::format("{}:{}: {}", name_, line, message));
}

Status TraceBuilder::check_time(const TraceRequest& request) {
  if (line_ != 0 && request.time < time_) {
    return at_line(request.line,
                   fmt::format("{}: got {}, which is before {} of line {}; sort the file by time",
                               quote_field(request.time_field), quote_field(request.time_text),
                               quote_field(time_text_), line_));
  }
  time_ = request.time;
  time_text_ = request.time_text;
  line_ = request.line;
  return {};
}

Result<RequestLengths> TraceBuilder::scaled(const TraceRequest& request) const {
  if (options_.length_scale == 1) return request.lengths;
  const auto scaled = scale_lengths(request.lengths, options_.length_scale);
  if (!scaled) {
    return at_line(request.line, fmt::format("{} tokens times the length scale {} are more than "
                                             "{}; use a smaller scale",
                                             std::max(request.lengths.prompt_tokens,
                                                      request.lengths.output_tokens),
                                             options_.length_scale, kMaxRequestTokens));
  }
  return *scaled;
}

Result<Duration> TraceBuilder::arrival(const TraceRequest& request) const {
  const Duration since_first = request.time - *first_time_;
  const double seconds = to_seconds(since_first) / options_.rate_scale;
  if (seconds > kLongestWorkloadSeconds) {
    return at_line(request.line,
                   fmt::format("{}: {} is more than thirty years after the first request{}",
                               quote_field(request.time_field), quote_field(request.time_text),
                               options_.rate_scale < 1 ? "; use a larger rate scale" : ""));
  }
  return options_.rate_scale == 1 ? since_first : Duration(std::llround(seconds * 1e9));
}

// A scaled prompt is cut into pieces of the same size, so each piece covers more or fewer pieces of
// the file. Two prompts share a piece if they share the last file piece in it, because a name also
// stands for everything before it.
std::vector<std::uint64_t> TraceBuilder::scaled_pieces(const TraceRequest& request,
                                                       std::int32_t prompt_tokens) const {
  std::vector<std::uint64_t> pieces = request.prefix_pieces;
  if (options_.length_scale != 1 && !pieces.empty()) {
    const std::vector<std::uint64_t>& old = request.prefix_pieces;
    const bool whole_prompt = old.size() == pieces_of(request.lengths.prompt_tokens);
    pieces.clear();
    for (std::size_t i = 0; i < pieces_of(prompt_tokens); ++i) {
      const double end = std::ceil(static_cast<double>(i + 1) / options_.length_scale);
      if (end > static_cast<double>(old.size()) && !whole_prompt) break;
      const auto last = static_cast<std::size_t>(std::min(end, static_cast<double>(old.size())));
      pieces.push_back(SplitMix64(SplitMix64(old[last - 1])() ^ i)());
    }
  }
  pieces.resize(std::min(pieces.size(), pieces_of(prompt_tokens)));
  return pieces;
}

Status TraceBuilder::add(const TraceRequest& request) {
  RETURN_IF_ERROR(check_time(request));
  ASSIGN_OR_RETURN(RequestLengths lengths, scaled(request));
  if (options_.max_total != 0 &&
      lengths.prompt_tokens + lengths.output_tokens > options_.max_total) {
    if (options_.too_long == TooLong::kRefuse) {
      return at_line(
          request.line,
          fmt::format("{} prompt and {} output tokens{} are more than the context of {} "
                      "(--max-model-len); give a larger one, or --too-long shorten or skip",
                      lengths.prompt_tokens, lengths.output_tokens,
                      options_.length_scale == 1 ? "" : " (scaled)", options_.max_total));
    }
    if (options_.too_long == TooLong::kSkip) {
      ++skipped_;
      return {};
    }
    ++shortened_;
    lengths = shorten(lengths, options_.max_total);
  }
  if (std::cmp_greater_equal(workload_.requests.size(), kMaxWorkloadRequests)) {
    return at_line(request.line, fmt::format("more than {} requests", kMaxWorkloadRequests));
  }
  if (!first_time_) first_time_ = request.time;
  WorkloadRequest made;
  ASSIGN_OR_RETURN(made.arrival, arrival(request));
  made.prompt_tokens = lengths.prompt_tokens;
  made.output_tokens = lengths.output_tokens;
  made.prefix_pieces = scaled_pieces(request, lengths.prompt_tokens);
  workload_.requests.push_back(std::move(made));
  return {};
}

bool TraceBuilder::full() const {
  return options_.max_requests != 0 &&
         std::cmp_greater_equal(workload_.requests.size(), options_.max_requests);
}

Result<Workload> TraceBuilder::finish() {
  if (workload_.requests.empty() && skipped_ > 0) {
    return invalid_argument(
        fmt::format("{}: all {} requests are longer than the context of {} (--max-model-len) and "
                    "were skipped; give a larger one, or --too-long shorten",
                    name_, skipped_, options_.max_total));
  }
  if (workload_.requests.empty()) {
    return invalid_argument(fmt::format("{}: has no request, expected one a line", name_));
  }
  workload_.source = name_;
  if (shortened_ > 0) workload_.source += fmt::format(", {} shortened", shortened_);
  if (skipped_ > 0) workload_.source += fmt::format(", {} skipped", skipped_);
  return std::move(workload_);
}

}  // namespace sluice
