// Request: one client's request in native types, after parsing, templating and tokenizing. Another
// thread builds it and moves it to the engine, which makes `sampling.n` sequences of it.
// Pure data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/block_owner.h"
#include "base/clock.h"
#include "base/hash128.h"
#include "base/token_id.h"
#include "request/pin_order.h"
#include "request/pooling.h"
#include "request/sampling_params.h"

namespace sluice {

using RequestId = std::uint64_t;

// Ids from here on are those of the operator's own requests, such as warm prompts; clients' ids are
// below.
inline constexpr RequestId kFirstOperatorId = RequestId{1} << 63;

struct Request {
  RequestId id = 0;
  std::vector<TokenId> prompt;
  // Outputs of an earlier life of the request, which goes on behind them; they are not reported
  // again. REQUIRES: sampling.n is 1.
  std::vector<TokenId> resumed;
  SamplingParams sampling;
  // Not kNone: the answer is a vector, and the one token that is sampled says that it is there.
  // REQUIRES: sampling.n is 1; for kMean no block hashes, since tokens whose KV comes from the
  // prefix cache have no hidden states.
  Pooling pooling = Pooling::kNone;
  TimePoint arrival;
  std::optional<TimePoint> deadline;
  // The time to the first token that its client was promised, from the arrival; none: there is no
  // promise. It orders work and refuses nothing.
  std::optional<Duration> ttft_goal;
  std::int32_t priority = 0;  // lower runs first, as in vLLM
  // The client that `vtc` and `fair` charge: the name of the API key, else `user`.
  std::string client_key;
  std::int32_t client_weight = 1;  // at least 1: its share beside other clients
  std::int32_t adapter = -1;       // index in the engine's adapter table; -1 = the base model
  std::int32_t function = -1;      // of a server of many functions, which are numbered; -1 = none
  // Keeps the adapter's content alive, whatever its name stands for meanwhile. Shared: several
  // requests and the engine's slots use it.
  std::shared_ptr<const void> adapter_content;
  // Digests of the prompt's full blocks (kv/block_hash.h), computed off the engine's thread.
  // Empty: the prompt neither uses nor fills the prefix cache.
  std::vector<Hash128> block_hashes;
  // The key of those digests (block_hash_root). The engine uses it to name the blocks of outputs
  // when a sequence ends or is preempted. Absent: outputs do not fill the prefix cache.
  std::optional<Hash128> block_hash_root;
  // Says which tenant's key encrypts the blocks in a tier below memory, if they may go there.
  BlockOwner block_owner;
  // Not null: the blocks of the prompt become a pin of the tenant. Shared by copies of the request.
  // REQUIRES: sampling.n is 1.
  std::shared_ptr<const PinOrder> pin;
};

}  // namespace sluice
