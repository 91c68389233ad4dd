#include "tests/support/engine_fixture.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "kv/block_hash.h"

namespace sluice::test {
namespace {

template <class T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::abort();
  }
  return *std::move(result);
}

}  // namespace

EngineFixture::EngineFixture(const std::string& directory, const EngineOptions& options,
                             int threads, std::unique_ptr<Device> device, Snapshot* snapshot,
                             std::unique_ptr<KvTier> tier, const KvStream::Options* stream,
                             const Clock* clock)
    : pool_(threads),
      device_(device != nullptr ? std::move(device) : must(make_cpu_device({&pool_, 0, {}}))) {
  StartupTimeline timeline(system_clock_);
  LoadedExecutor parts =
      must(load_executor(directory, options, *device_, pool_, timeline, snapshot));
  if (tier != nullptr) {
    const auto added = add_tier(std::move(tier), TierEviction::kSeconds, parts);
    if (!added) std::fprintf(stderr, "%s\n", added.error().message.c_str());
    CHECK(added.has_value());
  }
  if (stream != nullptr) {
    const auto added = add_stream(*stream, parts);
    if (!added) std::fprintf(stderr, "%s\n", added.error().message.c_str());
    CHECK(added.has_value());
  }
  loaded_ = make_engine(std::move(parts), clock != nullptr ? *clock : system_clock_, timeline);
}

EngineFixture::EngineFixture(const Backbone& backbone, const EngineOptions& options, int threads,
                             std::unique_ptr<Device> device, const BackboneUse& use)
    : pool_(threads),
      device_(device != nullptr ? std::move(device) : must(make_cpu_device({&pool_, 0, {}}))) {
  StartupTimeline timeline(system_clock_);
  loaded_ = must(
      load_engine_on_backbone(backbone, options, *device_, pool_, system_clock_, timeline, use));
}

void EngineFixture::add(Request request, std::string_view tenant) {
  if (request.sampling.prompt_logprobs < 0 && request.pooling != Pooling::kMean) {
    KvIdentity identity = loaded_.kv_identity;
    if (request.adapter >= 0) {
      const auto content = loaded_.adapters->content(request.adapter);
      identity.adapter_digest = content->image.digest;
      request.adapter_content = content;
    }
    identity.tenant_salt = tenant;
    request.block_hash_root = block_hash_root(identity);
    if (!tenant.empty()) request.block_owner.tenant = *request.block_hash_root;
    request.block_hashes =
        BlockHasher(*request.block_hash_root, loaded_.block_size).hash_prompt(request.prompt);
  }
  const auto status = engine().add_request(std::move(request));
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  CHECK(status.has_value());
}

void EngineFixture::step(Results& results) {
  for (const ChoiceOutput& output : must(engine().step())) {
    ChoiceResult& result = results[{output.request, output.choice}];
    result.tokens.insert(result.tokens.end(), output.tokens.begin(), output.tokens.end());
    result.logprobs.insert(result.logprobs.end(), output.logprobs.begin(), output.logprobs.end());
    result.prompt_logprobs.insert(result.prompt_logprobs.end(), output.prompt_logprobs.begin(),
                                  output.prompt_logprobs.end());
    result.embedding.insert(result.embedding.end(), output.embedding.begin(),
                            output.embedding.end());
    result.finish_reason = output.finish_reason;
    result.cached_prompt_tokens = output.cached_prompt_tokens;
  }
  engine().check_integrity();
}

Results EngineFixture::run_to_end() {
  Results results;
  while (engine().has_work()) step(results);
  return results;
}

Request greedy_request(RequestId id, std::vector<TokenId> prompt, std::int32_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

}  // namespace sluice::test
