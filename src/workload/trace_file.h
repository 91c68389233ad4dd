// Trace files with arrival times: Azure LLM inference csv (TIMESTAMP, ContextTokens,
// GeneratedTokens), Mooncake jsonl (timestamp in ms, input_length, output_length, hash_ids). The
// first character tells them apart. Any thread; a file of 1 GB is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "workload/workload.h"

namespace sluice {

enum class TooLong : std::uint8_t { kRefuse, kShorten, kSkip };

struct TraceOptions {
  std::int64_t max_requests = 0;        // 0: all; else the first ones, the rest is not read
  std::int32_t max_total = 0;           // context; 0: no limit
  TooLong too_long = TooLong::kRefuse;  // of a request beyond max_total
  double rate_scale = 1.0;              // 2: arrives twice as fast
  // 0.25: a quarter of the tokens, at least one. Shared prefixes shrink with their prompts.
  double length_scale = 1.0;
};

// The first request arrives at 0. The workload's source says how many requests were shortened or
// skipped. Errors name file, line and column and what was expected: missing columns, lengths that
// are not positive numbers, times that go back, lengths over the context.
Result<Workload> read_trace(const std::string& path, const TraceOptions& options);

// The same for a text; `name` is the file's name in messages.
Result<Workload> parse_trace(std::string_view text, std::string_view name,
                             const TraceOptions& options);

}  // namespace sluice
