#include <nlohmann/json.hpp>

#include "base/json.h"
#include "coordinator/coordinator_service.h"
#include "lending/lending_json.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

ordered_json text() { return {{"type", "string"}}; }
ordered_json bytes() { return {{"type", "integer"}, {"minimum", 0}, {"maximum", kMaxLeaseBytes}}; }

ordered_json list(const ordered_json& item) { return {{"type", "array"}, {"items", item}}; }

ordered_json object(const ordered_json& properties, const ordered_json& required) {
  return {{"type", "object"},
          {"properties", properties},
          {"required", required},
          {"additionalProperties", false}};
}

// The fields of each verb, as parse_lend_request() reads them.
ordered_json body_of(LendVerb verb) {
  const ordered_json entry = object({{"lease", text()}, {"bytes", bytes()}}, {"lease", "bytes"});
  ordered_json properties = {{"party", text()}};
  ordered_json required = {"party"};
  const auto add = [&](const char* name, const ordered_json& type, bool is_required = true) {
    properties[name] = type;
    if (is_required) required.push_back(name);
  };
  if (verb == LendVerb::kJoin) {
    add("device", text());
    add("kind", {{"type", "string"}, {"enum", {"budget", "pages"}}}, false);
    add("socket", text(), false);
    add("held", list(entry), false);
    add("leases", list(entry), false);
  } else {
    add("epoch", {{"type", "integer"}});
  }
  if (verb == LendVerb::kHeartbeat) {
    add("want", bytes(), false);
    add("spare", bytes(), false);
  } else if (verb != LendVerb::kLeave) {
    add("key", text());
  }
  const bool names_lease = verb == LendVerb::kLease || verb == LendVerb::kReclaim ||
                           verb == LendVerb::kUnlease || verb == LendVerb::kRevoke ||
                           verb == LendVerb::kFree || verb == LendVerb::kRespond;
  if (names_lease) add("lease", text());
  const bool takes_all = verb == LendVerb::kUnlease || verb == LendVerb::kRevoke;
  if ((names_lease && !takes_all) || verb == LendVerb::kAllocate) {
    add("bytes", bytes());
  }
  return object(properties, required);
}

const char* summary_of(LendVerb verb) {
  switch (verb) {
    case LendVerb::kJoin: return "A process begins, or presents what it holds";
    case LendVerb::kHeartbeat: return "A party lives; what it lacks and what it can spare";
    case LendVerb::kLease: return "Offers memory, or raises an offer";
    case LendVerb::kReclaim: return "Takes a part of an offer back";
    case LendVerb::kUnlease: return "Takes all of an offer back";
    case LendVerb::kRevoke: return "Says that recalled pages were taken back without consent";
    case LendVerb::kAllocate: return "Borrows up to so many bytes";
    case LendVerb::kFree: return "Gives bytes back by choice";
    case LendVerb::kRespond: return "Gives back bytes that were recalled";
    case LendVerb::kLeave: return "A process ends in order";
  }
  return "";
}

ordered_json answer(const char* description, const char* content_type = "application/json") {
  return {{"description", description}, {"content", {{content_type, ordered_json::object()}}}};
}

}  // namespace

std::string coordinator_openapi(std::string_view version) {
  ordered_json document = {{"openapi", "3.1.0"},
                           {"info", {{"title", "Sluice coordinator"}, {"version", version}}},
                           {"security", {{{"token", ordered_json::array()}}}},
                           {"paths", ordered_json::object()}};
  document["components"]["securitySchemes"]["token"] = {{"type", "http"}, {"scheme", "bearer"}};
  ordered_json& paths = document["paths"];
  for (const LendVerb verb : lend_verbs()) {
    paths["/v1/" + std::string(lend_verb_name(verb))]["post"] = {
        {"operationId", lend_verb_name(verb)},
        {"summary", summary_of(verb)},
        {"requestBody",
         {{"required", true}, {"content", {{"application/json", {{"schema", body_of(verb)}}}}}}},
        {"responses",
         {{"200", answer("The party's state: epoch, loans, leases")},
          {"400", answer("A field is wrong")},
          {"401", answer("No token, or a wrong one")},
          {"404", answer("No such party or lease")},
          {"409", answer("A later process has the name, or the key was used")},
          {"429", answer("Too many parties or leases")},
          {"503", answer("Another coordinator leads, or etcd does not answer: repeat it")}}}};
  }
  const auto get = [&](const char* path, const char* summary, const char* type, bool open) {
    ordered_json operation = {{"summary", summary},
                              {"responses", {{"200", answer(summary, type)}}}};
    if (open) operation["security"] = ordered_json::array();
    paths[path]["get"] = std::move(operation);
  };
  get("/v1/status", "Parties, leases and loans", "application/json", false);
  get("/metrics", "Prometheus metrics", "text/plain", false);
  get("/health", "Whether the coordinator runs", "application/json", true);
  get("/openapi.json", "This document", "application/json", true);
  return dump_json(document);
}

}  // namespace sluice
