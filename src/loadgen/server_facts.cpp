#include "loadgen/server_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/json.h"
#include "base/json_depth.h"
#include "base/text.h"
#include "http/fetch.h"
#include "loadgen/prompt_maker.h"
#include "loadgen/stream_chunk.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr std::size_t kFewestIds = 16;
// The pause between two checks whether a server is ready.
constexpr Duration kReadyPause = std::chrono::milliseconds(250);

// The error for an answer that is not the expected one.
Error refused(const http::ClientRequest& request, const http::Answer& answer) {
  ChunkReader reader;
  std::string hint;
  if (answer.status == 401 || answer.status == 403) hint = " (--api-key or --header)";
  if (answer.status == 503) hint = " (it may still be loading; see its /ready)";
  return unavailable(fmt::format("{} {} was answered {}: {}{}", request.method, request.path,
                                 answer.status, reader.error_message(answer.body), hint));
}

Result<json> ask_json(const http::HttpClientOptions& options, const http::ClientRequest& request) {
  ASSIGN_OR_RETURN(const http::Answer answer, http::fetch(options, request));
  if (answer.status != 200) return refused(request, answer);
  json object;
  if (!json_deeper_than(answer.body, kMaxJsonDepth)) {
    object = parse_json(answer.body);
  }
  if (!object.is_object()) {
    return unavailable(
        fmt::format("{} {}: the answer is not a JSON object; is this an OpenAI server?",
                    request.method, request.path));
  }
  return object;
}

// Returns an error while the server is not ready. Later requests find other problems, such as a
// wrong key.
Status ask_ready(const http::HttpClientOptions& options) {
  const http::ClientRequest ready{"GET", "/ready", {}};
  ASSIGN_OR_RETURN(const http::Answer answer, http::fetch(options, ready));
  if (answer.status == 200) return {};
  if (answer.status == 503) return refused(ready, answer);
  const http::ClientRequest models{"GET", "/v1/models", {}};
  ASSIGN_OR_RETURN(const http::Answer listed, http::fetch(options, models));
  if (listed.status >= 500) return refused(models, listed);
  return {};
}

}  // namespace

Status await_ready(const http::HttpClientOptions& options, Duration timeout, const Clock& clock) {
  const TimePoint deadline = clock.now() + timeout;
  http::HttpClientOptions patient = options;
  while (true) {
    const Duration left = deadline - clock.now();
    patient.silence_timeout = std::max(left, kReadyPause);
    const Status asked = ask_ready(patient);
    if (asked) return {};
    if (deadline - clock.now() <= Duration(0)) {
      return Error{ErrorCode::kDeadlineExceeded,
                   fmt::format("the server is not ready after {:.6g} s: {}", to_seconds(timeout),
                               asked.error().message)};
    }
    std::this_thread::sleep_for(std::clamp(deadline - clock.now(), Duration(0), kReadyPause));
  }
}

Result<ServerFacts> ask_models(const http::HttpClientOptions& options, const std::string& model) {
  const http::ClientRequest request{"GET", "/v1/models", {}};
  ASSIGN_OR_RETURN(const json object, ask_json(options, request));
  std::vector<std::string> names;
  ServerFacts facts;
  const json data = object.value("data", json::array());
  for (const json& card : data.is_array() ? data : json::array()) {
    if (!card.is_object() || !card.contains("id") || !card["id"].is_string()) continue;
    names.push_back(card["id"]);
    const bool wanted = model.empty() ? names.size() == 1 : names.back() == model;
    if (!wanted) continue;
    facts.model = names.back();
    const auto length = card.find("max_model_len");
    if (length != card.end() && length->is_number_integer()) {
      facts.max_model_len = static_cast<std::int32_t>(
          std::clamp<std::int64_t>(length->get<std::int64_t>(), 0, 1 << 30));
    }
  }
  if (names.empty()) return unavailable("GET /v1/models: the server lists no model");
  if (facts.model.empty()) {
    return not_found(fmt::format("--model '{}': the server has {}", model, join(names, ", ")));
  }
  return facts;
}

Result<std::vector<TokenId>> ask_token_ids(const http::HttpClientOptions& options,
                                           const std::string& model) {
  constexpr std::string_view kAdvice =
      "; give --vocab-size N (config.json of the model has it), or use --endpoint "
      "/v1/chat/completions, whose prompts are text";
  const json body = {{"model", model}, {"prompt", sample_text()}, {"add_special_tokens", false}};
  auto object = ask_json(options, {"POST", "/tokenize", dump_json(body)});
  if (!object) {
    Error error = std::move(object).error();
    error.message += kAdvice;
    return error;
  }
  std::set<TokenId> ids;
  const json tokens = object->value("tokens", json::array());
  for (const json& token : tokens.is_array() ? tokens : json::array()) {
    if (token.is_number_integer()) ids.insert(token.get<TokenId>());
  }
  if (ids.size() < kFewestIds) {
    return unavailable(
        fmt::format("POST /tokenize: {} different tokens of 300 words{}", ids.size(), kAdvice));
  }
  return std::vector<TokenId>(ids.begin(), ids.end());
}

}  // namespace sluice
