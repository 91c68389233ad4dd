// Sampler: logits to tokens, row by row, each row by the parameters of its slot. Order and
// semantics follow vLLM:
//
//   1  log-probabilities, if requested: log-softmax of the model's logits
//   2  token mask of the row; grammar; allowed ids; bad words; ids that min_tokens forbids (eos and
//      stop ids, ignore_eos or not)
//   3  logit bias, added
//   4  repetition penalty (prompt and output: x > 0 ? x / r : x * r), frequency and presence
//      penalty (output)
//   5  temperature 0 (below 1e-5): the best token, and done
//   6  divide by the temperature; min_p; top_k; top_p, over what is left, renormalized
//   7  one draw u = sampling_uniform(seed, choice, output_index), inverse transform in the order
//      of token ids
//
// Differences from vLLM: of equal logits the lower id ranks first, so top_k keeps exactly k tokens
// and results are reproducible. Sums are in double. A row whose logits are not all finite, or whose
// mask leaves no token, fails alone.
//
// A grammar allows end-of-sequence ids where its text is whole. Where only the end is left,
// min_tokens does not forbid it. Where it leaves one token, sample() can give that token without
// logits (SampleRow::max_forced). Rows with bad words or log-probabilities take no part in that.
//
// Owner: the executor. Threads: the engine's thread; sample() splits rows over the pool. Steps
// allocate nothing, except for grammars; assign() does on the first use of penalties, allowed ids
// or bad words in a slot.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "base/token_id.h"
#include "grammar/grammar_matcher.h"
#include "request/sampling_params.h"
#include "sampling/bad_words.h"
#include "sampling/logits.h"
#include "sampling/token_counts.h"

namespace sluice {

struct SamplerOptions {
  std::int32_t vocab_size = 0;
  std::int32_t max_slots = 0;
  std::int32_t max_model_len = 0;  // longest sequence, prompt and output
  std::vector<TokenId> eos_ids;
};

// One position to sample. All pointers are read only.
struct SampleRow {
  std::int32_t slot = 0;
  std::int32_t output_index = 0;           // of the token to choose (0 = first): the draw's counter
  const float* logits = nullptr;           // [vocab_size]
  const std::uint32_t* allowed = nullptr;  // bit i = token i may be chosen; null = all may
  std::int32_t max_forced = 0;             // forced tokens that may follow the chosen one
};

// The parameters of a row that needs only steps 5 to 7. A device may sample such rows itself, by
// the same rules.
struct DrawParams {
  double uniform = 0.0;
  float temperature = 0.0F;  // 0: the best token
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t top_k = 0;
};

inline constexpr std::int32_t kMaxRowLogprobs = kMaxLogprobs + 1;
// Forced tokens behind one sampled token.
inline constexpr std::int32_t kMaxForced = 15;

struct SampledRow {
  TokenId token = -1;  // -1 when failed
  bool failed = false;
  std::int32_t num_logprobs = 0;  // 0, or 1 + SamplingParams::logprobs
  std::int32_t rank = 0;          // by score(): 1 when the token is the likeliest
  // The chosen token, then the most likely tokens, best first; these may include the chosen one.
  ScoredToken logprobs[kMaxRowLogprobs];
  // The tokens that must follow, whatever the logits are: the only ones that the row's grammar, its
  // allowed ids and min_tokens leave.
  std::int32_t num_forced = 0;
  TokenId forced[kMaxForced];
};

// One position of a prompt to score: `token` is the prompt's own.
struct ScoreRow {
  const float* logits = nullptr;  // [vocab_size]
  TokenId token = 0;
  std::int32_t alternatives = 0;
};

class Sampler {
 public:
  // REQUIRES: the pool outlives the sampler.
  Sampler(const SamplerOptions& options, ThreadPool& pool);

  // Prepares a slot for a sequence: choice `choice` of a request, which has produced `output`
  // already if it was preempted.
  void assign(std::int32_t slot, const SamplingParams& params, std::int32_t choice,
              std::span<const TokenId> prompt, std::span<const TokenId> output);

  // Returns nothing if the row also needs other steps. Does not read the row's logits.
  std::optional<DrawParams> draw_params(const SampleRow& row) const;

  // Chooses a token for every row and counts it in its slot, with those that are forced behind it.
  // REQUIRES: out.size() == rows.size();
  // no slot occurs twice.
  void sample(std::span<const SampleRow> rows, std::span<SampledRow> out);

  // The log-probabilities of given tokens and of the likeliest ones, by the model's logits alone.
  // REQUIRES: out.size() == rows.size().
  void score(std::span<const ScoreRow> rows, std::span<SampledRow> out);

 private:
  struct Slot {
    float temperature = 1.0F;
    float top_p = 1.0F;
    std::int32_t top_k = 0;
    float min_p = 0.0F;
    std::uint64_t seed = 0;
    std::uint32_t choice = 0;
    float repetition_penalty = 1.0F;
    float presence_penalty = 0.0F;
    float frequency_penalty = 0.0F;
    std::int32_t min_tokens = 0;
    std::int32_t logprobs = -1;
    std::vector<std::pair<TokenId, float>> logit_bias;
    std::vector<TokenId> stop_token_ids;
    std::vector<std::uint32_t> allowed;  // as SampleRow::allowed; empty: all
    BadWords bad_words;
    GrammarMatcher grammar;
    std::vector<std::uint32_t> grammar_mask;  // of the next token
    bool grammar_ended = false;               // its text is whole, and the sequence has ended
    bool only_end = false;                    // no token but the end may follow
    bool mask_ready = false;                  // grammar_mask is that of the next token
    TokenCounts counts;

    bool greedy() const { return temperature < 1e-5F; }
    bool penalizes() const {
      return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
    }
    bool edits(const SampleRow& row) const {
      return row.allowed != nullptr || !allowed.empty() || !bad_words.empty() || grammar.active() ||
             row.output_index < min_tokens || !logit_bias.empty() || penalizes();
    }
  };
  // One for each task of the pool.
  struct Scratch {
    std::vector<float> logits;
    std::vector<float> weights;
    std::vector<ScoredToken> tokens;
    std::vector<TokenId> ids;  // that top_k leaves
  };

  void make_grammar_mask(Slot& slot) const;
  void accept(Slot& slot, TokenId token) const;
  void advance(Slot& slot, TokenId token) const;
  void force(Slot& slot, const SampleRow& row, SampledRow& out) const;
  bool may_force(const Slot& slot, TokenId token, std::int32_t output_index) const;
  bool is_eos(TokenId token) const;
  void sample_row(const SampleRow& row, Scratch& scratch, SampledRow& out) const;
  void score_row(const ScoreRow& row, Scratch& scratch, SampledRow& out) const;
  // Runs `work(index, scratch)` for each row, split over the pool.
  template <class Work>
  void for_each_row(std::size_t rows, Work work);
  void edit_logits(const Slot& slot, const SampleRow& row, std::span<float> logits) const;
  static double uniform_of(const Slot& slot, const SampleRow& row);
  // Steps 6 and 7. REQUIRES: `best` is the largest of `logits`, and finite.
  static TokenId draw_token(const Slot& slot, const SampleRow& row, std::span<const float> logits,
                            float best, Scratch& scratch);
  // The same without top_k. Changes `logits` and `weights`; gives an index in them.
  static TokenId draw_kept(const Slot& slot, const SampleRow& row, float best,
                           std::span<float> logits, std::span<float> weights,
                           std::vector<ScoredToken>& tokens);
  static void add_logprobs(std::span<const float> logits, float max, std::int32_t alternatives,
                           Scratch& scratch, SampledRow& out);

  SamplerOptions options_;
  ThreadPool& pool_;
  std::vector<Slot> slots_;
  std::vector<Scratch> scratch_;
};

}  // namespace sluice
