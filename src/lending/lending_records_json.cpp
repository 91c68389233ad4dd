#include "lending/lending_records_json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/json_depth.h"
#include "lending/lending_json.h"

namespace sluice {
namespace {

using RecordJson = nlohmann::json;

constexpr std::string_view kParty = "party/";
constexpr std::string_view kLease = "lease/";
constexpr int kMaxDepth = 6;

// Reads fields of one record; the first error stays.
class RecordReader {
 public:
  explicit RecordReader(std::string_view key) : key_(key) {}

  std::string text(const RecordJson& object, const char* name, bool may_be_empty = false) {
    const RecordJson* value = find(object, name);
    if (value == nullptr || !value->is_string() ||
        (!may_be_empty && value->get_ref<const std::string&>().empty()) ||
        value->get_ref<const std::string&>().size() > 2 * kMaxMemberName + 1) {
      fail(name, "a name");
      return {};
    }
    return value->get<std::string>();
  }
  std::int64_t amount(const RecordJson& object, const char* name, std::int64_t least,
                      std::int64_t most) {
    const RecordJson* value = find(object, name);
    if (value == nullptr || !value->is_number_integer() || value->is_number_float() ||
        (value->is_number_unsigned() &&
         value->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) ||
        value->get<std::int64_t>() < least || value->get<std::int64_t>() > most) {
      fail(name, "a whole number in its range");
      return least;
    }
    return value->get<std::int64_t>();
  }
  // The items of a list of at most `most`.
  const RecordJson& list(const RecordJson& object, const char* name, std::size_t most) {
    static const RecordJson kNone = RecordJson::array();
    const RecordJson* value = find(object, name);
    if (value != nullptr && value->is_array() && value->size() <= most) return *value;
    fail(name, "a list");
    return kNone;
  }
  void fail(const char* name, const char* expected) {
    if (status_)
      status_ = tl::unexpected(invalid_argument(
          fmt::format("the stored record {}: {} must be {}", key_, name, expected)));
  }
  const Status& status() const { return status_; }

 private:
  static const RecordJson* find(const RecordJson& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }

  std::string key_;
  Status status_;
};

std::string party_json(const PartyRecord& party) {
  RecordJson json = {{"device", party.device},
                     {"epoch", party.epoch},
                     {"joins", party.joins},
                     {"loans", RecordJson::array()},
                     {"remembered", RecordJson::array()}};
  if (!party.socket.empty()) json["socket"] = party.socket;
  for (const LeaseBytes& loan : party.loans) {
    json["loans"].push_back({{"lease", loan.lease}, {"bytes", loan.bytes}});
  }
  for (const RememberedRequest& old : party.remembered) {
    json["remembered"].push_back({{"key", old.key},
                                  {"verb", lend_verb_name(old.verb)},
                                  {"lease", old.lease},
                                  {"bytes", old.bytes},
                                  {"granted", old.granted},
                                  {"returned", old.returned}});
  }
  return dump_json(json);
}

PartyRecord party_of(std::string_view name, const RecordJson& json, RecordReader& read) {
  constexpr std::int64_t kMost = kMaxLeaseBytes;
  PartyRecord party;
  party.party = name;
  party.device = read.text(json, "device");
  if (json.contains("socket")) party.socket = read.text(json, "socket");
  party.epoch = static_cast<std::uint64_t>(
      read.amount(json, "epoch", 1, std::numeric_limits<std::int64_t>::max()));
  for (const RecordJson& item : read.list(json, "joins", LendingBook::kKeys)) {
    if (item.is_string()) party.joins.push_back(item.get<std::string>());
  }
  if (party.joins.empty()) read.fail("joins", "a list of at least one key");
  for (const RecordJson& item : read.list(json, "loans", LendingBook::kMaxLeases)) {
    party.loans.push_back({read.text(item, "lease"), read.amount(item, "bytes", 1, kMost)});
  }
  for (const RecordJson& item : read.list(json, "remembered", LendingBook::kKeys)) {
    RememberedRequest old;
    old.key = read.text(item, "key");
    const std::string verb = read.text(item, "verb");
    const auto verbs = lend_verbs();
    const auto found = std::ranges::find(verbs, verb, lend_verb_name);
    if (found == verbs.end()) {
      read.fail("verb", "one of the coordinator's");
    } else {
      old.verb = *found;
    }
    old.lease = read.text(item, "lease", true);
    old.bytes = read.amount(item, "bytes", 0, kMost);
    old.granted = read.amount(item, "granted", 0, kMost);
    old.returned = read.amount(item, "returned", 0, kMost);
    party.remembered.push_back(std::move(old));
  }
  return party;
}

}  // namespace

std::vector<StoredRecord> stored_records(const LendingChanges& changes) {
  std::vector<StoredRecord> records;
  const auto add = [&](std::string_view kind, const std::string& name,
                       std::optional<std::string> value) {
    records.emplace_back(std::string(kind) + name, std::move(value));
  };
  for (const std::string& name : changes.gone_parties) add(kParty, name, std::nullopt);
  for (const PartyRecord& party : changes.records.parties) {
    add(kParty, party.party, party_json(party));
  }
  for (const std::string& name : changes.gone_leases) add(kLease, name, std::nullopt);
  for (const LeaseRecord& lease : changes.records.leases) {
    add(kLease, lease.lease,
        dump_json(RecordJson{
            {"device", lease.device}, {"lender", lease.lender}, {"target", lease.target}}));
  }
  return records;
}

Status read_stored_record(std::string_view key, std::string_view value, LendingRecords& records) {
  RecordReader read(key);
  const bool is_party = key.starts_with(kParty);
  if (!is_party && !key.starts_with(kLease)) {
    return invalid_argument(fmt::format("the stored record {} is of no known kind", key));
  }
  if (json_deeper_than(value, kMaxDepth)) {
    return invalid_argument(fmt::format("the stored record {} is nested too deep", key));
  }
  const std::string_view name = key.substr(is_party ? kParty.size() : kLease.size());
  const RecordJson json = parse_json(value);
  if (!json.is_object() || name.empty() || name.size() > 2 * kMaxMemberName + 1) {
    return invalid_argument(fmt::format("the stored record {} is no JSON object", key));
  }
  if (is_party) {
    PartyRecord party = party_of(name, json, read);
    if (read.status()) records.parties.push_back(std::move(party));
  } else {
    LeaseRecord lease{std::string(name), read.text(json, "device"), read.text(json, "lender", true),
                      read.amount(json, "target", 0, kMaxLeaseBytes)};
    if (read.status()) records.leases.push_back(std::move(lease));
  }
  return read.status();
}

}  // namespace sluice
