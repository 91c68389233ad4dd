#include "server/embedding_json.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/base64.h"
#include "server/json_writer.h"

namespace sluice {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

float cosine(std::span<const float> a, std::span<const float> b) {
  const double lengths = std::sqrt(dot(a, a) * dot(b, b));
  return lengths > 0 ? static_cast<float>(dot(a, b) / lengths) : 0.0F;
}

// The first dimensions, as long as is wanted; then the length.
std::vector<float> shown_vector(const EmbeddingPart& part, bool normalize,
                                std::span<const float> vector) {
  if (part.dimensions) vector = vector.first(static_cast<std::size_t>(*part.dimensions));
  std::vector<float> shown(vector.begin(), vector.end());
  const double length = std::sqrt(dot(shown, shown));
  if (!normalize || length == 0) return shown;
  for (float& value : shown) value = static_cast<float>(static_cast<double>(value) / length);
  return shown;
}

void append_member(std::string_view name, std::int64_t value, std::string& out) {
  out += '"';
  out += name;
  out += "\":";
  append_json_integer(value, out);
}

void append_usage(const Usage& usage, std::string& out) {
  out += R"(,"usage":{)";
  append_member("prompt_tokens", usage.prompt_tokens, out);
  out += ',';
  append_member("total_tokens", usage.prompt_tokens, out);
  out += R"(,"prompt_tokens_details":{)";
  append_member("cached_tokens", usage.cached_tokens, out);
  out += "}}";
}

// {"id":...,"object":"list","created":...,"model":...
std::string begin(const AnswerHead& head, bool is_list) {
  std::string out = R"({"id":)";
  append_json_string(head.id, out);
  if (is_list) out += R"(,"object":"list")";
  out += ',';
  append_member("created", head.created, out);
  out += R"(,"model":)";
  append_json_string(head.model, out);
  return out;
}

void append_vector(const EmbeddingPart& part, std::span<const float> vector, std::string& out) {
  if (!part.base64) {
    append_json_list(vector, out, [&](float value) { append_json_float(value, out); });
    return;
  }
  out += '"';
  out += to_base64(std::as_bytes(vector));  // this machine is little-endian
  out += '"';
}

std::string vectors_json(const AnswerHead& head, const EmbeddingPart& part, bool normalize,
                         std::span<const std::vector<float>> vectors, const Usage& usage) {
  std::string out = begin(head, true);
  out += R"(,"data":)";
  std::int64_t index = 0;
  append_json_list(vectors, out, [&](const std::vector<float>& vector) {
    out += '{';
    append_member("index", index++, out);
    out += R"(,"object":"embedding","embedding":)";
    append_vector(part, shown_vector(part, normalize, vector), out);
    out += '}';
  });
  append_usage(usage, out);
  return out + '}';
}

// The score of each second text.
std::vector<float> scores_of(const EmbeddingPart& part,
                             std::span<const std::vector<float>> vectors) {
  const auto second = vectors.subspan(part.num_first);
  std::vector<float> scores;
  for (std::size_t i = 0; i < second.size(); ++i) {
    scores.push_back(cosine(vectors[part.num_first == 1 ? 0 : i], second[i]));
  }
  return scores;
}

std::string scores_json(const AnswerHead& head, std::span<const float> scores, const Usage& usage) {
  std::string out = begin(head, true);
  out += R"(,"data":)";
  std::int64_t index = 0;
  append_json_list(scores, out, [&](float score) {
    out += '{';
    append_member("index", index++, out);
    out += R"(,"object":"score","score":)";
    append_json_float(score, out);
    out += '}';
  });
  append_usage(usage, out);
  return out + '}';
}

// The likest first, equal ones in the order of the call.
std::string ranks_json(const AnswerHead& head, const EmbeddingPart& part,
                       std::span<const float> scores, const Usage& usage) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  if (part.top_n) order.resize(std::min(order.size(), static_cast<std::size_t>(*part.top_n)));
  std::string out = begin(head, false);
  out += R"(,"results":)";
  append_json_list(order, out, [&](std::size_t i) {
    out += '{';
    append_member("index", static_cast<std::int64_t>(i), out);
    if (!part.documents.empty()) {
      out += R"(,"document":{"text":)";
      append_json_string(part.documents[i], out);
      out += '}';
    }
    out += R"(,"relevance_score":)";
    append_json_float(scores[i], out);
    out += '}';
  });
  append_usage(usage, out);
  return out + '}';
}

}  // namespace

std::string embedding_answer_json(const AnswerHead& head, const EmbeddingPart& part, bool normalize,
                                  std::span<const std::vector<float>> vectors, const Usage& usage) {
  switch (part.use) {
    case EmbeddingUse::kVectors: return vectors_json(head, part, normalize, vectors, usage);
    case EmbeddingUse::kScore: return scores_json(head, scores_of(part, vectors), usage);
    case EmbeddingUse::kRerank: break;
  }
  return ranks_json(head, part, scores_of(part, vectors), usage);
}

}  // namespace sluice
