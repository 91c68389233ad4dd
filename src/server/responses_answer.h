// Answers of OpenAI's /v1/responses: the response object, and its events in a stream.
// Threads: any for the function; a writer has one owner.
#pragma once

#include <memory>
#include <string>

#include "server/answer_writer.h"

namespace sluice {

std::string responses_json(const AnswerHead& head, const ChoiceAnswer& choice, const Usage& usage);
std::unique_ptr<AnswerWriter> make_responses_writer(const AnswerHead& head);

}  // namespace sluice
