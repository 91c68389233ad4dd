// FakeModel: a language model of integer arithmetic. Each token depends on all tokens before it,
// through the KV contents that it reads. So a wrong entry in a block table, a missing copy or a
// stale block gives a wrong token. The oracle, expected_output(), computes the same function from
// the true tokens, without blocks. Pure functions; any thread.
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
  // On average one sample in this many fails, as if its logits were not finite; 0 = none.
  std::uint64_t fail_one_in = 0;

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b);

  // The content that `group` stores for the token at `position`. `seen` is the sum of all contents
  // that the token reads: those of earlier positions within each group's window.
  // `adapter` is as in Request::adapter.
  std::uint64_t content(TokenId token, std::int32_t position, std::int32_t group,
                        std::int32_t adapter, std::uint64_t seen) const;
  // The token that follows the last position; `seen` includes that position's own contents.
  TokenId sample(const Request& request, std::int32_t choice, std::int32_t output_index,
                 std::uint64_t seen) const;
  bool fails(const Request& request, std::int32_t choice, std::int32_t output_index) const;
};

struct ExpectedOutput {
  std::vector<TokenId> tokens;  // prompt and output
  FinishReason finish_reason = FinishReason::kNone;
};

// The output and the end of a choice that is not cancelled.
ExpectedOutput expected_output(const FakeModel& model, const Request& request, std::int32_t choice,
                               std::int32_t max_model_len);

}  // namespace sluice
