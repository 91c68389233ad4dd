#include "sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/rng.h"

namespace sluice {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Keeps edited logits finite, so that the difference of two logits is never NaN.
float clamp_finite(float value) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::clamp(value, -kLargest, kLargest);
}

void apply_mask(const std::uint32_t* mask, std::span<float> logits) {
  for (std::size_t first = 0; first < logits.size(); first += 32) {
    const std::uint32_t word = mask[first / 32];
    if (word == ~0U) continue;
    const std::span<float> block =
        logits.subspan(first, std::min<std::size_t>(32, logits.size() - first));
    if (word == 0) {
      std::ranges::fill(block, kMinusInfinity);
      continue;
    }
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (((word >> i) & 1U) == 0) block[i] = kMinusInfinity;
    }
  }
}

void make_mask(std::span<const TokenId> ids, std::int32_t vocab_size,
               std::vector<std::uint32_t>& mask) {
  mask.clear();
  if (ids.empty()) return;
  mask.resize((static_cast<std::size_t>(vocab_size) + 31) / 32);
  for (const TokenId id : ids) mask[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
}

// The only id of a mask; -1 if there are none or several.
TokenId only_bit(std::span<const std::uint32_t> mask) {
  TokenId only = -1;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    if (only >= 0 || !std::has_single_bit(mask[i])) return -1;
    only = static_cast<TokenId>(32 * i) + std::countr_zero(mask[i]);
  }
  return only;
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options, ThreadPool& pool)
    : options_(options),
      pool_(pool),
      slots_(static_cast<std::size_t>(options.max_slots)),
      scratch_(static_cast<std::size_t>(pool.size())) {
  const auto vocab = static_cast<std::size_t>(options.vocab_size);
  for (const TokenId id : options.eos_ids) CHECK(id >= 0 && id < options.vocab_size);
  for (Scratch& scratch : scratch_) {
    scratch.logits.resize(vocab);
    scratch.weights.resize(vocab);
    scratch.tokens.reserve(vocab);
    scratch.ids.reserve(vocab);
  }
}

void Sampler::assign(std::int32_t index, const SamplingParams& params, std::int32_t choice,
                     std::span<const TokenId> prompt, std::span<const TokenId> output) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  slot.temperature = params.temperature;
  slot.top_p = params.top_p;
  slot.top_k = params.top_k;
  slot.min_p = params.min_p;
  slot.seed = params.seed;
  slot.choice = static_cast<std::uint32_t>(choice);
  slot.repetition_penalty = params.repetition_penalty;
  slot.presence_penalty = params.presence_penalty;
  slot.frequency_penalty = params.frequency_penalty;
  slot.min_tokens = params.min_tokens;
  slot.logprobs = std::min(params.logprobs, kMaxLogprobs);
  slot.logit_bias = params.logit_bias;
  slot.stop_token_ids = params.stop_token_ids;
  make_mask(params.allowed_token_ids, options_.vocab_size, slot.allowed);
  slot.bad_words.assign(params.bad_words, output);
  slot.grammar.assign(params.grammar);
  slot.grammar_ended = false;
  slot.mask_ready = false;
  if (slot.grammar.active()) {
    slot.grammar_mask.resize((static_cast<std::size_t>(options_.vocab_size) + 31) / 32);
    for (const TokenId token : output) accept(slot, token);
  }
  if (slot.penalizes()) {
    slot.counts.reset(options_.vocab_size, options_.max_model_len, prompt, output);
  }
}

std::optional<DrawParams> Sampler::draw_params(const SampleRow& row) const {
  const Slot& slot = slots_[static_cast<std::size_t>(row.slot)];
  if (slot.edits(row) || slot.logprobs >= 0) return std::nullopt;
  return DrawParams{uniform_of(slot, row), slot.greedy() ? 0.0F : slot.temperature, slot.top_p,
                    slot.min_p, slot.top_k};
}

double Sampler::uniform_of(const Slot& slot, const SampleRow& row) {
  return sampling_uniform(slot.seed, slot.choice, static_cast<std::uint64_t>(row.output_index));
}

template <class Work>
void Sampler::for_each_row(std::size_t rows, Work work) {
  const int tasks = static_cast<int>(std::min(rows, scratch_.size()));
  pool_.parallel_for(tasks, [&](int task) {
    Scratch& scratch = scratch_[static_cast<std::size_t>(task)];
    for (auto i = static_cast<std::size_t>(task); i < rows; i += static_cast<std::size_t>(tasks)) {
      work(i, scratch);
    }
  });
}

void Sampler::score(std::span<const ScoreRow> rows, std::span<SampledRow> out) {
  CHECK(rows.size() == out.size());
  for_each_row(rows.size(),
               [&](std::size_t i, Scratch& scratch) { score_row(rows[i], scratch, out[i]); });
}

void Sampler::score_row(const ScoreRow& row, Scratch& scratch, SampledRow& out) const {
  const std::span<const float> logits(row.logits, static_cast<std::size_t>(options_.vocab_size));
  out.token = row.token;
  out.num_logprobs = 0;
  out.num_forced = 0;
  const LogitScan scan = scan_logits(logits);
  out.failed = !scan.finite;
  if (out.failed) return;
  const ScoredToken own{logits[static_cast<std::size_t>(row.token)], row.token};
  out.rank = 1;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    out.rank += ranks_before({logits[i], static_cast<TokenId>(i)}, own) ? 1 : 0;
  }
  add_logprobs(logits, scan.best.score, row.alternatives, scratch, out);
}

void Sampler::sample(std::span<const SampleRow> rows, std::span<SampledRow> out) {
  CHECK(rows.size() == out.size());
  for_each_row(rows.size(), [&](std::size_t i, Scratch& scratch) {
    // No slot occurs twice, so that tasks change different slots.
    Slot& slot = slots_[static_cast<std::size_t>(rows[i].slot)];
    if (slot.grammar.active() && !slot.mask_ready) make_grammar_mask(slot);
    sample_row(rows[i], scratch, out[i]);
    if (out[i].failed) return;
    advance(slot, out[i].token);
    if (rows[i].max_forced > 0) force(slot, rows[i], out[i]);
  });
}

void Sampler::advance(Slot& slot, TokenId token) const {
  if (slot.penalizes()) slot.counts.add_output(token);
  slot.bad_words.add_output(token);
  if (slot.grammar.active()) accept(slot, token);
}

// The last mask that is looked at is that of the next row, so this costs no mask more.
void Sampler::force(Slot& slot, const SampleRow& row, SampledRow& out) const {
  if (!slot.grammar.active() || slot.logprobs >= 0 || !slot.bad_words.empty()) return;
  const std::int32_t most = std::min(row.max_forced, kMaxForced);
  while (out.num_forced < most && !slot.grammar_ended) {
    make_grammar_mask(slot);
    const TokenId token = only_bit(slot.grammar_mask);
    const std::int32_t index = row.output_index + 1 + out.num_forced;
    if (token < 0 || !may_force(slot, token, index)) return;
    out.forced[out.num_forced++] = token;
    advance(slot, token);
  }
}

// Whether sampling would take the token: only finite logits are left, so all further parameters
// choose it. If not, the row fails when it is sampled, as without forced tokens.
bool Sampler::may_force(const Slot& slot, TokenId token, std::int32_t output_index) const {
  const auto at = static_cast<std::size_t>(token);
  if (!slot.allowed.empty() && ((slot.allowed[at / 32] >> (at % 32)) & 1U) == 0) return false;
  if (output_index >= slot.min_tokens || slot.only_end) return true;
  return std::ranges::find(slot.stop_token_ids, token) == slot.stop_token_ids.end();
}

bool Sampler::is_eos(TokenId token) const {
  return std::ranges::find(options_.eos_ids, token) != options_.eos_ids.end();
}

void Sampler::make_grammar_mask(Slot& slot) const {
  slot.mask_ready = true;
  if (slot.grammar_ended) {
    std::ranges::fill(slot.grammar_mask, 0U);
  } else {
    slot.grammar.fill(slot.grammar_mask);
  }
  // The end is no text, even if the vocabulary gives it one.
  for (const TokenId id : options_.eos_ids) {
    slot.grammar_mask[static_cast<std::size_t>(id) / 32] &= ~(1U << (id % 32));
  }
  slot.only_end =
      std::ranges::all_of(slot.grammar_mask, [](std::uint32_t word) { return word == 0; });
  if (!slot.grammar_ended && !slot.grammar.can_end()) return;
  for (const TokenId id : options_.eos_ids) {
    slot.grammar_mask[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
  }
}

void Sampler::accept(Slot& slot, TokenId token) const {
  if (slot.grammar_ended) return;
  slot.mask_ready = false;
  slot.grammar_ended = is_eos(token);
  // If a grammar overflows here, its next mask is empty, and the row fails alone.
  if (!slot.grammar_ended) static_cast<void>(slot.grammar.accept(token));
}

void Sampler::sample_row(const SampleRow& row, Scratch& scratch, SampledRow& out) const {
  const Slot& slot = slots_[static_cast<std::size_t>(row.slot)];
  const std::span<const float> raw(row.logits, static_cast<std::size_t>(options_.vocab_size));
  out.token = -1;
  out.failed = true;
  out.num_logprobs = 0;
  out.num_forced = 0;
  const LogitScan scan = scan_logits(raw);
  if (!scan.finite) return;

  ScoredToken best = scan.best;
  const bool edited = slot.edits(row);
  if (edited) {
    std::ranges::copy(raw, scratch.logits.begin());
    edit_logits(slot, row, scratch.logits);
    best = best_token(scratch.logits);
    if (best.score == kMinusInfinity) return;  // the mask leaves nothing
  }
  const std::span<const float> logits = edited ? scratch.logits : raw;
  out.token = slot.greedy() ? best.id : draw_token(slot, row, logits, best.score, scratch);
  out.failed = false;
  if (slot.logprobs >= 0) add_logprobs(raw, scan.best.score, slot.logprobs, scratch, out);
}

void Sampler::edit_logits(const Slot& slot, const SampleRow& row, std::span<float> logits) const {
  if (row.allowed != nullptr) apply_mask(row.allowed, logits);
  if (slot.grammar.active()) apply_mask(slot.grammar_mask.data(), logits);
  if (!slot.allowed.empty()) apply_mask(slot.allowed.data(), logits);
  slot.bad_words.forbid(logits);
  const auto at = [&](TokenId id) -> float& { return logits[static_cast<std::size_t>(id)]; };
  const bool must_end = slot.grammar.active() && slot.only_end;
  if (row.output_index < slot.min_tokens && !must_end) {
    for (const TokenId id : options_.eos_ids) at(id) = kMinusInfinity;
    for (const TokenId id : slot.stop_token_ids) at(id) = kMinusInfinity;
  }
  for (const auto& [id, bias] : slot.logit_bias) {
    if (at(id) != kMinusInfinity) at(id) = clamp_finite(at(id) + bias);
  }
  if (!slot.penalizes()) return;
  for (const TokenId id : slot.counts.seen()) {
    float& logit = at(id);
    if (logit == kMinusInfinity) continue;
    const float count = static_cast<float>(slot.counts.output_count(id));
    logit = logit > 0 ? logit / slot.repetition_penalty : logit * slot.repetition_penalty;
    logit -= slot.frequency_penalty * count;
    logit -= count > 0 ? slot.presence_penalty : 0.0F;
    logit = clamp_finite(logit);
  }
}

TokenId Sampler::draw_token(const Slot& slot, const SampleRow& row, std::span<const float> logits,
                            float best, Scratch& scratch) {
  const bool narrowed = slot.top_k > 0 && static_cast<std::size_t>(slot.top_k) < logits.size();
  if (narrowed) {
    // First: then only these tokens need weights. The filters commute, because a higher logit has
    // no lower weight, and sums run over the tokens left by id, as over the whole row.
    select_best(logits, slot.top_k, scratch.tokens);
    std::ranges::sort(scratch.tokens, {}, &ScoredToken::id);
    scratch.ids.clear();
    for (const ScoredToken& token : scratch.tokens) {
      scratch.logits[scratch.ids.size()] = token.score;
      scratch.ids.push_back(token.id);
    }
  } else if (logits.data() != scratch.logits.data()) {
    std::ranges::copy(logits, scratch.logits.begin());
  }
  const std::size_t count = narrowed ? scratch.ids.size() : logits.size();
  const TokenId drawn = draw_kept(slot, row, best, {scratch.logits.data(), count},
                                  {scratch.weights.data(), count}, scratch.tokens);
  return narrowed ? scratch.ids[static_cast<std::size_t>(drawn)] : drawn;
}

TokenId Sampler::draw_kept(const Slot& slot, const SampleRow& row, float best,
                           std::span<float> logits, std::span<float> weights,
                           std::vector<ScoredToken>& tokens) {
  // Weights are relative to the best token's weight of 1. So min_p is a plain threshold, and
  // nothing overflows at any temperature.
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights[i] = std::exp((logits[i] - best) / slot.temperature);
    if (weights[i] < slot.min_p) {
      weights[i] = 0;
      logits[i] = kMinusInfinity;
    }
  }
  if (slot.top_p < 1.0F) {
    drop_below(nucleus_end(logits, weights, slot.top_p, tokens), logits, weights);
  }
  return draw(weights, uniform_of(slot, row));
}

void Sampler::add_logprobs(std::span<const float> logits, float max, std::int32_t alternatives,
                           Scratch& scratch, SampledRow& out) {
  const double normalizer = log_sum_exp(logits, max);
  const auto logprob = [&](TokenId id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(id)]) -
                              normalizer);
  };
  out.logprobs[out.num_logprobs++] = {logprob(out.token), out.token};
  select_best(logits, alternatives, scratch.tokens);
  for (const ScoredToken& token : scratch.tokens) {
    out.logprobs[out.num_logprobs++] = {logprob(token.id), token.id};
  }
}

}  // namespace sluice
