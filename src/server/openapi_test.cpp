#include "server/openapi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/json.h"
#include "server/routes.h"

namespace sluice {
namespace {

TEST(OpenApi, HasEveryRouteWithWhatItNeeds) {
  const nlohmann::json document = parse_json(openapi_json("1.2"));
  ASSERT_FALSE(document.is_discarded());
  EXPECT_EQ(document["openapi"], "3.1.0");
  EXPECT_EQ(document["info"]["version"], "1.2");
  std::size_t operations = 0;
  for (const auto& [path, item] : document["paths"].items()) operations += item.size();
  EXPECT_EQ(operations, all_routes().size());
  for (const Route& route : all_routes()) {
    std::string path(route.path);
    if (takes_id(route)) path += "{id}";
    std::string method(route.method);
    std::ranges::transform(method, method.begin(), [](char c) { return std::tolower(c); });
    ASSERT_TRUE(document["paths"][path].contains(method)) << path;
    const nlohmann::json& operation = document["paths"][path][method];
    EXPECT_FALSE(operation["summary"].get<std::string>().empty()) << path;
    EXPECT_EQ(operation.contains("security"), route.needs_key) << path;
    const bool has_body = route.method == "POST" || route.method == "PUT";
    EXPECT_EQ(operation.contains("requestBody"), has_body) << path;
    EXPECT_TRUE(operation["responses"].contains("200")) << path;
  }
}

TEST(OpenApi, OwnRoutesStandBesideTheOthersOrInTheirPlace) {
  std::vector<OwnRoute> own(2);
  own[0].method = "POST";
  own[0].path = "/own";
  own[0].summary = "A route of the command";
  own[0].body.add("count", BodyFieldType::kInteger, 1, 9);
  own[1].method = "GET";
  own[1].path = "/";
  own[1].summary = "Another page";
  own[1].needs_key = false;
  own[1].content_type = "text/html";
  own[1].other_content_type = "text/csv";
  own[1].query = {{.name = "filter", .values = {"a", "b"}}, {.name = "day", .format = "date"}};
  const nlohmann::json document = parse_json(openapi_json("1.2", own));
  EXPECT_EQ(document["paths"].size(), parse_json(openapi_json("1.2"))["paths"].size() + 1);
  const nlohmann::json post = document["paths"]["/own"]["post"];
  EXPECT_EQ(post["security"].size(), 1U);  // there are keys
  const nlohmann::json body = post["requestBody"]["content"]["application/json"]["schema"];
  EXPECT_EQ(body["properties"]["count"]["maximum"], 9);
  const nlohmann::json page = document["paths"]["/"]["get"];
  EXPECT_EQ(page["summary"], "Another page");
  EXPECT_FALSE(page.contains("security"));
  EXPECT_EQ(page["parameters"][0]["name"], "filter");
  EXPECT_EQ(page["parameters"][0]["schema"]["enum"], nlohmann::json::parse(R"(["a", "b"])"));
  EXPECT_FALSE(page["parameters"][0]["schema"].contains("format"));
  EXPECT_EQ(page["parameters"][1]["schema"]["format"], "date");
  EXPECT_TRUE(page["responses"]["200"]["content"].contains("text/html"));
  EXPECT_TRUE(page["responses"]["200"]["content"].contains("text/csv"));
}

TEST(OpenApi, HasNoPinsWhereTheCommandHasNone) {
  const auto pins_of = [](const nlohmann::json& document) {
    return document["paths"].contains("/v1/kv/prefixes") ||
           document["paths"].contains("/v1/kv/prefixes/{id}");
  };
  EXPECT_TRUE(pins_of(parse_json(openapi_json("1.2"))));
  EXPECT_FALSE(pins_of(parse_json(openapi_json("1.2", {}, false))));
}

TEST(OpenApi, FieldsOfBodiesAreThoseThatAreRead) {
  const nlohmann::json document = parse_json(openapi_json("1.2"));
  const auto schema_of = [&](const char* path) {
    return document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
  };
  const nlohmann::json chat = schema_of("/v1/chat/completions");
  EXPECT_EQ(chat["required"], nlohmann::json::parse(R"(["model", "messages"])"));
  EXPECT_EQ(chat["properties"]["model"]["type"], "string");
  EXPECT_EQ(chat["properties"]["temperature"]["type"],
            nlohmann::json::parse(R"(["number", "null"])"));
  EXPECT_EQ(chat["properties"]["n"]["minimum"], 1);
  EXPECT_EQ(chat["properties"]["top_logprobs"]["maximum"], 20);
  EXPECT_EQ(chat["properties"]["stop"]["anyOf"].size(), 2U);  // or null
  EXPECT_EQ(chat["properties"]["stop_token_ids"]["items"]["$ref"], "#/components/schemas/TokenId");
  EXPECT_EQ(chat["properties"]["functions"]["enum"],
            nlohmann::json::parse(R"(["", [], {}, null])"));  // not served
  EXPECT_EQ(chat["properties"]["session_id"]["maxLength"], 512);
  const std::vector<std::pair<const char*, const char*>> required = {
      {"/v1/completions", R"(["model", "prompt"])"},
      {"/v1/embeddings", R"(["model", "input"])"},
      {"/v1/rerank", R"(["model", "query", "documents"])"},
      {"/v1/responses", R"(["model", "input"])"},
      {"/v1/messages", R"(["model", "messages", "max_tokens"])"},
      {"/v1/messages/count_tokens", R"(["model", "messages"])"},
      {"/detokenize", R"(["tokens"])"},
      {"/v1/load_lora_adapter", R"(["lora_name", "lora_path"])"},
  };
  for (const auto& [path, names] : required) {
    nlohmann::json got = schema_of(path)["required"];
    nlohmann::json wanted = nlohmann::json::parse(names);
    std::sort(got.begin(), got.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(got, wanted) << path;
  }
  EXPECT_EQ(schema_of("/v1/score")["required"], nlohmann::json::parse(R"(["model"])"));
  EXPECT_EQ(schema_of("/v1/score")["allOf"].size(), 2U);
  EXPECT_EQ(schema_of("/v1/score")["allOf"][0], nlohmann::json::parse(R"({"anyOf": [
      {"required": ["queries"],
       "properties": {"queries": {"not": {"type": "null"}}, "text_1": {"type": "null"}}},
      {"required": ["text_1"],
       "properties": {"text_1": {"not": {"type": "null"}}, "queries": {"type": "null"}}}]})"));
}

// Calls `visit` with each schema inside of a value.
void for_each_reference(const nlohmann::json& value,
                        const std::function<void(const std::string&)>& visit) {
  EXPECT_FALSE(value.is_string() && value.get<std::string>().starts_with('@')) << value;
  if (!value.is_structured()) return;
  if (value.is_object() && value.contains("$ref")) visit(value["$ref"].get<std::string>());
  for (const nlohmann::json& member : value) for_each_reference(member, visit);
}

TEST(OpenApi, ReferencesAndWrittenFieldsExist) {
  const nlohmann::json document = parse_json(openapi_json("1.2"));
  for_each_reference(document, [&](const std::string& reference) {
    EXPECT_TRUE(document.contains(nlohmann::json::json_pointer(reference.substr(1)))) << reference;
  });
  // Hints that change no answer may have any value.
  const std::set<std::string> any = {"prompt_cache_key", "service_tier",  "stream_options",
                                     "metadata",         "cache_control", "inference_geo"};
  std::set<std::string> read;
  for (const auto& [path, item] : document["paths"].items()) {
    if (!item.contains("post") && !item.contains("put")) continue;
    const nlohmann::json schema = item[item.contains("put") ? "put" : "post"]["requestBody"]
                                      ["content"]["application/json"]["schema"];
    for (const auto& [name, field] : schema["properties"].items()) {
      read.insert(name);
      EXPECT_TRUE(!field.empty() || any.contains(name)) << path << ": " << name;
    }
    for (const nlohmann::json& rule : schema.value("allOf", nlohmann::json::array())) {
      for (const nlohmann::json& branch : rule["anyOf"]) {
        for (const auto& [name, unused] : branch["properties"].items()) {
          EXPECT_TRUE(schema["properties"].contains(name)) << path << ": " << name;
        }
      }
    }
  }
  for (const char* name : {"stop", "response_format", "reasoning", "thinking", "documents"}) {
    EXPECT_TRUE(read.contains(name)) << name;
  }
}

TEST(OpenApi, StreamsAndTheIdOfAModelAreInIt) {
  const nlohmann::json document = parse_json(openapi_json("1.2"));
  const nlohmann::json& chat = document["paths"]["/v1/chat/completions"]["post"];
  EXPECT_TRUE(chat["responses"]["200"]["content"].contains("text/event-stream"));
  EXPECT_EQ(document["paths"]["/v1/models/{id}"]["get"]["parameters"][0]["name"], "id");
  const nlohmann::json put = document["paths"]["/v1/kv/prefixes/{id}"]["put"];
  EXPECT_EQ(put["parameters"][0]["schema"]["pattern"], "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$");
  EXPECT_TRUE(put["responses"].contains("201"));
  EXPECT_TRUE(document["paths"]["/v1/kv/prefixes"].contains("get"));
  EXPECT_TRUE(document["paths"]["/openapi.json"].contains("get"));
}

}  // namespace
}  // namespace sluice
