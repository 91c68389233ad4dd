#include "server/output_batch.h"

namespace sluice {

void OutputBatch::clear() {
  events.clear();
  tokens.clear();
  logprobs.clear();
  prompt_logprobs.clear();
  embeddings.clear();
  refused.clear();
  steps.clear();
  progress.clear();
  has_progress = false;
  pins.clear();
  pin_answers.clear();
  gauges = {};
}

void append_output(const ChoiceOutput& output, TimePoint now, OutputBatch& batch) {
  OutputEvent event;
  event.request = output.request;
  event.choice = output.choice;
  event.finish_reason = output.finish_reason;
  event.cached_prompt_tokens = output.cached_prompt_tokens;
  event.first_token = static_cast<std::uint32_t>(batch.tokens.size());
  event.num_tokens = static_cast<std::uint32_t>(output.tokens.size());
  event.first_logprob = static_cast<std::uint32_t>(batch.logprobs.size());
  event.num_logprobs = static_cast<std::uint32_t>(output.logprobs.size());
  event.first_prompt_logprob = static_cast<std::uint32_t>(batch.prompt_logprobs.size());
  event.num_prompt_logprobs = static_cast<std::uint32_t>(output.prompt_logprobs.size());
  event.first_embedding = static_cast<std::uint32_t>(batch.embeddings.size());
  event.num_embedding = static_cast<std::uint32_t>(output.embedding.size());
  event.time = now;
  event.first_scheduled = output.first_scheduled;
  batch.tokens.insert(batch.tokens.end(), output.tokens.begin(), output.tokens.end());
  batch.logprobs.insert(batch.logprobs.end(), output.logprobs.begin(), output.logprobs.end());
  batch.prompt_logprobs.insert(batch.prompt_logprobs.end(), output.prompt_logprobs.begin(),
                               output.prompt_logprobs.end());
  batch.embeddings.insert(batch.embeddings.end(), output.embedding.begin(), output.embedding.end());
  batch.events.push_back(event);
}

void append_cancelled(const Request& request, TimePoint now, OutputBatch& batch) {
  for (std::int32_t choice = 0; choice < request.sampling.n; ++choice) {
    OutputEvent event;
    event.request = request.id;
    event.choice = choice;
    event.finish_reason = FinishReason::kCancelled;
    event.time = now;
    batch.events.push_back(event);
  }
}

EngineGauges gauges_of(const Engine& engine) {
  EngineGauges gauges;
  gauges.running = engine.scheduler().num_running();
  gauges.waiting = engine.scheduler().num_waiting();
  // The maximum, because KV memory that grows by need is nearly full at any size.
  gauges.kv_blocks = engine.kv().options().max_blocks - 1;
  gauges.kv_blocks_used = engine.kv().num_used_blocks();
  gauges.kv_blocks_cached = engine.kv().num_free_cached_blocks();
  gauges.kv_blocks_backed = engine.kv_held_blocks();
  gauges.kv_limit_blocks = engine.kv_limit();
  gauges.tier_pages = engine.kv().tier().num_pages();
  gauges.tier_pages_saved = engine.kv().tier().num_saved();
  if (gauges.tier_pages > 0) {
    gauges.tier_block_bytes = static_cast<std::int64_t>(engine.kv_block_bytes());
    gauges.tier_levels = engine.tier_levels();
    gauges.tier_memory_bytes = engine.tier_memory_bytes();
    gauges.tier_accepts_saves = engine.tier_accepts_saves();
  }
  gauges.prefix_queried_tokens = engine.kv().prefix_stats().queried_tokens;
  gauges.prefix_hit_tokens = engine.kv().prefix_stats().hit_tokens;
  gauges.pins = engine.pins().num_pins();
  gauges.pinned_blocks = engine.pins().num_blocks();
  gauges.totals = engine.stats();
  return gauges;
}

}  // namespace sluice
