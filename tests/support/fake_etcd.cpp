#include "tests/support/fake_etcd.h"

#include <nlohmann/json.hpp>
#include <span>

#include "base/base64.h"
#include "base/json.h"

namespace sluice::test {

class FakeEtcd::Answers {
 public:
  explicit Answers(FakeEtcd& etcd)
      : keys_(etcd.keys_), leases_(etcd.leases_), revision_(etcd.revision_) {}

  nlohmann::json range(const nlohmann::json& request) {
    nlohmann::json answer = {{"kvs", nlohmann::json::array()}};
    const std::string end = text(request, "range_end");
    const std::size_t limit =
        request.contains("limit") ? std::stoull(request["limit"].get<std::string>()) : 1000;
    for (auto at = keys_.lower_bound(text(request, "key")); at != keys_.end(); ++at) {
      if (end.empty() ? at->first != text(request, "key") : at->first >= end) break;
      if (answer["kvs"].size() == limit) {
        answer["more"] = true;
        break;
      }
      answer["kvs"].push_back({{"key", to_base64(std::as_bytes(std::span(at->first)))},
                               {"value", to_base64(std::as_bytes(std::span(at->second.value)))}});
    }
    return answer;
  }
  nlohmann::json transact(const nlohmann::json& request) {
    bool holds = true;
    for (const auto& compare : request["compare"]) {
      const auto found = keys_.find(text(compare, "key"));
      if (compare["target"] == "CREATE") {
        holds = holds && found == keys_.end();
      } else {
        holds = holds && found != keys_.end() && found->second.value == text(compare, "value");
      }
    }
    nlohmann::json answer = {{"succeeded", holds}, {"responses", nlohmann::json::array()}};
    if (holds) ++revision_;
    for (const auto& operation : request[holds ? "success" : "failure"]) {
      if (operation.contains("request_range")) {
        answer["responses"].push_back({{"response_range", range(operation["request_range"])}});
      } else if (operation.contains("request_put")) {
        const auto& put = operation["request_put"];
        const std::int64_t lease =
            put.contains("lease") ? std::stoll(put["lease"].get<std::string>()) : 0;
        if (lease != 0 && !leases_.contains(lease)) return {{"error", "lease not found"}};
        keys_[text(put, "key")] = {text(put, "value"), lease};
      } else {
        keys_.erase(text(operation["request_delete_range"], "key"));
      }
    }
    return answer;
  }

 private:
  static std::string text(const nlohmann::json& object, const char* name) {
    return object.contains(name) ? from_base64(object[name].get<std::string>()).value() : "";
  }

  std::map<std::string, Entry>& keys_;
  std::map<std::int64_t, Lease>& leases_;
  std::int64_t& revision_;
};

Result<std::string> FakeEtcd::handle(const EtcdCall& call) {
  // Base64 makes four bytes of three.
  if (call.body.size() / 4 * 3 > kMaxRequest) {
    return tl::unexpected(unavailable("etcdserver: request is too large"));
  }
  expire();
  const nlohmann::json body = parse_json(call.body);
  nlohmann::json answer;
  if (call.path == "/v3/lease/grant") {
    const std::int64_t ttl = std::stoll(body["TTL"].get<std::string>());
    leases_[++ids_] = {ttl, clock_.now() + std::chrono::seconds(ttl)};
    answer = {{"ID", std::to_string(ids_)}, {"TTL", std::to_string(ttl)}};
  } else if (call.path == "/v3/lease/keepalive") {
    const std::int64_t id = std::stoll(body["ID"].get<std::string>());
    answer["result"]["ID"] = std::to_string(id);
    if (const auto found = leases_.find(id); found != leases_.end()) {
      found->second.ends = clock_.now() + std::chrono::seconds(found->second.ttl_s);
      answer["result"]["TTL"] = std::to_string(found->second.ttl_s);
    }
  } else if (call.path == "/v3/lease/revoke") {
    leases_[std::stoll(body["ID"].get<std::string>())].ends = clock_.now();
    expire();
  } else if (call.path == "/v3/kv/range") {
    answer = Answers(*this).range(body);
  } else {
    answer = Answers(*this).transact(body);
  }
  answer["header"]["revision"] = std::to_string(revision_);
  return dump_json(answer);
}

void FakeEtcd::expire() {
  std::erase_if(leases_, [&](const auto& lease) { return clock_.now() >= lease.second.ends; });
  std::erase_if(keys_, [&](const auto& key) {
    return key.second.lease != 0 && !leases_.contains(key.second.lease);
  });
}

}  // namespace sluice::test
