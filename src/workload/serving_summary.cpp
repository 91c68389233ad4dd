#include "workload/serving_summary.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

namespace {

double per_second(std::int64_t count, Duration duration) {
  const double seconds = to_seconds(duration);
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

bool meets(const std::optional<Duration>& limit, Duration value) {
  return !limit || value <= *limit;
}

}  // namespace

double ServingSummary::request_throughput() const { return per_second(completed, duration); }
double ServingSummary::request_goodput() const { return per_second(good, duration); }
double ServingSummary::output_throughput() const {
  return per_second(total_output_tokens, duration);
}
double ServingSummary::total_token_throughput() const {
  return per_second(total_input_tokens + total_output_tokens, duration);
}

ServingRecorder::ServingRecorder(const Goodput& goodput) : goodput_(goodput) {
  summary_.has_goodput = goodput.ttft || goodput.tpot || goodput.e2el;
}

void ServingRecorder::close_second() {
  if (second_tokens_ == 0) return;
  const std::int64_t second = second_start_ / std::chrono::seconds(1);
  // Tokens nearly always arrive in order of time, so the place is at the end or just before it.
  auto place = seconds_.end();
  while (place != seconds_.begin() && std::prev(place)->second >= second) --place;
  if (place != seconds_.end() && place->second == second) {
    place->tokens += second_tokens_;
  } else {
    seconds_.insert(place, {second, second_tokens_});
  }
  second_tokens_ = 0;
}

void ServingRecorder::change_second(Duration now) {
  close_second();
  second_start_ = std::chrono::floor<std::chrono::seconds>(now);
  second_end_ = second_start_ + std::chrono::seconds(1);
  second_tokens_ = 0;
}

void ServingRecorder::add_request(const RequestRecord& record) {
  sent_.push_back(record.sent);
  // A request that ended at once counts too: its end must not be before its start.
  ended_.push_back(std::max(record.ended, record.sent + Duration(1)));
  first_arrival_ = std::min(first_arrival_, record.arrival);
  last_arrival_ = std::max(last_arrival_, record.arrival);
  if (record.scheduling_delay) summary_.scheduling_delay.add(*record.scheduling_delay);
  if (!record.error.empty()) {
    ++summary_.failed;
    return;
  }
  ++(record.finished ? summary_.completed : summary_.unfinished);
  summary_.total_output_tokens += record.output_tokens;
  if (record.first_token) {
    summary_.total_input_tokens += record.prompt_tokens;
    add_answered(record);
    return;
  }
  // No token arrived. A finished answer without tokens has no time to first token.
  const Duration waited = record.ended - record.arrival;
  if (!record.finished) summary_.ttft.add(waited);
  summary_.e2el.add(waited);
  if (record.finished) {
    summary_.total_input_tokens += record.prompt_tokens;
    summary_.good += meets(goodput_.e2el, waited) ? 1 : 0;
  }
}

void ServingRecorder::add_answered(const RequestRecord& record) {
  const Duration first = *record.first_token;
  const Duration last = record.last_token.value_or(first);
  // An unfinished answer counts as if its next token came when the run ended: the least it can be.
  const Duration end = record.finished ? last : record.ended;
  const std::int64_t gaps = record.finished ? record.output_tokens - 1 : record.output_tokens;
  const Duration ttft = first - record.arrival;
  const Duration e2el = end - record.arrival;
  Duration tpot{0};
  summary_.ttft.add(ttft);
  summary_.e2el.add(e2el);
  if (gaps > 0) {
    tpot = (end - first) / gaps;
    summary_.tpot.add(tpot);
  }
  if (!record.finished) {
    summary_.tbt.add(record.ended - last);
  } else if (meets(goodput_.ttft, ttft) && meets(goodput_.tpot, tpot) &&
             meets(goodput_.e2el, e2el)) {
    ++summary_.good;
  }
}

std::int64_t ServingRecorder::most_concurrent() {
  std::sort(sent_.begin(), sent_.end());
  std::sort(ended_.begin(), ended_.end());
  std::int64_t now = 0;
  std::int64_t most = 0;
  std::size_t ends = 0;
  for (const Duration sent : sent_) {
    // A request that ends at the moment the next one is sent does not overlap with it.
    while (ends < ended_.size() && ended_[ends] <= sent) {
      ++ends;
      --now;
    }
    most = std::max(most, ++now);
  }
  return most;
}

ServingSummary ServingRecorder::finish(Duration duration) {
  close_second();
  summary_.duration = duration;
  for (const SecondCount& count : seconds_) {
    summary_.max_output_tokens_per_s = std::max(summary_.max_output_tokens_per_s, count.tokens);
  }
  summary_.max_concurrent_requests = most_concurrent();
  if (!summary_.has_goodput) summary_.good = 0;
  if (sent_.size() > 1) {
    summary_.realised_rate =
        per_second(static_cast<std::int64_t>(sent_.size()) - 1, last_arrival_ - first_arrival_);
  }
  return std::move(summary_);
}

}  // namespace sluice
