// TraceBuilder: builds a Workload from a trace's requests one by one, for any kind of file. It
// checks the order of times, scales, and handles requests beyond the context. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "workload/lengths.h"
#include "workload/trace_file.h"
#include "workload/workload.h"

namespace sluice {

struct TraceRequest {
  std::int64_t line = 0;        // of the file, from 1
  std::string_view time_field;  // name of the column or member, and its text
  std::string_view time_text;
  Duration time{0};  // since a moment that is the same for all requests
  RequestLengths lengths;
  std::vector<std::uint64_t> prefix_pieces;
};

class TraceBuilder {
 public:
  // `name` stands for the file in messages and outlives the builder.
  TraceBuilder(std::string_view name, const TraceOptions& options)
      : name_(name), options_(options) {}

  // kInvalidArgument names the option that is out of its range.
  Status check_options() const;
  Status add(const TraceRequest& request);
  bool full() const;
  // An error when there are no requests.
  Result<Workload> finish();

 private:
  Error at_line(std::int64_t line, std::string_view message) const;
  Status check_time(const TraceRequest& request);
  Result<RequestLengths> scaled(const TraceRequest& request) const;
  Result<Duration> arrival(const TraceRequest& request) const;
  std::vector<std::uint64_t> scaled_pieces(const TraceRequest& request,
                                           std::int32_t prompt_tokens) const;

  std::string_view name_;
  TraceOptions options_;
  Workload workload_;
  std::int64_t shortened_ = 0;
  std::int64_t skipped_ = 0;
  std::optional<Duration> first_time_;
  // The time of the previous request.
  Duration time_{0};
  std::string time_text_;
  std::int64_t line_ = 0;
};

}  // namespace sluice
