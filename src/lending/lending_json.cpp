#include "lending/lending_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "base/json.h"
#include "base/json_depth.h"
#include "membership/join_keys.h"

namespace sluice {
namespace {

using LendJson = nlohmann::ordered_json;

constexpr int kMaxDepth = 6;
constexpr std::array kVerbs = {LendVerb::kJoin,     LendVerb::kHeartbeat, LendVerb::kLease,
                               LendVerb::kReclaim,  LendVerb::kUnlease,   LendVerb::kRevoke,
                               LendVerb::kAllocate, LendVerb::kFree,      LendVerb::kRespond,
                               LendVerb::kLeave};

bool has_key(LendVerb verb) { return verb != LendVerb::kHeartbeat && verb != LendVerb::kLeave; }
bool has_lease(LendVerb verb) {
  return has_key(verb) && verb != LendVerb::kJoin && verb != LendVerb::kAllocate;
}
bool has_bytes(LendVerb verb) {
  return has_key(verb) && verb != LendVerb::kJoin && verb != LendVerb::kUnlease &&
         verb != LendVerb::kRevoke;
}

std::int64_t milliseconds_left(Duration time) {  // rounded up: 0 says that nothing is left
  return std::chrono::ceil<std::chrono::milliseconds>(time).count();
}

std::int64_t milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

// Reads the members of one object. The first error stays; members that were not read are refused.
class Members {
 public:
  Members(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("the body must be a JSON object");
  }

  void text(const char* name, std::string& out, bool required = true) {
    const nlohmann::json* value = find(name, required);
    if (value == nullptr) return;
    if (!value->is_string()) return fail(fmt::format("{}{} must be a text", where_, name));
    out = value->get<std::string>();
  }
  void kind(LendKind& out) {
    const nlohmann::json* value = find("kind", false);
    if (value == nullptr) return;
    for (const LendKind known : {LendKind::kBudget, LendKind::kPages}) {
      if (*value == lend_kind_name(known)) {
        out = known;
        return;
      }
    }
    fail(fmt::format("{}kind must be 'budget' or 'pages'", where_));
  }
  // A whole number that fits; more than 64 bits or a fraction is refused.
  void integer(const char* name, std::int64_t& out, bool required) {
    const nlohmann::json* value = find(name, required);
    if (value == nullptr) return;
    const bool fits = value->is_number_integer() &&
                      !(value->is_number_unsigned() &&
                        value->get<std::uint64_t>() >
                            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    if (!fits) return fail(fmt::format("{}{} must be a whole number", where_, name));
    out = value->get<std::int64_t>();
  }
  void list(const char* name, std::vector<LeaseBytes>& out) {
    const nlohmann::json* value = find(name, false);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > LendingBook::kMaxLeases) {
      return fail(
          fmt::format("{}{} must be a list of at most {}", where_, name, LendingBook::kMaxLeases));
    }
    for (const nlohmann::json& item : *value) {
      Members members(item, fmt::format("{}: ", name));
      LeaseBytes entry;
      members.text("lease", entry.lease);
      members.integer("bytes", entry.bytes, true);
      if (const Status read = members.finish(); !read) return fail(read.error().message);
      out.push_back(std::move(entry));
    }
  }
  void keys(const char* name, std::vector<std::string>& out) {
    const nlohmann::json* value = find(name, false);
    if (value == nullptr) return;
    const bool fits =
        value->is_array() && value->size() <= kMaxEarlierJoins &&
        std::ranges::all_of(*value, [](const nlohmann::json& key) { return key.is_string(); });
    if (!fits) {
      return fail(
          fmt::format("{}{} must be a list of at most {} texts", where_, name, kMaxEarlierJoins));
    }
    out = value->get<std::vector<std::string>>();
  }
  Status finish() const {
    if (error_) return invalid_argument(*error_);
    for (const auto& [name, value] : object_.items()) {
      if (std::ranges::find(read_, name) != read_.end()) continue;
      return invalid_argument(fmt::format("{}there is no field '{}'; remove it", where_, name));
    }
    return {};
  }

  // Keeps the first error.
  void fail(std::string message) {
    if (!error_) error_ = std::move(message);
  }

 private:
  const nlohmann::json* find(const char* name, bool required) {
    if (error_) return nullptr;
    read_.emplace_back(name);
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    if (required) fail(fmt::format("{}{} is missing", where_, name));
    return nullptr;
  }
  const nlohmann::json& object_;
  const std::string where_;
  std::vector<std::string> read_;
  std::optional<std::string> error_;
};

LendJson list_json(const std::vector<LeaseBytes>& list) {
  LendJson array = LendJson::array();
  for (const LeaseBytes& entry : list) {
    array.push_back({{"lease", entry.lease}, {"bytes", entry.bytes}});
  }
  return array;
}

LendJson loan_json(const LoanView& loan) {
  LendJson json = {
      {"lease", loan.lease}, {"lender", loan.lender}, {"bytes", loan.bytes}, {"keep", loan.keep}};
  if (!loan.socket.empty()) json["socket"] = loan.socket;
  return json;
}

LendJson lease_json(const LeaseView& lease) {
  LendJson json = {{"lease", lease.lease},
                   {"bytes", lease.bytes},
                   {"wanted_back", lease.wanted_back},
                   {"lent", lease.lent}};
  for (const LeaseHolder& holder : lease.holders) {
    json["holders"].push_back(
        {{"party", holder.party}, {"bytes", holder.bytes}, {"keep", holder.keep}});
  }
  return json;
}

// A pool is "DEVICE" or "DEVICE/pages".
std::string device_of(const std::string& pool) { return pool.substr(0, pool.find('/')); }
std::string_view kind_of(const std::string& pool) {
  return lend_kind_name(pool.find('/') == std::string::npos ? LendKind::kBudget : LendKind::kPages);
}

template <class T>
T number_of(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<T>() : T{0};
}

std::string text_of(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<LendAnswer> parse_fault(const nlohmann::json& error) {
  LendAnswer answer;
  const std::string code = error.is_object() ? text_of(error, "code") : std::string();
  for (const LendFault fault : lend_faults()) {
    if (lend_fault_name(fault) == code) answer.fault = fault;
  }
  if (answer.fault == LendFault::kNone) {
    return invalid_argument("the answer is an error without a known code: " +
                            (error.is_object() ? text_of(error, "message") : std::string()));
  }
  answer.message = text_of(error, "message");
  return answer;
}

bool are_amounts(std::int64_t bytes, std::int64_t keep) {
  return bytes >= 0 && bytes <= kMaxLeaseBytes && keep >= 0 && keep <= bytes;
}

Status parse_leases(const nlohmann::json& root, LendReply& reply) {
  const auto leases = root.find("leases");
  if (leases == root.end()) return {};
  if (!leases->is_array()) return invalid_argument("leases is no list");
  for (const nlohmann::json& item : *leases) {
    if (!item.is_object()) return invalid_argument("leases: an entry is no object");
    LeaseView lease{text_of(item, "lease"), number_of<std::int64_t>(item, "bytes"),
                    number_of<std::int64_t>(item, "wanted_back"),
                    number_of<std::int64_t>(item, "lent")};
    if (!are_amounts(lease.bytes, lease.wanted_back) || !are_amounts(lease.bytes, lease.lent)) {
      return invalid_argument("leases: bytes, wanted_back or lent is out of range");
    }
    const auto holders = item.find("holders");
    if (holders != item.end() && holders->is_array()) {
      for (const nlohmann::json& entry : *holders) {
        if (!entry.is_object()) return invalid_argument("leases: a holder is no object");
        LeaseHolder holder{text_of(entry, "party"), number_of<std::int64_t>(entry, "bytes"),
                           number_of<std::int64_t>(entry, "keep")};
        if (!are_amounts(holder.bytes, holder.keep)) {
          return invalid_argument("leases: bytes or keep of a holder is out of range");
        }
        lease.holders.push_back(std::move(holder));
      }
    }
    reply.leases.push_back(std::move(lease));
  }
  return {};
}

}  // namespace

std::span<const LendVerb> lend_verbs() { return kVerbs; }

std::string_view lend_verb_name(LendVerb verb) {
  switch (verb) {
    case LendVerb::kJoin: return "join";
    case LendVerb::kHeartbeat: return "heartbeat";
    case LendVerb::kLease: return "lease";
    case LendVerb::kReclaim: return "reclaim";
    case LendVerb::kUnlease: return "unlease";
    case LendVerb::kRevoke: return "revoke";
    case LendVerb::kAllocate: return "allocate";
    case LendVerb::kFree: return "free";
    case LendVerb::kRespond: return "respond";
    case LendVerb::kLeave: return "leave";
  }
  return "";
}

Result<LendRequest> parse_lend_request(LendVerb verb, std::string_view body) {
  if (json_deeper_than(body, kMaxDepth)) return invalid_argument("the body is nested too deeply");
  const nlohmann::json root = parse_json(body);
  Members members(root, "");
  LendRequest request;
  request.verb = verb;
  members.text("party", request.party);
  if (verb == LendVerb::kJoin) {
    members.text("device", request.device);
    members.kind(request.kind);
    members.text("socket", request.socket, false);
    members.list("held", request.held);
    members.list("leases", request.leases);
    members.keys("earlier_joins", request.earlier_joins);
  } else {
    std::int64_t epoch = 0;
    members.integer("epoch", epoch, true);
    if (epoch < 0) members.fail("epoch must not be negative");
    request.epoch = static_cast<std::uint64_t>(std::max<std::int64_t>(epoch, 0));
  }
  if (verb == LendVerb::kHeartbeat) {
    members.integer("want", request.want, false);
    members.integer("spare", request.spare, false);
  }
  if (has_key(verb)) members.text("key", request.key);
  if (has_lease(verb)) members.text("lease", request.lease);
  if (has_bytes(verb)) members.integer("bytes", request.bytes, true);
  RETURN_IF_ERROR(members.finish());
  return request;
}

std::string lend_request_json(const LendRequest& request) {
  const LendVerb verb = request.verb;
  LendJson body = {{"party", request.party}};
  if (verb == LendVerb::kJoin) {
    body["device"] = request.device;
    if (request.kind == LendKind::kPages) body["kind"] = lend_kind_name(request.kind);
    if (!request.socket.empty()) body["socket"] = request.socket;
    body["held"] = list_json(request.held);
    body["leases"] = list_json(request.leases);
    if (!request.earlier_joins.empty()) body["earlier_joins"] = request.earlier_joins;
  } else {
    body["epoch"] = request.epoch;
  }
  if (verb == LendVerb::kHeartbeat) {
    body["want"] = request.want;
    body["spare"] = request.spare;
  }
  if (has_key(verb)) body["key"] = request.key;
  if (has_lease(verb)) body["lease"] = request.lease;
  if (has_bytes(verb)) body["bytes"] = request.bytes;
  return dump_json(body);
}

std::string lend_answer_json(const LendAnswer& answer) {
  if (answer.fault != LendFault::kNone) {
    return dump_json(LendJson{
        {"error", {{"code", lend_fault_name(answer.fault)}, {"message", answer.message}}}});
  }
  const LendReply& reply = answer.reply;
  LendJson body = {{"epoch", reply.epoch},
                   {"expiry_ms", milliseconds(reply.expiry)},
                   {"no_grants_for_ms", milliseconds_left(reply.no_grants_for)},
                   {"granted", reply.granted},
                   {"returned", reply.returned},
                   {"available", reply.available},
                   {"loans", LendJson::array()},
                   {"leases", LendJson::array()}};
  for (const LoanView& loan : reply.loans) body["loans"].push_back(loan_json(loan));
  for (const LeaseView& lease : reply.leases) body["leases"].push_back(lease_json(lease));
  return dump_json(body);
}

Result<LendAnswer> parse_lend_answer(std::string_view body) {
  if (json_deeper_than(body, kMaxDepth)) return invalid_argument("the answer is nested too deeply");
  const nlohmann::json root = parse_json(body);
  if (!root.is_object()) return invalid_argument("the answer is not a JSON object");
  if (const auto error = root.find("error"); error != root.end()) return parse_fault(*error);
  LendAnswer answer;
  LendReply& reply = answer.reply;
  reply.epoch = number_of<std::uint64_t>(root, "epoch");
  reply.expiry = std::chrono::milliseconds(
      std::clamp<std::int64_t>(number_of<std::int64_t>(root, "expiry_ms"), 0, 86'400'000));
  reply.no_grants_for = std::chrono::milliseconds(
      std::clamp<std::int64_t>(number_of<std::int64_t>(root, "no_grants_for_ms"), 0, 86'400'000));
  reply.granted = number_of<std::int64_t>(root, "granted");
  reply.returned = number_of<std::int64_t>(root, "returned");
  reply.available = number_of<std::int64_t>(root, "available");
  if (reply.epoch == 0 || reply.expiry.count() == 0) {
    return invalid_argument("the answer has no epoch or no expiry_ms: it is no coordinator's");
  }
  const auto loans = root.find("loans");
  if (loans == root.end() || !loans->is_array()) return invalid_argument("the answer has no loans");
  for (const nlohmann::json& item : *loans) {
    if (!item.is_object()) return invalid_argument("loans: an entry is no object");
    LoanView loan{text_of(item, "lease"), text_of(item, "lender"),
                  number_of<std::int64_t>(item, "bytes"), number_of<std::int64_t>(item, "keep"),
                  text_of(item, "socket")};
    if (!are_amounts(loan.bytes, loan.keep)) {
      return invalid_argument("loans: bytes or keep is out of range");
    }
    reply.loans.push_back(std::move(loan));
  }
  RETURN_IF_ERROR(parse_leases(root, reply));
  return answer;
}

std::string lending_status_json(const LendingStatus& status) {
  LendJson parties = LendJson::array();
  for (const PartyView& party : status.parties) {
    parties.push_back({{"party", party.party},
                       {"device", device_of(party.device)},
                       {"kind", kind_of(party.device)},
                       {"epoch", party.epoch},
                       {"silent_for_ms", milliseconds(party.silent_for)},
                       {"held", party.held},
                       {"want", party.want},
                       {"spare", party.spare}});
  }
  LendJson leases = LendJson::array();
  for (const DeviceLeaseView& lease : status.leases) {
    LendJson json = lease_json(lease.lease);
    json["device"] = device_of(lease.device);
    json["kind"] = kind_of(lease.device);
    json["lender"] = lease.lender;
    leases.push_back(std::move(json));
  }
  LendJson loans = LendJson::array();
  for (const DeviceLoanView& loan : status.loans) {
    LendJson json = loan_json(loan.loan);
    json["borrower"] = loan.borrower;
    loans.push_back(std::move(json));
  }
  return dump_json(LendJson{{"no_grants_for_ms", milliseconds_left(status.no_grants_for)},
                            {"expired_parties", status.expired},
                            {"parties", parties},
                            {"leases", leases},
                            {"loans", loans}});
}

}  // namespace sluice
