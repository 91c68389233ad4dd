// The calls that want vectors of texts, or their likeness.
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "server/generation_call.h"
#include "server/prompt_fields.h"
#include "server/sampling_fields.h"

namespace sluice {
namespace {

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();

constexpr RefusedField kRefusedEmbeddings[] = {
    {"messages", Neutral::kNull, "send text, or what /tokenize makes of a chat"},
    {"stream", Neutral::kFalse, "the answer comes as a whole"},
    {"late_chunking", Neutral::kFalse, "each text has one vector"},
};

void read_vector_fields(FieldReader& reader, GenerationCall& call) {
  EmbeddingPart& part = call.embedding;
  read_prompts(reader, "input", kMaxEmbeddings, call.prompts);
  part.first_field = "input";
  if (const auto dimensions = reader.integer("dimensions", 1, kMaxCount)) {
    part.dimensions = static_cast<std::int32_t>(*dimensions);
  }
  part.normalize = reader.boolean("normalize");
  const std::string* format = reader.string("encoding_format", 16);
  if (format == nullptr || *format == "float") return;
  part.base64 = *format == "base64";
  if (!part.base64) {
    reader.bad("encoding_format", fmt::format("got {}; expected \"float\" or \"base64\"",
                                              shown_value(JsonValue{*format})));
  }
}

// A text, or an array of texts; under its new or its old name.
std::string read_texts(FieldReader& reader, std::string_view name, std::string_view old_name,
                       std::vector<CompletionPrompt>& out) {
  const JsonValue* value = reader.find(name);
  const JsonValue* old_value = reader.find(old_name);
  if (value != nullptr && old_value != nullptr) {
    reader.bad(old_name, fmt::format("is given together with {}; give one of them", name));
  }
  const std::string_view field = value == nullptr && old_value != nullptr ? old_name : name;
  const JsonValue* given = value == nullptr ? old_value : value;
  if (given == nullptr) {
    if (!reader.failed()) reader.missing_either(name, old_name, "a string, or an array of strings");
  } else if (given->string() != nullptr) {
    out.emplace_back(*given->string());
  } else {
    const JsonValue::Array* items = given->array();
    if (items == nullptr || items->empty()) {
      reader.mistyped(field, *given, "a string, or an array of strings");
    }
    for (std::size_t i = 0; !reader.failed() && items != nullptr && i < items->size(); ++i) {
      if (const std::string* text = (*items)[i].string()) {
        out.emplace_back(*text);
      } else {
        reader.mistyped(fmt::format("{}[{}]", field, i), (*items)[i], "a string");
      }
    }
  }
  return std::string(field);
}

void read_score_fields(FieldReader& reader, GenerationCall& call) {
  EmbeddingPart& part = call.embedding;
  part.first_field = read_texts(reader, "queries", "text_1", call.prompts);
  part.num_first = call.prompts.size();
  part.second_field = read_texts(reader, "documents", "text_2", call.prompts);
  const std::size_t num_second = call.prompts.size() - part.num_first;
  if (reader.failed() || part.num_first == 1 || part.num_first == num_second) return;
  reader.bad(part.first_field,
             fmt::format("has {} texts and {} has {}; expected one text, or as many",
                         part.num_first, part.second_field, num_second));
}

// Documents are texts, or objects with a text.
void read_rerank_fields(FieldReader& reader, GenerationCall& call) {
  EmbeddingPart& part = call.embedding;
  part.first_field = "query";
  part.second_field = "documents";
  part.num_first = 1;
  if (const std::string* query = reader.string("query", std::numeric_limits<std::size_t>::max())) {
    call.prompts.emplace_back(*query);
  } else if (!reader.failed()) {
    reader.missing("query", "a string");
  }
  const JsonValue::Array* documents = reader.array("documents");
  if (documents == nullptr && !reader.failed()) {
    reader.missing("documents", "an array of strings, or of objects with a text");
  } else if (documents != nullptr && documents->empty()) {
    reader.bad("documents", "is empty; expected at least one");
  }
  for (std::size_t i = 0; !reader.failed() && documents != nullptr && i < documents->size(); ++i) {
    const JsonValue& item = (*documents)[i];
    const JsonValue* text = item.object() == nullptr ? &item : find_member(*item.object(), "text");
    if (text == nullptr || text->string() == nullptr) {
      reader.mistyped(fmt::format("documents[{}]", i), item, "a string, or an object with a text");
      return;
    }
    call.prompts.emplace_back(*text->string());
    part.documents.push_back(*text->string());
  }
  if (const auto top_n = reader.integer("top_n", 0, kMaxCount)) {
    if (*top_n > 0) part.top_n = static_cast<std::int32_t>(*top_n);
  }
  bool return_documents = true;
  reader.read_into("return_documents", return_documents);
  if (!return_documents) part.documents.clear();
}

}  // namespace

std::string EmbeddingPart::field_of(std::size_t prompt, std::size_t num_prompts) const {
  if (use == EmbeddingUse::kRerank) {
    return prompt == 0 ? first_field : fmt::format("{}[{}]", second_field, prompt - 1);
  }
  const bool second = use == EmbeddingUse::kScore && prompt >= num_first;
  const std::size_t count = use == EmbeddingUse::kVectors ? num_prompts
                            : second                      ? num_prompts - num_first
                                                          : num_first;
  const std::string& field = second ? second_field : first_field;
  return count == 1 ? field : fmt::format("{}[{}]", field, second ? prompt - num_first : prompt);
}

ApiResult<GenerationCall> parse_embedding_call(std::string_view body, EmbeddingUse use,
                                               BodyReading reading) {
  const auto object = parse_request_json(body);
  if (!object) return tl::unexpected(object.error());
  GenerationCall call;
  FieldReader reader(*object, "", ignored_of(call, reading), reading.fields);
  call.kind = ApiKind::kEmbedding;
  call.embedding.use = use;
  // The engine samples one token, which the answer leaves out.
  call.prompt_only = true;
  call.sampling.max_tokens = 1;
  call.sampling.temperature = 0;
  call.sampling.ignore_eos = true;
  call.given = {true, true, true, true, true, true, true};
  if (const std::string* model = reader.string("model", kMaxModelBytes)) {
    call.model = *model;
  } else if (!reader.failed()) {
    reader.missing("model", "the name of a served model; GET /v1/models lists them");
  }
  switch (use) {
    case EmbeddingUse::kVectors: read_vector_fields(reader, call); break;
    case EmbeddingUse::kScore: read_score_fields(reader, call); break;
    case EmbeddingUse::kRerank: read_rerank_fields(reader, call); break;
  }
  if (call.prompts.size() > kMaxEmbeddings) {
    reader.bad(call.embedding.second_field,
               fmt::format("makes {} texts; at most {} are served in one call", call.prompts.size(),
                           kMaxEmbeddings));
  }
  reader.read_into("add_special_tokens", call.add_special_tokens);
  read_truncation(reader, call);
  read_account_fields(reader, call);
  reader.refuse_unless_neutral(kRefusedEmbeddings);
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  return call;
}

}  // namespace sluice
