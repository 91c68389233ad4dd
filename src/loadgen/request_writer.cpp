#include "loadgen/request_writer.h"
#include "base/json.h"
#include "base/text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice {

std::string_view endpoint_path(LoadEndpoint endpoint) {
  return endpoint == LoadEndpoint::kChat ? "/v1/chat/completions" : "/v1/completions";
}

RequestWriter::RequestWriter(RequestForm form, PromptMaker prompts)
    : form_(std::move(form)), prompts_(std::move(prompts)) {}

http::ClientRequest RequestWriter::write(const WorkloadRequest& request, std::int64_t number) {
  http::ClientRequest out;
  out.method = "POST";
  out.path = endpoint_path(form_.endpoint);
  out.body = "{\"model\":" + dump_json(nlohmann::json(form_.model));
  if (form_.endpoint == LoadEndpoint::kChat) {
    prompts_.make_text(request, number, text_);
    // Words and blanks: nothing to escape.
    out.body += R"(,"messages":[{"role":"user","content":")" + text_ + "\"}]";
  } else {
    prompts_.make_ids(request, number, ids_);
    out.body += ",\"prompt\":[";
    for (const TokenId id : ids_) append_format(out.body, "{},", id);
    out.body.back() = ']';
  }
  out.body +=
      fmt::format(R"(,"max_tokens":{},"temperature":{})", request.output_tokens, form_.temperature);
  out.body += R"(,"stream":true,"stream_options":{"include_usage":true})";
  // With skip_special_tokens, an ignored end token has no text, so a server may send no chunk for
  // it. The client would then see the gap of two steps.
  if (form_.ignore_eos) out.body += R"(,"ignore_eos":true,"skip_special_tokens":false)";
  out.body += '}';
  return out;
}

}  // namespace sluice
