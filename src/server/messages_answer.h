// Answers of Anthropic's /v1/messages: the message object, and its events in a stream.
// Threads: any for the function; a writer has one owner.
#pragma once

#include <memory>
#include <string>

#include "server/answer_writer.h"

namespace sluice {

std::string messages_json(const AnswerHead& head, const ChoiceAnswer& choice, const Usage& usage);
std::unique_ptr<AnswerWriter> make_messages_writer(const AnswerHead& head);

// The answer of /v1/messages/count_tokens.
std::string token_count_json(std::size_t tokens);

}  // namespace sluice
