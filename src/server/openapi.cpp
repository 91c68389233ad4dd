#include "server/openapi.h"

#include <nlohmann/json.hpp>

#include <cctype>
#include <cstdint>
#include <utility>

#include "base/json.h"
#include "server/adapter_calls.h"
#include "server/body_fields.h"
#include "server/generation_call.h"
#include "server/openapi_bodies.h"
#include "server/pin_call.h"
#include "server/routes.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

// The parts that no route changes. An answer may have more members than a client needs to know.
constexpr std::string_view kFrame = R"({
  "openapi": "3.1.0",
  "info": {"title": "Sluice"},
  "paths": {},
  "components": {
    "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    "schemas": {
      "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
          "error": {
            "type": "object",
            "required": ["message"],
            "properties": {"message": {"type": "string"}}
          }
        }
      }
    },
    "responses": {
      "Error": {
        "description": "The error, with its cause",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
      }
    }
  }
})";

std::string_view content_type_of(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kPage: return "text/html";
    case Endpoint::kMetrics: return "text/plain";
    default: return "application/json";
  }
}

bool is_of_pins(Endpoint endpoint) {
  return endpoint == Endpoint::kListPins || endpoint == Endpoint::kPutPin ||
         endpoint == Endpoint::kShowPin || endpoint == Endpoint::kRemovePin;
}

bool may_stream(Endpoint endpoint) {
  return endpoint == Endpoint::kChat || endpoint == Endpoint::kCompletion ||
         endpoint == Endpoint::kResponses || endpoint == Endpoint::kMessages;
}

ordered_json schema_of(std::string_view type) {
  ordered_json content;
  content["schema"]["type"] = type;
  return content;
}

ordered_json answers_of(std::string_view type, bool streams, bool needs_key) {
  ordered_json answer;
  answer["description"] = "The answer";
  answer["content"][std::string(type)] =
      schema_of(type == "application/json" ? "object" : "string");
  if (streams) answer["content"]["text/event-stream"] = ordered_json::object();
  ordered_json answers;
  answers["200"] = std::move(answer);
  // /health and /ready answer 503 with their state instead of an error.
  if (needs_key) answers["default"]["$ref"] = "#/components/responses/Error";
  return answers;
}

// A null field counts as not given.
ordered_json or_null(ordered_json schema) {
  const ordered_json null = {{"type", "null"}};
  if (schema.contains("enum")) {
    schema["enum"].push_back(nullptr);
  } else if (schema.contains("type") && schema["type"].is_string()) {
    schema["type"] = {schema["type"], "null"};
  } else if (!schema.empty()) {
    ordered_json either;
    either["anyOf"] = {std::move(schema), null};
    return either;
  }
  return schema;
}

ordered_json type_of(const BodyField& field) {
  ordered_json schema = ordered_json::object();
  constexpr std::int64_t kAnyLength = std::int64_t{1} << 24;
  switch (field.type) {
    case BodyFieldType::kAny: break;
    case BodyFieldType::kInteger:
      schema["type"] = "integer";
      schema["minimum"] = field.min;
      schema["maximum"] = field.max;
      break;
    case BodyFieldType::kNumber: schema["type"] = "number"; break;
    case BodyFieldType::kBoolean: schema["type"] = "boolean"; break;
    case BodyFieldType::kString:
      schema["type"] = "string";
      if (field.max > 0 && field.max < kAnyLength) schema["maxLength"] = field.max;
      break;
    case BodyFieldType::kArray: schema["type"] = "array"; break;
    case BodyFieldType::kTokenIds:
      schema["type"] = "array";
      schema["items"]["type"] = "integer";
      break;
    case BodyFieldType::kObject: schema["type"] = "object"; break;
  }
  return schema;
}

ordered_json schema_of(const BodyField& field, std::string_view body) {
  ordered_json schema = ordered_json::object();
  if (!field.only.empty()) {
    schema["enum"] = parse_ordered_json(field.only);
    return schema;
  }
  const ordered_json* written = openapi_field(body, field.name);
  schema = written != nullptr ? *written : type_of(field);
  return field.required ? schema : or_null(std::move(schema));
}

// The name of a body in openapi/bodies.json.
std::string_view body_name(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat: return "chat";
    case Endpoint::kCompletion: return "completion";
    case Endpoint::kResponses: return "responses";
    case Endpoint::kMessages:
    case Endpoint::kCountTokens: return "messages";
    case Endpoint::kRerank: return "rerank";
    case Endpoint::kTokenize: return "tokenize";
    case Endpoint::kPutPin: return "pin";
    default: return "";
  }
}

// The readers of bodies say what they read.
BodyFields fields_of(Endpoint endpoint) {
  BodyFields fields;
  const BodyReading reading(fields);
  constexpr std::string_view kNothing = "{}";
  switch (endpoint) {
    case Endpoint::kChat: static_cast<void>(parse_chat_call(kNothing, reading)); break;
    case Endpoint::kCompletion: static_cast<void>(parse_completion_call(kNothing, reading)); break;
    case Endpoint::kResponses: static_cast<void>(parse_responses_call(kNothing, reading)); break;
    case Endpoint::kMessages: static_cast<void>(parse_messages_call(kNothing, reading)); break;
    case Endpoint::kCountTokens:
      static_cast<void>(parse_messages_call(kNothing, reading, MessagesUse::kCount));
      break;
    case Endpoint::kEmbeddings:
      static_cast<void>(parse_embedding_call(kNothing, EmbeddingUse::kVectors, reading));
      break;
    case Endpoint::kScore:
      static_cast<void>(parse_embedding_call(kNothing, EmbeddingUse::kScore, reading));
      break;
    case Endpoint::kRerank:
      static_cast<void>(parse_embedding_call(kNothing, EmbeddingUse::kRerank, reading));
      break;
    case Endpoint::kTokenize: static_cast<void>(parse_tokenize_call(kNothing, reading)); break;
    case Endpoint::kDetokenize: static_cast<void>(parse_detokenize_call(kNothing, reading)); break;
    case Endpoint::kLoadAdapter: record_adapter_fields(true, fields); break;
    case Endpoint::kUnloadAdapter: record_adapter_fields(false, fields); break;
    case Endpoint::kPutPin: static_cast<void>(parse_pin_call(kNothing, reading)); break;
    default: break;
  }
  return fields;
}

ordered_json body_of(const BodyFields& fields, std::string_view name) {
  ordered_json content = schema_of("object");
  ordered_json& schema = content["schema"];
  schema["properties"] = ordered_json::object();
  for (const BodyField& field : fields.fields) {
    schema["properties"][field.name] = schema_of(field, name);
    if (field.required) schema["required"].push_back(field.name);
  }
  for (const auto& [first, second] : fields.either) {
    ordered_json choice;
    for (const auto& [given, missing] : {std::pair(first, second), std::pair(second, first)}) {
      ordered_json one;
      one["required"].push_back(given);
      one["properties"][given]["not"]["type"] = "null";
      one["properties"][missing]["type"] = "null";
      choice["anyOf"].push_back(std::move(one));
    }
    schema["allOf"].push_back(std::move(choice));
  }
  if (const ordered_json* rules = openapi_rules(name)) {
    for (const ordered_json& rule : *rules) schema["allOf"].push_back(rule);
  }
  return content;
}

ordered_json security(bool optional) {
  ordered_json with_key;
  with_key["key"] = ordered_json::array();
  ordered_json choices = ordered_json::array();
  choices.push_back(std::move(with_key));
  if (optional) choices.push_back(ordered_json::object());
  return choices;
}

ordered_json parameter(std::string_view name, std::string_view place) {
  ordered_json parameter;
  parameter["name"] = name;
  parameter["in"] = place;
  if (place == "path") parameter["required"] = true;
  parameter["schema"]["type"] = "string";
  return parameter;
}

// `name`: of the body in openapi/bodies.json; empty: it is not there.
void add_body(const BodyFields& fields, std::string_view name, ordered_json& operation) {
  operation["requestBody"]["required"] = true;
  operation["requestBody"]["content"]["application/json"] = body_of(fields, name);
}

ordered_json operation_of(const Route& route) {
  ordered_json operation;
  operation["summary"] = route.summary;
  if (route.needs_key) operation["security"] = security(true);  // a server may have no keys
  if (takes_id(route)) {
    operation["parameters"].push_back(parameter("id", "path"));
    if (route.endpoint != Endpoint::kModel) {
      operation["parameters"][0]["schema"]["pattern"] = kPinIdPattern;
    }
  }
  if (route.method == "POST" || route.method == "PUT") {
    add_body(fields_of(route.endpoint), body_name(route.endpoint), operation);
  }
  operation["responses"] =
      answers_of(content_type_of(route.endpoint), may_stream(route.endpoint), route.needs_key);
  if (route.method == "PUT") operation["responses"]["201"] = operation["responses"]["200"];
  return operation;
}

ordered_json operation_of(const OwnRoute& route) {
  ordered_json operation;
  operation["summary"] = route.summary;
  if (route.needs_key) operation["security"] = security(false);
  for (const QueryField& field : route.query) {
    ordered_json query = parameter(field.name, "query");
    if (!field.format.empty()) query["schema"]["format"] = field.format;
    if (!field.values.empty()) query["schema"]["enum"] = field.values;
    operation["parameters"].push_back(std::move(query));
  }
  if (route.method == "POST") add_body(route.body, {}, operation);
  operation["responses"] = answers_of(route.content_type, false, route.needs_key);
  if (!route.other_content_type.empty()) {
    operation["responses"]["200"]["content"][route.other_content_type] = schema_of("string");
  }
  return operation;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

std::string openapi_json(std::string_view version, std::span<const OwnRoute> own, bool pins) {
  ordered_json document = parse_ordered_json(kFrame);
  document["components"]["schemas"].update(openapi_schemas());
  document["info"]["version"] = version;
  for (const Route& route : all_routes()) {
    if (!pins && is_of_pins(route.endpoint)) continue;
    std::string path(route.path);
    if (takes_id(route)) path += "{id}";
    document["paths"][path][lower_case(route.method)] = operation_of(route);
  }
  for (const OwnRoute& route : own) {
    document["paths"][route.path][lower_case(route.method)] = operation_of(route);
  }
  return dump_json(document);
}

}  // namespace sluice
