#include "server/answer_writer.h"

#include "server/messages_answer.h"
#include "server/responses_answer.h"

namespace sluice {
namespace {

class OpenAiWriter final : public AnswerWriter {
 public:
  OpenAiWriter(const AnswerHead& head, bool include_usage)
      : chunks_(head), include_usage_(include_usage) {}

  void append_chunk(const ChunkPart& part, const Usage&, std::string& out) override {
    json_.clear();
    chunks_.append_chunk(part, json_);
    append_sse(json_, out);
  }

  void append_end(const Usage& usage, std::string& out) override {
    if (include_usage_) {
      json_.clear();
      chunks_.append_usage_chunk(usage, json_);
      append_sse(json_, out);
    }
    append_sse("[DONE]", out);
  }

  void append_error(const ApiError& error, std::string& out) override {
    append_sse(to_json(error), out);
  }

 private:
  const ChunkWriter chunks_;
  const bool include_usage_;
  std::string json_;  // scratch
};

}  // namespace

std::unique_ptr<AnswerWriter> make_answer_writer(const AnswerHead& head, bool include_usage) {
  switch (head.dialect) {
    case Dialect::kMessages: return make_messages_writer(head);
    case Dialect::kResponses: return make_responses_writer(head);
    case Dialect::kOpenAi: break;
  }
  return std::make_unique<OpenAiWriter>(head, include_usage);
}

std::string whole_answer_json(const AnswerHead& head, std::span<const ChoiceAnswer> choices,
                              const Usage& usage) {
  switch (head.dialect) {
    case Dialect::kMessages: return messages_json(head, choices.front(), usage);
    case Dialect::kResponses: return responses_json(head, choices.front(), usage);
    case Dialect::kOpenAi: break;
  }
  return answer_json(head, choices, usage);
}

void append_event(std::string_view type, std::string_view json, std::string& out) {
  out += "event: ";
  out += type;
  out += '\n';
  append_sse(json, out);
}

}  // namespace sluice
