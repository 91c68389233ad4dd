// FakeModel: a language model made of integers, whose every token depends on all tokens before it
// through the KV contents it reads. A block table that points to the wrong block, a copy that was
// missed or a stale block therefore shows up as a wrong token. The oracle computes the same
// function on the true token sequence, without any blocks.
// Pure functions of their arguments; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "request/request.h"
#include "request/sequence.h"

namespace sluice {

struct FakeModel {
  std::int32_t vocab_size = 50;
  std::vector<TokenId> eos_ids = {0};
  std::vector<std::int32_t> group_windows = {0};
  // One row in so many samples fails, as if its logits were not finite; 0 = none.
  std::uint64_t fail_one_in = 0;

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b);

  // What group `g` stores for the token at `position`, when `seen` is the sum of all contents that
  // the token reads: those of earlier positions within each group's window.
  std::uint64_t content(TokenId token, std::int32_t position, std::int32_t group,
                        std::uint64_t seen) const;
  // The token that follows `position`; `seen` with the position's own contents.
  TokenId sample(const Request& request, std::int32_t choice, std::int32_t output_index,
                 std::uint64_t seen) const;
  bool fails(const Request& request, std::int32_t choice, std::int32_t output_index) const;
};

struct ExpectedOutput {
  std::vector<TokenId> tokens;  // prompt and output
  FinishReason finish_reason = FinishReason::kNone;
};

// The whole life of a choice that nobody cancels.
ExpectedOutput expected_output(const FakeModel& model, const Request& request, std::int32_t choice,
                               std::int32_t max_model_len);

}  // namespace sluice
