#include "etcd/etcd_message.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "base/base64.h"
#include "base/json.h"
#include "base/json_depth.h"

namespace sluice {
namespace {

using EtcdJson = nlohmann::json;

constexpr int kMaxDepth = 12;

std::string base64(std::string_view bytes) { return to_base64(std::as_bytes(std::span(bytes))); }

// The first key after all that begin with `prefix`.
std::string end_of(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  if (end.empty()) return std::string(1, '\0');  // etcd: to the last key
  end.back() = static_cast<char>(end.back() + 1);
  return end;
}

// 64-bit numbers are texts in this JSON, and fields with the value 0 are left out.
Result<std::int64_t> number(const EtcdJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number_integer() && !found->is_number_unsigned()) return found->get<std::int64_t>();
  if (found->is_number_unsigned() && found->get<std::uint64_t>() <= INT64_MAX) {
    return static_cast<std::int64_t>(found->get<std::uint64_t>());
  }
  std::int64_t value = 0;
  if (found->is_string()) {
    const auto& text = found->get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size()) return value;
  }
  return invalid_argument(fmt::format("etcd's answer: {} is no 64-bit number", name));
}

Result<std::string> bytes(const EtcdJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::string();
  if (found->is_string()) {
    if (auto decoded = from_base64(found->get_ref<const std::string&>())) return *decoded;
  }
  return invalid_argument(fmt::format("etcd's answer: {} is no base64", name));
}

Result<EtcdJson> object_of(std::string_view body) {
  if (body.size() > kMaxEtcdBody) {
    return invalid_argument(
        fmt::format("etcd's answer has {} bytes, more than {}", body.size(), kMaxEtcdBody));
  }
  if (json_deeper_than(body, kMaxDepth)) {
    return invalid_argument("etcd's answer is nested too deep");
  }
  EtcdJson json = parse_json(body);
  if (!json.is_object()) return invalid_argument("etcd's answer is no JSON object");
  return json;
}

Result<std::int64_t> revision_of(const EtcdJson& answer) {
  const auto header = answer.find("header");
  if (header == answer.end() || !header->is_object()) {
    return invalid_argument("etcd's answer has no header");
  }
  ASSIGN_OR_RETURN(const std::int64_t revision, number(*header, "revision"));
  if (revision <= 0 || revision > kMaxEtcdRevision) {
    return invalid_argument(
        fmt::format("etcd's answer has no revision from 1 to {}", kMaxEtcdRevision));
  }
  return revision;
}

Status read_pairs(const EtcdJson& range, std::vector<EtcdPair>& pairs) {
  const auto found = range.find("kvs");
  if (found == range.end()) return {};
  if (!found->is_array()) return invalid_argument("etcd's answer: kvs is no list");
  for (const EtcdJson& item : *found) {
    if (!item.is_object()) return invalid_argument("etcd's answer: an entry of kvs is no object");
    EtcdPair pair;
    ASSIGN_OR_RETURN(pair.key, bytes(item, "key"));
    ASSIGN_OR_RETURN(pair.value, bytes(item, "value"));
    ASSIGN_OR_RETURN(pair.create_revision, number(item, "create_revision"));
    ASSIGN_OR_RETURN(pair.mod_revision, number(item, "mod_revision"));
    if (pair.key.empty()) return invalid_argument("etcd's answer: an entry of kvs has no key");
    pairs.push_back(std::move(pair));
  }
  return {};
}

bool flag(const EtcdJson& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

EtcdJson request_of(const EtcdChange& change, std::int64_t lease) {
  if (!change.value) return {{"request_delete_range", {{"key", base64(change.key)}}}};
  EtcdJson put = {{"key", base64(change.key)}, {"value", base64(*change.value)}};
  if (lease != 0) put["lease"] = std::to_string(lease);
  return {{"request_put", std::move(put)}};
}

}  // namespace

EtcdCall etcd_grant(std::int64_t ttl_s) {
  return {"/v3/lease/grant", dump_json(EtcdJson{{"TTL", std::to_string(ttl_s)}})};
}

EtcdCall etcd_keep_alive(std::int64_t lease) {
  return {"/v3/lease/keepalive", dump_json(EtcdJson{{"ID", std::to_string(lease)}})};
}

EtcdCall etcd_revoke(std::int64_t lease) {
  return {"/v3/lease/revoke", dump_json(EtcdJson{{"ID", std::to_string(lease)}})};
}

EtcdCall etcd_range(std::string_view prefix, std::string_view after, std::int64_t limit) {
  const std::string from =
      after.empty() ? std::string(prefix) : std::string(after) + std::string(1, '\0');
  return etcd_range_between(from, end_of(prefix), limit);
}

EtcdCall etcd_range_between(std::string_view from, std::string_view end, std::int64_t limit) {
  return {"/v3/kv/range", dump_json(EtcdJson{{"key", base64(from)},
                                             {"range_end", base64(end)},
                                             {"limit", std::to_string(limit)}})};
}

EtcdCall etcd_transaction(const EtcdTransaction& transaction) {
  EtcdJson compare = EtcdJson::array();
  for (const std::string& key : transaction.absent) {
    compare.push_back({{"target", "CREATE"},
                       {"result", "EQUAL"},
                       {"key", base64(key)},
                       {"create_revision", "0"}});
  }
  for (const EtcdPair& pair : transaction.equal) {
    compare.push_back({{"target", "VALUE"},
                       {"result", "EQUAL"},
                       {"key", base64(pair.key)},
                       {"value", base64(pair.value)}});
  }
  EtcdJson reads = EtcdJson::array();
  for (const std::string& key : transaction.reads) {
    reads.push_back({{"request_range", {{"key", base64(key)}}}});
  }
  EtcdJson success = reads;
  for (const EtcdChange& change : transaction.changes) success.push_back(request_of(change, 0));
  for (const EtcdChange& change : transaction.leased) {
    success.push_back(request_of(change, transaction.lease));
  }
  return {"/v3/kv/txn",
          dump_json(EtcdJson{{"compare", compare}, {"success", success}, {"failure", reads}})};
}

Result<EtcdLease> parse_etcd_lease(std::string_view body) {
  ASSIGN_OR_RETURN(const EtcdJson json, object_of(body));
  // A renewal's answer is one of a stream.
  const auto result = json.find("result");
  const EtcdJson& answer = result != json.end() && result->is_object() ? *result : json;
  EtcdLease lease;
  ASSIGN_OR_RETURN(lease.id, number(answer, "ID"));
  ASSIGN_OR_RETURN(lease.ttl_s, number(answer, "TTL"));
  if (lease.id == 0) return invalid_argument("etcd's answer has no lease ID");
  if (lease.ttl_s < 0 || lease.ttl_s > kMaxEtcdTtlSeconds) {
    return invalid_argument(
        fmt::format("etcd's answer: TTL is not from 0 to {} seconds", kMaxEtcdTtlSeconds));
  }
  return lease;
}

Result<EtcdRange> parse_etcd_range(std::string_view body) {
  ASSIGN_OR_RETURN(const EtcdJson json, object_of(body));
  EtcdRange range;
  ASSIGN_OR_RETURN(range.revision, revision_of(json));
  RETURN_IF_ERROR(read_pairs(json, range.pairs));
  range.more = flag(json, "more");
  if (range.more && range.pairs.empty()) {
    return invalid_argument("etcd's answer: more follows an empty list");
  }
  return range;
}

Result<EtcdOutcome> parse_etcd_outcome(std::string_view body) {
  ASSIGN_OR_RETURN(const EtcdJson json, object_of(body));
  EtcdOutcome outcome;
  outcome.succeeded = flag(json, "succeeded");
  ASSIGN_OR_RETURN(outcome.revision, revision_of(json));
  const auto responses = json.find("responses");
  if (responses == json.end()) return outcome;
  if (!responses->is_array()) return invalid_argument("etcd's answer: responses is no list");
  for (const EtcdJson& response : *responses) {
    if (!response.is_object()) {
      return invalid_argument("etcd's answer: an entry of responses is no object");
    }
    const auto range = response.find("response_range");
    if (range == response.end() || !range->is_object()) continue;
    RETURN_IF_ERROR(read_pairs(*range, outcome.pairs));
  }
  return outcome;
}

std::string etcd_error_text(int status, std::string_view body) {
  const auto json = object_of(body);
  const auto found = json ? json->find("message") : EtcdJson::const_iterator{};
  if (json && found != json->end() && found->is_string()) {
    return fmt::format("etcd refused with status {}: {}", status,
                       found->get_ref<const std::string&>());
  }
  return fmt::format("etcd answered with status {}", status);
}

}  // namespace sluice
