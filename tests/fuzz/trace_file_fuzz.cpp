// Trace files, csv and jsonl. The first four bytes choose the options. An accepted trace has every
// property that the load generator and the simulator rely on.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "workload/trace_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;  // NOLINT: one function
  if (size < 4) return 0;
  constexpr double kScales[] = {1.0, 0.25, 0.3, 2.0, 1e-6, 100.0, 0.0, 1e7};
  TraceOptions options;
  options.max_requests = data[0] % 8;
  options.max_total = data[1] % 4 == 0 ? 0 : data[1] * 16;
  options.too_long = static_cast<TooLong>(data[2] % 3);
  options.rate_scale = kScales[data[3] % 8];
  options.length_scale = kScales[data[3] / 8 % 8];
  const std::string_view text(reinterpret_cast<const char*>(data) + 4, size - 4);
  const auto workload = parse_trace(text, "trace", options);
  if (!workload) {
    CHECK(workload.error().code == ErrorCode::kInvalidArgument);
    CHECK(!workload.error().message.empty());
    return 0;
  }
  CHECK(!workload->requests.empty());
  CHECK(options.max_requests == 0 ||
        std::cmp_less_equal(workload->requests.size(), options.max_requests));
  Duration last{0};
  CHECK(workload->requests.front().arrival == last);
  for (const WorkloadRequest& request : workload->requests) {
    CHECK(request.arrival >= last);
    CHECK(request.prompt_tokens >= 1 && request.prompt_tokens <= kMaxRequestTokens);
    CHECK(request.output_tokens >= 1 && request.output_tokens <= kMaxRequestTokens);
    CHECK(options.max_total == 0 ||
          request.prompt_tokens + request.output_tokens <= options.max_total);
    // No name stands for tokens that are not there.
    CHECK(request.prefix_pieces.empty() ||
          std::cmp_less((request.prefix_pieces.size() - 1) * kPrefixPieceTokens,
                        request.prompt_tokens));
    last = request.arrival;
  }
  return 0;
}
