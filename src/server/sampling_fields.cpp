#include "server/sampling_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "server/structured_fields.h"

namespace sluice {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxChoicesPerPrompt = 128;  // the limit of validate()
constexpr float kMaxTimeoutSeconds = 86'400;
constexpr std::int64_t kMinInt32 = std::numeric_limits<std::int32_t>::min();

void read_int32(FieldReader& reader, std::string_view name, std::int64_t min, std::int64_t max,
                std::int32_t& out, bool* given = nullptr) {
  const auto value = reader.integer(name, min, max);
  if (!value) return;
  out = static_cast<std::int32_t>(*value);
  if (given != nullptr) *given = true;
}

void read_stop(FieldReader& reader, std::vector<std::string>& out) {
  const JsonValue* value = reader.find("stop");
  if (value == nullptr) return;
  const auto add = [&](const JsonValue& item, const std::string& param) {
    const std::string* text = item.string();
    if (text != nullptr && !text->empty() && text->size() <= kMaxStopBytes) {
      out.push_back(*text);
      return;
    }
    reader.mistyped(param, item, fmt::format("a string of 1 to {} bytes", kMaxStopBytes));
  };
  const JsonValue::Array* array = value->array();
  if (array == nullptr) {
    if (value->string() == nullptr) {
      reader.mistyped("stop", *value, "a string or an array of strings");
      return;
    }
    add(*value, "stop");
    return;
  }
  if (array->size() > kMaxStopStrings) {
    reader.bad("stop", fmt::format("got {} strings; at most {} are served", array->size(),
                                   kMaxStopStrings));
    return;
  }
  for (std::size_t i = 0; i < array->size() && !reader.failed(); ++i) {
    add((*array)[i], fmt::format("stop[{}]", i));
  }
}

std::optional<double> any_number(const JsonValue& value) {
  if (const auto* integer = value.integer()) return static_cast<double>(*integer);
  if (const auto* decimal = value.decimal()) return decimal->value();
  return std::nullopt;
}

void read_logit_bias(FieldReader& reader, std::vector<std::pair<TokenId, float>>& out) {
  const JsonValue::Object* object = reader.object("logit_bias");
  if (object == nullptr) return;
  if (object->size() > kMaxLogitBiases) {
    reader.bad("logit_bias", fmt::format("got {} tokens; at most {} are served", object->size(),
                                         kMaxLogitBiases));
    return;
  }
  std::map<TokenId, float>
      biases;  // in order of ids; if an id is given twice, the last bias is used
  for (const JsonMember& member : *object) {
    TokenId id = -1;
    const char* end = member.name.data() + member.name.size();
    const auto parsed = std::from_chars(member.name.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end || id < 0 || id == kMaxInt32) {
      reader.bad("logit_bias", fmt::format("got the key {}; expected a token id",
                                           shown_value(JsonValue{member.name})));
      return;
    }
    const auto bias = any_number(member.value);
    if (!bias || std::fabs(*bias) > 100) {
      reader.mistyped(fmt::format("logit_bias.{}", id), member.value, "a number from -100 to 100");
      return;
    }
    biases.insert_or_assign(id, static_cast<float>(*bias));
  }
  out.assign(biases.begin(), biases.end());
}

void read_allowed_token_ids(FieldReader& reader, std::vector<TokenId>& out) {
  auto ids = reader.token_ids("allowed_token_ids", kMaxAllowedTokenIds);
  if (!ids) return;
  if (ids->empty()) reader.bad("allowed_token_ids", "is empty; give at least one token id");
  out = *std::move(ids);
}

void read_bad_words(FieldReader& reader, std::vector<std::string>& out) {
  const JsonValue::Array* words = reader.array("bad_words");
  if (words == nullptr) return;
  if (words->size() > kMaxBadWords) {
    reader.bad("bad_words",
               fmt::format("got {} words; at most {} are served", words->size(), kMaxBadWords));
    return;
  }
  for (std::size_t i = 0; i < words->size() && !reader.failed(); ++i) {
    const std::string* word = (*words)[i].string();
    if (word != nullptr && !word->empty() && word->size() <= kMaxBadWordBytes) {
      out.push_back(*word);
    } else {
      reader.mistyped(fmt::format("bad_words[{}]", i), (*words)[i],
                      fmt::format("a string of 1 to {} bytes", kMaxBadWordBytes));
    }
  }
}

void read_stream_fields(FieldReader& reader, GenerationCall& call) {
  reader.read_into("stream", call.stream);
  const JsonValue::Object* options = reader.object("stream_options");
  if (options == nullptr) return;
  if (!call.stream) {
    reader.bad("stream_options", "is given without \"stream\": true; set stream or leave it out");
    return;
  }
  constexpr RefusedField kRefused[] = {
      {"include_obfuscation", Neutral::kFalse, "chunks carry no padding"}};
  FieldReader fields(*options, "stream_options.", reader.ignored());
  fields.read_into("include_usage", call.include_usage);
  fields.read_into("continuous_usage_stats", call.continuous_usage_stats);
  fields.refuse_unless_neutral(kRefused);
  fields.check_unknown();
  if (fields.failed()) reader.fail(*fields.error());
}

// Fields of vLLM or the OpenAI API that are not served, in both calls.
constexpr RefusedField kRefused[] = {
    {"use_beam_search", Neutral::kFalse, "ask for several choices with n"},
    {"length_penalty", Neutral::kOne, "it belongs to beam search"},
    {"early_stopping", Neutral::kFalse, "it belongs to beam search"},
    {"watermarking", Neutral::kFalse, "outputs carry no watermark"},
    {"spaces_between_special_tokens", Neutral::kTrue,
     "tokens are joined as the tokenizer has them"},
    {"logprob_token_ids", Neutral::kNull, "ask for the most likely tokens instead"},
    {"logits_processors", Neutral::kEmpty, "use logit_bias"},
    {"request_id", Neutral::kNull, "the server names its answers"},
    {"return_tokens_as_token_ids", Neutral::kFalse, "use return_token_ids"},
    {"kv_transfer_params", Neutral::kNull, "KV blocks stay in this server"},
    {"ec_transfer_params", Neutral::kNull, "there is no encoder"},
    {"vllm_xargs", Neutral::kNull, "there are no extensions"},
    {"repetition_detection", Neutral::kNull, "use repetition_penalty"},
    {"thinking_token_budget", Neutral::kMinusOne, "limit the whole output with max_tokens"},
    {"stream_interval", Neutral::kOne, "every step's tokens are sent"},
    {"routed_experts_prompt_start", Neutral::kZero, "expert routing is not returned"},
    {"return_token_offsets", Neutral::kFalse, "leave it out"},
};

}  // namespace

void read_truncation(FieldReader& reader, GenerationCall& call) {
  const auto tokens = reader.integer("truncate_prompt_tokens", -1, kMaxInt32);
  const std::string* side = reader.string("truncation_side", 16);
  if (tokens && *tokens == 0) {
    reader.bad("truncate_prompt_tokens", "is 0; expected at least 1, or -1 for the whole context");
  }
  if (tokens) call.truncate_prompt_tokens = static_cast<std::int32_t>(*tokens);
  if (side == nullptr || *side == "left") return;
  if (*side == "right") {
    call.truncation_side = TruncationSide::kRight;
  } else {
    reader.bad("truncation_side", fmt::format("got {}; expected \"left\" or \"right\"",
                                              shown_value(JsonValue{*side})));
  }
}

void read_cache_retention(FieldReader& reader, GenerationCall& call) {
  const std::string* retention = reader.string("prompt_cache_retention", 64);
  if (retention == nullptr || *retention == "24h") return;
  if (*retention == "in_memory" || *retention == "in-memory") {
    call.kv_memory_only = true;
  } else {
    reader.bad("prompt_cache_retention", fmt::format("got {}; expected \"in_memory\" or \"24h\"",
                                                     shown_value(JsonValue{*retention})));
  }
}

void read_account_fields(FieldReader& reader, GenerationCall& call) {
  const std::string* user = reader.string("user", kMaxUserBytes);
  const std::string* safety_identifier = reader.string("safety_identifier", kMaxUserBytes);
  if (user == nullptr) user = safety_identifier;
  if (user != nullptr) call.user = *user;
  if (const std::string* salt = reader.string("cache_salt", kMaxCacheSaltBytes)) {
    if (salt->empty()) reader.bad("cache_salt", "is empty; expected a secret string, or null");
    call.cache_salt = *salt;
  }
  read_cache_retention(reader, call);
  read_int32(reader, "priority", kMinInt32, kMaxInt32, call.priority);
  if (const auto seconds = reader.number("timeout")) {
    if (*seconds > 0 && *seconds <= kMaxTimeoutSeconds) {
      call.timeout = from_seconds(static_cast<double>(*seconds));
    } else {
      reader.bad("timeout", fmt::format("got {:g}; expected seconds above 0, at most {:g}",
                                        *seconds, kMaxTimeoutSeconds));
    }
  }
}

void read_common_fields(FieldReader& reader, GenerationCall& call) {
  if (const std::string* model = reader.string("model", kMaxModelBytes)) {
    call.model = *model;
  } else if (!reader.failed()) {
    reader.missing("model", "the name of a served model; GET /v1/models lists them");
  }
  SamplingParams& sampling = call.sampling;
  GivenSampling& given = call.given;
  reader.read_into("temperature", sampling.temperature, &given.temperature);
  reader.read_into("top_p", sampling.top_p, &given.top_p);
  read_int32(reader, "top_k", -1, kMaxInt32, sampling.top_k, &given.top_k);
  reader.read_into("min_p", sampling.min_p, &given.min_p);
  reader.read_into("repetition_penalty", sampling.repetition_penalty, &given.repetition_penalty);
  reader.read_into("presence_penalty", sampling.presence_penalty);
  reader.read_into("frequency_penalty", sampling.frequency_penalty);
  constexpr std::int64_t kMinSeed = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();
  if (const auto seed = reader.integer("seed", kMinSeed, kMaxSeed)) {
    sampling.seed = static_cast<std::uint64_t>(*seed);
    given.seed = true;
  }
  read_int32(reader, "n", 1, kMaxChoicesPerPrompt, sampling.n);
  read_int32(reader, "min_tokens", 0, kMaxInt32, sampling.min_tokens);
  read_stop(reader, sampling.stop);
  if (auto ids = reader.token_ids("stop_token_ids", kMaxStopTokenIds)) {
    sampling.stop_token_ids = *std::move(ids);
  }
  read_logit_bias(reader, sampling.logit_bias);
  read_allowed_token_ids(reader, sampling.allowed_token_ids);
  read_int32(reader, "prompt_logprobs", 0, kMaxLogprobs, call.prompt_logprobs);
  sampling.prompt_logprobs = call.prompt_logprobs;
  read_bad_words(reader, call.bad_words);
  read_truncation(reader, call);
  reader.read_into("ignore_eos", sampling.ignore_eos);
  reader.read_into("include_stop_str_in_output", sampling.include_stop_str_in_output);
  reader.read_into("skip_special_tokens", call.skip_special_tokens);
  reader.read_into("add_special_tokens", call.add_special_tokens);
  reader.read_into("return_token_ids", call.return_token_ids);
  read_stream_fields(reader, call);
  if (call.stream && call.prompt_logprobs >= 0) {
    reader.bad("prompt_logprobs", "is given with \"stream\": true; ask for a whole answer");
  }
  read_account_fields(reader, call);
  // A hint for routing; the cache finds common prefixes without it.
  reader.string("session_id", kMaxUserBytes);
  read_structured_fields(reader, call);
  reader.refuse_unless_neutral(kRefused);
}

std::string sampling_field(const Error& error) {
  return error.message.substr(0, error.message.find(' '));
}

void check_sampling(FieldReader& reader, const GenerationCall& call,
                    std::string_view max_tokens_name, std::string_view logprobs_name) {
  if (reader.failed()) return;
  SamplingParams params = call.sampling;
  const bool unlimited = call.kind == ApiKind::kChat && !call.given.max_tokens;
  if (unlimited) params.max_tokens = static_cast<std::int32_t>(kMaxInt32);
  const Status status = validate(params, static_cast<std::int32_t>(kMaxInt32));
  if (status) return;
  std::string message = status.error().message;
  std::string name = sampling_field(status.error());
  const auto rename = [&](std::string_view from, std::string_view to) {
    if (name != from || to == from) return;
    message.replace(0, name.size(), to);
    name = to;
  };
  rename("max_tokens", max_tokens_name);
  rename("logprobs", logprobs_name);
  reader.fail(bad_field(name, message));
}

}  // namespace sluice
