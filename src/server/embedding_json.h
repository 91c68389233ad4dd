// The JSON of answers about the vectors of texts: the vectors themselves, scores of pairs, and
// documents by their likeness to a query. A score is the cosine of the angle between two vectors.
// Pure functions; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/generation_call.h"
#include "server/response_json.h"

namespace sluice {

// `vectors`: as the model made them, one for each prompt of the call, all of one length.
// `normalize`: what the call wants, or else the model. REQUIRES: at least one vector.
std::string embedding_answer_json(const AnswerHead& head, const EmbeddingPart& part, bool normalize,
                                  std::span<const std::vector<float>> vectors, const Usage& usage);

}  // namespace sluice
