#include <nlohmann/json.hpp>

#include "base/json.h"
#include "coordinator/coordinator_service.h"
#include "lending/lending_json.h"
#include "membership/join_keys.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

constexpr const char* kName = "^[A-Za-z0-9_.:-]{1,64}$";
constexpr const char* kLeaseName = "^[A-Za-z0-9_.:-]{1,64}/[A-Za-z0-9_.:-]{1,64}$";

ordered_json text(const char* pattern) { return {{"type", "string"}, {"pattern", pattern}}; }
ordered_json any_text() { return {{"type", "string"}}; }
ordered_json name() { return text(kName); }
ordered_json whole() { return {{"type", "integer"}, {"minimum", 0}}; }
ordered_json bytes(std::int64_t least) {
  return {{"type", "integer"}, {"minimum", least}, {"maximum", kMaxLeaseBytes}};
}
ordered_json one_of(const ordered_json& values) { return {{"type", "string"}, {"enum", values}}; }
ordered_json kind() { return one_of({"budget", "pages"}); }

ordered_json list(const ordered_json& item, std::size_t most = LendingBook::kMaxLeases) {
  return {{"type", "array"}, {"items", item}, {"maxItems", most}};
}

ordered_json object(const ordered_json& properties, const ordered_json& required) {
  return {{"type", "object"},
          {"properties", properties},
          {"required", required},
          {"additionalProperties", false}};
}

// The fields of each verb, as parse_lend_request() reads them.
ordered_json body_of(LendVerb verb) {
  const auto entry = [](const char* lease) {
    return object({{"lease", text(lease)}, {"bytes", bytes(1)}}, {"lease", "bytes"});
  };
  ordered_json properties = {{"party", name()}};
  ordered_json required = {"party"};
  const auto add = [&](const char* field, const ordered_json& type, bool is_required = true) {
    properties[field] = type;
    if (is_required) required.push_back(field);
  };
  if (verb == LendVerb::kJoin) {
    add("device", name());
    add("kind", kind(), false);
    add("socket", name(), false);
    add("held", list(entry(kLeaseName)), false);
    add("leases", list(entry(kName)), false);
    add("earlier_joins", list(name(), kMaxEarlierJoins), false);
  } else {
    add("epoch", whole());
  }
  if (verb == LendVerb::kHeartbeat) {
    add("want", bytes(0), false);
    add("spare", bytes(0), false);
  } else if (verb != LendVerb::kLeave) {
    add("key", name());
  }
  const bool gives_back = verb == LendVerb::kFree || verb == LendVerb::kRespond;
  const bool names_own = verb == LendVerb::kLease || verb == LendVerb::kReclaim ||
                         verb == LendVerb::kUnlease || verb == LendVerb::kRevoke;
  if (gives_back || names_own) add("lease", text(gives_back ? kLeaseName : kName));
  const bool takes_all = verb == LendVerb::kUnlease || verb == LendVerb::kRevoke;
  if (gives_back || (names_own && !takes_all) || verb == LendVerb::kAllocate) {
    add("bytes", bytes(1));
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

// An object of which all fields are required but those of `rarely`.
ordered_json answered(ordered_json properties, const ordered_json& rarely = {}) {
  ordered_json required = ordered_json::array();
  for (const auto& [field, type] : properties.items()) required.push_back(field);
  for (const auto& [field, type] : rarely.items()) properties[field] = type;
  return object(properties, required);
}

// The fields of answers, as lend_answer_json() and lending_status_json() write them. Sums of a
// lease or a party may exceed the largest amount of one message.
ordered_json schemas() {
  const ordered_json loan = {
      {"lease", text(kLeaseName)}, {"lender", any_text()}, {"bytes", whole()}, {"keep", whole()}};
  const ordered_json socket = {{"socket", name()}};
  const ordered_json lease = {
      {"lease", text(kLeaseName)}, {"bytes", whole()}, {"wanted_back", whole()}, {"lent", whole()}};
  const ordered_json holder = answered({{"party", name()}, {"bytes", whole()}, {"keep", whole()}});
  ordered_json loan_of_party = loan;
  loan_of_party["borrower"] = name();
  ordered_json lease_of_device = lease;
  lease_of_device["device"] = name();
  lease_of_device["kind"] = kind();
  lease_of_device["lender"] = any_text();
  const ordered_json party = answered({{"party", name()},
                                       {"device", name()},
                                       {"kind", kind()},
                                       {"epoch", whole()},
                                       {"silent_for_ms", whole()},
                                       {"held", whole()},
                                       {"want", whole()},
                                       {"spare", whole()}});
  ordered_json codes = ordered_json::array();
  for (const LendFault fault : lend_faults()) codes.push_back(lend_fault_name(fault));
  return {
      {"Party", answered({{"epoch", whole()},
                          {"expiry_ms", whole()},
                          {"no_grants_for_ms", whole()},
                          {"granted", whole()},
                          {"returned", whole()},
                          {"available", whole()},
                          {"loans", list(answered(loan, socket))},
                          {"leases", list(answered(lease, {{"holders", list(holder)}}))}})},
      {"Status", answered({{"no_grants_for_ms", whole()},
                           {"expired_parties", whole()},
                           {"parties", list(party, LendingBook::kMaxParties)},
                           {"leases", list(answered(lease_of_device))},
                           {"loans", {{"type", "array"}, {"items", answered(loan_of_party)}}}})},
      {"Error",
       answered({{"error", answered({{"code", one_of(codes)}, {"message", any_text()}})}})}};
}

ordered_json answer(const char* description, const ordered_json& schema = ordered_json::object(),
                    const char* content_type = "application/json") {
  ordered_json content = ordered_json::object();
  if (!schema.empty()) content["schema"] = schema;
  return {{"description", description}, {"content", {{content_type, content}}}};
}

ordered_json schema_of(const char* schema) {
  return {{"$ref", std::string("#/components/schemas/") + schema}};
}

}  // namespace

std::string coordinator_openapi(std::string_view version) {
  ordered_json document = {{"openapi", "3.1.0"},
                           {"info", {{"title", "Sluice coordinator"}, {"version", version}}},
                           {"security", {{{"token", ordered_json::array()}}}},
                           {"paths", ordered_json::object()}};
  document["components"]["securitySchemes"]["token"] = {{"type", "http"}, {"scheme", "bearer"}};
  document["components"]["schemas"] = schemas();
  const auto refused = [](const char* description) {
    return answer(description, schema_of("Error"));
  };
  ordered_json& paths = document["paths"];
  for (const LendVerb verb : lend_verbs()) {
    paths["/v1/" + std::string(lend_verb_name(verb))]["post"] = {
        {"operationId", lend_verb_name(verb)},
        {"summary", summary_of(verb)},
        {"requestBody",
         {{"required", true}, {"content", {{"application/json", {{"schema", body_of(verb)}}}}}}},
        {"responses",
         {{"200", answer("The party's state: epoch, loans, leases", schema_of("Party"))},
          {"400", refused("A field is wrong")},
          {"401", refused("No token, or a wrong one")},
          {"404", refused("No such party or lease")},
          {"409", refused("A later process has the name, or the key was used")},
          {"413", refused("The body is too long")},
          {"429", refused("Too many parties or leases")},
          {"503", refused("Another coordinator leads, or etcd does not answer: repeat it")}}}};
  }
  const auto get = [&](const char* path, const char* summary, const ordered_json& found,
                       bool open) {
    ordered_json operation = {{"summary", summary}, {"responses", {{"200", found}}}};
    if (open) {
      operation["security"] = ordered_json::array();
    } else {
      operation["responses"]["401"] = refused("No token, or a wrong one");
    }
    paths[path]["get"] = std::move(operation);
  };
  get("/v1/status", "Parties, leases and loans",
      answer("Parties, leases and loans", schema_of("Status")), false);
  paths["/v1/status"]["get"]["responses"]["503"] =
      refused("Another coordinator leads, or etcd does not answer: repeat it");
  get("/metrics", "Prometheus metrics", answer("Prometheus metrics", {}, "text/plain"), false);
  get("/health", "Whether the coordinator runs", answer("It runs"), true);
  get("/openapi.json", "This document", answer("This document"), true);
  return dump_json(document);
}

}  // namespace sluice
