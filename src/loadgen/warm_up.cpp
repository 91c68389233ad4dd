#include "loadgen/warm_up.h"

#include <fmt/format.h>

namespace sluice {

Status warm_up(const LoadOptions& load, const Workload& workload, const PromptMaker& prompts,
               std::int64_t count) {
  if (count == 0) return {};
  Workload few;
  few.source = "warm-up";
  few.requests.assign(static_cast<std::size_t>(count), workload.requests.front());
  for (WorkloadRequest& request : few.requests) {
    request.arrival = Duration(0);
    request.prefix_pieces.clear();
  }
  LoadOptions options = load;
  options.closed_loop = options.max_concurrency > 0;
  options.first_number = kWarmUpNumber;
  options.keep_details = false;
  options.progress_every = Duration(0);
  const SystemClock clock;
  ASSIGN_OR_RETURN(const LoadResult result, run_load(options, few, prompts, clock));
  if (!result.errors.empty()) {
    return with_context("warm-up request", unavailable(result.errors.front().first));
  }
  if (result.end == LoadEnd::kInterrupted) {
    return Error{ErrorCode::kCancelled, "interrupted while warming up"};
  }
  if (result.summary.completed < count) {
    return unavailable(fmt::format(
        "warm-up: {} of {} requests had no end within the time limit; --num-warmups 0 leaves it "
        "out",
        count - result.summary.completed, count));
  }
  return {};
}

}  // namespace sluice
