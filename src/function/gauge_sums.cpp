#include "function/gauge_sums.h"

namespace sluice {

void add_totals(const EngineGauges& from, EngineGauges& to) {
  to.prefix_queried_tokens += from.prefix_queried_tokens;
  to.prefix_hit_tokens += from.prefix_hit_tokens;
  EngineStats& sum = to.totals;
  const EngineStats& more = from.totals;
  sum.steps += more.steps;
  sum.computed_tokens += more.computed_tokens;
  sum.preemptions += more.preemptions;
  sum.adapter_loads += more.adapter_loads;
  sum.device.busy += more.device.busy;
  sum.device.idle += more.device.idle;
  sum.computed += more.computed;
  sum.prefill_tokens += more.prefill_tokens;
  sum.decode_tokens += more.decode_tokens;
  sum.forced_tokens += more.forced_tokens;
}

void add_gauges(const EngineGauges& from, EngineGauges& to) {
  to.running += from.running;
  to.waiting += from.waiting;
  to.kv_blocks += from.kv_blocks;
  to.kv_blocks_used += from.kv_blocks_used;
  to.kv_blocks_cached += from.kv_blocks_cached;
  add_totals(from, to);
}

}  // namespace sluice
