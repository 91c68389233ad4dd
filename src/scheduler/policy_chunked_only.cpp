#include "scheduler/policy_chunked_only.h"

#include "scheduler/plan_pass.h"

namespace sluice {

// Who has nothing to run leaves its turn to the other, and has the next one again.
void ChunkedOnlyPolicy::plan(PlanPass& pass) {
  if (chunks_first_) {
    if (plan_chunks(pass)) {
      chunks_first_ = false;
    } else {
      plan_decodes(pass);
    }
  } else if (plan_decodes(pass)) {
    chunks_first_ = true;
  } else {
    plan_chunks(pass);
  }
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
