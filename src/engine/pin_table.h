// PinTable: the pins of all tenants. A pin keeps the KV blocks of a prefix in memory until its time
// is over (KvManager::pin). A request with a PinOrder makes one:
//
//   begin() when the request arrives -> end() when it has ended: the pin exists
//
// From begin() on the names are pinned, so that the blocks are kept as soon as they are computed. A
// request that fails or is cancelled leaves no pin, and the pin of the same id that it would have
// replaced stays.
//
// Limits: all pins need at most `share` of the KV memory, and the pins of a tenant at most
// PinOrder::max_bytes. Each pin counts with all blocks that its prefix needs, wherever they are and
// whatever it shares with other pins.
// Owner: the engine. Threads: the engine's. All functions but expire() may allocate.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash128.h"
#include "base/result.h"
#include "kv/kv_manager.h"
#include "request/request.h"

namespace sluice {

// A pin as its tenant sees it.
struct PinStatus {
  std::string id;
  std::string model;
  std::int32_t tokens = 0;  // of the full blocks of the prompt
  PinnedBlocks blocks;
  std::int64_t block_bytes = 0;
  TimePoint made;     // by the first request for these contents
  TimePoint expires;  // after it the pin no longer exists
  std::int64_t hits = 0;
  bool is_new = false;  // of a result: the tenant had no pin of this id
};

// The pin that a request has made.
struct PinResult {
  RequestId request = 0;
  PinStatus status;
};

class PinTable {
 public:
  // The share of KV memory that pins may need, unless the operator says otherwise.
  static constexpr double kDefaultShare = 0.25;

  // `block_bytes`: of one KV block. REQUIRES: kv outlives this.
  PinTable(KvManager& kv, std::int64_t block_bytes);

  void set_share(double share) { share_ = share; }

  // Pins the names of the request's prompt. Errors: kUnsupported without a prefix cache;
  // kInvalidArgument for a prompt without a full block; kResourceExhausted, with the numbers,
  // beyond a limit. REQUIRES: request.pin.
  Status begin(const Request& request);
  // The request of begin() has ended. `computed`: its prompt was computed.
  void end(RequestId request, bool computed, TimePoint now);
  // The pins made since the last call.
  void take_results(std::vector<PinResult>& results);

  // A request has arrived: a pin whose whole prefix begins its prompt is hit if all of its blocks
  // are in memory or in the tier, and if both have the same key of names.
  void note_request(const Request& request);

  // The pin of this id, or all of the tenant's, in the order of their ids.
  std::optional<PinStatus> find(std::string_view tenant, std::string_view id) const;
  void append_all(std::string_view tenant, std::vector<PinStatus>& out) const;
  // Ends a pin; nothing: there is none.
  std::optional<PinStatus> remove(std::string_view tenant, std::string_view id);

  // Ends the pins whose time is over.
  void expire(TimePoint now);
  // When expire() has something to do at the earliest; it may be too early.
  std::optional<TimePoint> next_expiry() const { return next_expiry_; }

  std::int32_t num_pins() const { return static_cast<std::int32_t>(pins_.size()); }
  // That all pins need, those of running requests included.
  std::int64_t num_blocks() const { return num_blocks_; }

  // CHECKs that the sums are right.
  void check_integrity() const;

 private:
  struct Pin {
    std::string model;
    std::vector<Hash128> names;
    Hash128 root;  // the key of the names
    std::int32_t blocks = 0;
    TimePoint made;
    TimePoint expires;
    std::int64_t hits = 0;
  };
  struct Pending {
    PinOrder order;
    Pin pin;
  };
  using Key = std::pair<std::string, std::string>;  // tenant, id
  using Pins = std::map<Key, Pin, std::less<>>;

  Status check_limits(const PinOrder& order, std::int32_t blocks) const;
  PinStatus status_of(std::string_view id, const Pin& pin) const;
  Pins::iterator erase(Pins::iterator pin);
  void unpin(std::string_view tenant, const Pin& pin);
  void find_next_expiry();

  KvManager& kv_;
  const std::int64_t block_bytes_;
  double share_ = kDefaultShare;
  Pins pins_;
  std::unordered_map<RequestId, Pending> pending_;
  std::map<std::string, std::int64_t, std::less<>> blocks_of_;  // by tenant, pending ones included
  std::int64_t num_blocks_ = 0;
  std::unordered_multimap<Hash128, Pin*> by_last_name_;
  std::optional<TimePoint> next_expiry_;
  std::vector<PinResult> results_;
};

}  // namespace sluice
