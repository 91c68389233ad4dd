#include "apps/canary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "apps/open_snapshot.h"
#include "base/check.h"
#include "base/content_hash.h"

namespace sluice {
namespace {

constexpr std::int32_t kCanaryTokens = 8;

Request canary_request(const EngineLimits& limits, TimePoint now) {
  Request request;
  request.id = kFirstOperatorId;
  const std::int32_t length = std::clamp(limits.max_model_len - 1, 1, kCanaryTokens);
  for (std::int32_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<TokenId>((31 * i + 1) % limits.vocab_size));
  }
  request.arrival = now;
  request.sampling.max_tokens = 1;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 1;  // so that every device's row goes through the host
  return request;
}

// The sampled digest of the weights is enough here: a file of other weights is told, not trusted.
Result<SnapshotKey> canary_key(const WarmFacts& facts, const Snapshot& snapshot) {
  ASSIGN_OR_RETURN(std::string program, program_digest());
  return SnapshotKey{
      {"config.json", snapshot.model().config}, {"model", facts.identity.model_digest},
      {"program", std::move(program)},          {"numerics", facts.numerics},
      {"dtype", facts.identity.weight_dtype},   {"kv dtype", facts.identity.kv_dtype}};
}

}  // namespace

namespace {

Status run_canary(Engine& engine, const Clock& clock) {
  RETURN_IF_ERROR(engine.add_request(canary_request(engine.limits(), clock.now())));
  while (engine.has_work()) {
    ASSIGN_OR_RETURN(const auto outputs, engine.step());
    for (const ChoiceOutput& output : outputs) {
      if (is_failure(output.finish_reason)) return internal_error("the canary's step failed");
    }
  }
  return {};
}

}  // namespace

Result<Hash128> canary_checksum(Engine& engine, LogitsTap& logits, const Clock& clock) {
  CHECK(!engine.has_work());
  ContentHasher hasher;
  std::size_t rows = 0;
  logits.watch_logits([&](std::span<const float> row) {
    if (rows++ == 0) hasher.update(std::as_bytes(row));
  });
  const Status ran = run_canary(engine, clock);
  logits.watch_logits({});
  RETURN_IF_ERROR(ran);
  CHECK(rows > 0);  // a request with log-probabilities has its rows on the host
  return hasher.digest();
}

Status check_canary(Engine& engine, LogitsTap& logits, const Clock& clock, const WarmFacts& facts,
                    Snapshot& snapshot) {
  if (snapshot.mode() == SnapshotMode::kOff) return {};
  // A file of the user's that has none is not told of.
  const bool has = snapshot.has_kind(kCanarySection);
  if (snapshot.mode() == SnapshotMode::kFile && !has) return {};
  ASSIGN_OR_RETURN(SnapshotKey key, canary_key(facts, snapshot));
  const auto stored = snapshot.find(kCanarySection, key);
  ASSIGN_OR_RETURN(const Hash128 checksum, canary_checksum(engine, logits, clock));
  // Changed weights are the checkpoint's fault, and their checksum must not be kept.
  RETURN_IF_ERROR(engine.check_files());
  const auto bytes = std::as_bytes(std::span(&checksum, 1));
  if (!stored) {
    snapshot.offer(kCanarySection, std::move(key),
                   [copy = std::vector(bytes.begin(), bytes.end())] { return copy; });
    return {};
  }
  if (std::ranges::equal(*stored, bytes)) {
    snapshot.restored(kCanarySection);
    return {};
  }
  snapshot.discard();
  return internal_error(fmt::format(
      "snapshot {}: the canary's logits are not those that were saved: what was restored or this "
      "machine is faulty; start with --snapshot off, and check with `sluice snapshot verify`",
      snapshot.path()));
}

}  // namespace sluice
