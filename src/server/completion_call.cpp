#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/generation_call.h"
#include "server/prompt_fields.h"
#include "server/sampling_fields.h"

namespace sluice {
namespace {

constexpr RefusedField kRefused[] = {
    {"suffix", Neutral::kEmpty, "text cannot be inserted in the middle"},
    {"prompt_embeds", Neutral::kNull, "send text or token ids"},
};

void read_completion_fields(FieldReader& reader, GenerationCall& call) {
  constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
  if (const auto limit = reader.integer("max_tokens", 0, kMaxInt32)) {
    call.prompt_only = *limit == 0;
    call.sampling.max_tokens = std::max(1, static_cast<std::int32_t>(*limit));
    call.given.max_tokens = true;
  }
  if (const auto logprobs = reader.integer("logprobs", 0, kMaxLogprobs)) {
    call.sampling.logprobs = static_cast<std::int32_t>(*logprobs);
  }
  reader.read_into("echo", call.echo);
  if (call.prompt_only && !call.echo && call.prompt_logprobs < 0) {
    reader.bad("max_tokens",
               "is 0, so nothing would be answered; set echo or prompt_logprobs, or "
               "ask for at least 1 token");
  }
  if (call.echo && call.sampling.logprobs >= 0) {
    // The echo's log-probabilities are those of the prompt.
    call.sampling.prompt_logprobs = std::max(call.sampling.prompt_logprobs, call.sampling.logprobs);
    if (call.stream && call.sampling.n > 1) {
      reader.unsupported("n",
                         "is above 1 in a stream with echo and logprobs; ask for a whole "
                         "answer, or for one choice");
    }
  }
  if (const auto best_of = reader.integer("best_of", 1, kMaxInt32)) {
    if (*best_of != call.sampling.n) {
      reader.unsupported("best_of", fmt::format("got {} with n {}; choices are not ranked, set n "
                                                "and choose yourself",
                                                *best_of, call.sampling.n));
    }
  }
  const auto choices = static_cast<std::int64_t>(call.prompts.size()) * call.sampling.n;
  if (choices > kMaxChoices) {
    reader.bad("n", fmt::format("{} prompts times {} choices are {}; at most {} are served in one "
                                "call",
                                call.prompts.size(), call.sampling.n, choices, kMaxChoices));
  }
}

}  // namespace

ApiResult<GenerationCall> parse_completion_call(std::string_view body, BodyReading reading) {
  const auto object = parse_request_json(body);
  if (!object) return tl::unexpected(object.error());
  GenerationCall call;
  FieldReader reader(*object, "", ignored_of(call, reading), reading.fields);
  call.kind = ApiKind::kCompletion;
  read_common_fields(reader, call);
  read_prompts(reader, "prompt", kMaxPrompts, call.prompts);
  read_completion_fields(reader, call);
  reader.refuse_unless_neutral(kRefused);
  check_sampling(reader, call, "max_tokens", "logprobs");
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  return call;
}

}  // namespace sluice
