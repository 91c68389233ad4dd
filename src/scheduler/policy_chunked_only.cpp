#include "scheduler/policy_chunked_only.h"

#include "scheduler/plan_pass.h"

namespace sluice {

// Who has nothing to run leaves its turn to the other. If a decode waits for a victim that was in
// flight, decodes have the next turn too: with a chunk in between it would be in flight again.
void ChunkedOnlyPolicy::plan(PlanPass& pass) {
  if (chunks_first_ && plan_chunks(pass)) {
    chunks_first_ = false;
    return;
  }
  const bool decodes = plan_decodes(pass);
  if (!decodes && !chunks_first_) plan_chunks(pass);
  chunks_first_ = (chunks_first_ || decodes) && !pass.holds_victim();
}

bool ChunkedOnlyPolicy::plan_chunks(PlanPass& pass) {
  pass.prefill_all();
  if (!pass.short_of_memory()) pass.admit_all({});
  return !pass.rows().empty();
}

bool ChunkedOnlyPolicy::plan_decodes(PlanPass& pass) {
  pass.decode_all();
  return !pass.rows().empty();
}

}  // namespace sluice
