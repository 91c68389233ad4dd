#include "engine/pin_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace sluice {

PinTable::PinTable(KvManager& kv, std::int64_t block_bytes) : kv_(kv), block_bytes_(block_bytes) {}

Status PinTable::check_limits(const PinOrder& order, std::int32_t blocks) const {
  // The pin that is replaced counts until then.
  const auto found = blocks_of_.find(order.tenant);
  const std::int64_t used = found == blocks_of_.end() ? 0 : found->second;
  const auto replaced = pins_.find(Key{order.tenant, order.id});
  const std::int64_t freed = replaced == pins_.end() ? 0 : replaced->second.blocks;
  if (order.max_bytes && blocks * block_bytes_ > *order.max_bytes) {
    return invalid_argument(
        fmt::format("the prefix needs {} bytes of KV memory, of the {} that this key may pin "
                    "(pins); shorten the prefix",
                    blocks * block_bytes_, *order.max_bytes));
  }
  if (order.max_bytes && (used - freed + blocks) * block_bytes_ > *order.max_bytes) {
    return resource_exhausted(fmt::format(
        "the prefix needs {} bytes of KV memory; the other pins of '{}' need {} of the {} that "
        "this key may pin (pins); delete a pin, or wait until one expires",
        blocks * block_bytes_, order.tenant, (used - freed) * block_bytes_, *order.max_bytes));
  }
  const auto most = static_cast<std::int64_t>(share_ * (kv_.options().max_blocks - 1));
  if (num_blocks_ - freed + blocks <= most) return {};
  if (blocks > most) {
    return invalid_argument(
        fmt::format("the prefix needs {} KV blocks, of the {} that may be pinned on this server "
                    "(--pin-limit); shorten the prefix",
                    blocks, most));
  }
  return resource_exhausted(
      fmt::format("the prefix needs {} KV blocks; all other pins need {} of the {} that may be "
                  "pinned on this server (--pin-limit); delete a pin, or wait until one expires",
                  blocks, num_blocks_ - freed, most));
}

Status PinTable::begin(const Request& request) {
  CHECK(request.pin != nullptr && !pending_.contains(request.id));
  if (kv_.options().prefix_caching == PrefixCaching::kOff) {
    return unsupported(
        "pins need the prefix cache; start the server without "
        "--no-enable-prefix-caching");
  }
  if (request.block_hashes.empty()) {
    return invalid_argument(
        fmt::format("the prompt has {} tokens, less than one KV block of {}; there is nothing to "
                    "pin",
                    request.prompt.size(), kv_.block_size()));
  }
  const std::int32_t blocks = kv_.count_blocks(request.block_hashes).all;
  RETURN_IF_ERROR(check_limits(*request.pin, blocks));
  Pending pending;
  pending.order = *request.pin;
  pending.pin.model = request.pin->model;
  pending.pin.names = request.block_hashes;
  pending.pin.root = request.block_owner.tenant;
  pending.pin.blocks = blocks;
  kv_.pin(pending.pin.names);
  blocks_of_[pending.order.tenant] += blocks;
  num_blocks_ += blocks;
  pending_.emplace(request.id, std::move(pending));
  return {};
}

void PinTable::end(RequestId request, bool computed, TimePoint now) {
  const auto found = pending_.find(request);
  CHECK(found != pending_.end());
  Pending pending = std::move(found->second);
  pending_.erase(found);
  if (!computed) return unpin(pending.order.tenant, pending.pin);
  Pin& pin = pending.pin;
  pin.made = now;
  pin.expires = now + pending.order.ttl;
  Key key{pending.order.tenant, pending.order.id};
  const auto replaced = pins_.find(key);
  const bool is_new = replaced == pins_.end();
  if (!is_new) {
    if (replaced->second.names == pin.names) {
      pin.made = replaced->second.made;
      pin.hits = replaced->second.hits;
    }
    erase(replaced);
  }
  Pin& stored = pins_.emplace(std::move(key), std::move(pin)).first->second;
  by_last_name_.emplace(stored.names.back(), &stored);
  next_expiry_ = next_expiry_ ? std::min(*next_expiry_, stored.expires) : stored.expires;
  PinStatus status = status_of(pending.order.id, stored);
  status.is_new = is_new;
  results_.push_back({request, std::move(status)});
}

void PinTable::take_results(std::vector<PinResult>& results) {
  results.insert(results.end(), std::make_move_iterator(results_.begin()),
                 std::make_move_iterator(results_.end()));
  results_.clear();
}

void PinTable::note_request(const Request& request) {
  if (by_last_name_.empty()) return;
  for (const Hash128 name : request.block_hashes) {
    const auto [begin, end] = by_last_name_.equal_range(name);
    for (auto it = begin; it != end; ++it) {
      Pin& pin = *it->second;
      // The names of warm prompts are those of all tenants.
      if (pin.root != request.block_owner.tenant) continue;
      const PinnedBlocks blocks = kv_.count_blocks(pin.names);
      pin.hits += blocks.in_memory + blocks.in_tier == blocks.all ? 1 : 0;
    }
  }
}

PinStatus PinTable::status_of(std::string_view id, const Pin& pin) const {
  PinStatus status;
  status.id = id;
  status.model = pin.model;
  status.tokens = static_cast<std::int32_t>(pin.names.size()) * kv_.block_size();
  status.blocks = kv_.count_blocks(pin.names);
  status.block_bytes = block_bytes_;
  status.made = pin.made;
  status.expires = pin.expires;
  status.hits = pin.hits;
  return status;
}

std::optional<PinStatus> PinTable::find(std::string_view tenant, std::string_view id) const {
  const auto found = pins_.find(Key{tenant, id});
  if (found == pins_.end()) return std::nullopt;
  return status_of(id, found->second);
}

void PinTable::append_all(std::string_view tenant, std::vector<PinStatus>& out) const {
  for (auto it = pins_.lower_bound(Key{tenant, ""}); it != pins_.end(); ++it) {
    if (it->first.first != tenant) return;
    out.push_back(status_of(it->first.second, it->second));
  }
}

std::optional<PinStatus> PinTable::remove(std::string_view tenant, std::string_view id) {
  const auto found = pins_.find(Key{tenant, id});
  if (found == pins_.end()) return std::nullopt;
  PinStatus status = status_of(id, found->second);
  erase(found);
  find_next_expiry();
  return status;
}

void PinTable::expire(TimePoint now) {
  if (!next_expiry_ || now < *next_expiry_) return;
  for (auto it = pins_.begin(); it != pins_.end();) {
    it = it->second.expires <= now ? erase(it) : std::next(it);
  }
  find_next_expiry();
}

void PinTable::find_next_expiry() {
  next_expiry_.reset();
  for (const auto& [key, pin] : pins_) {
    next_expiry_ = next_expiry_ ? std::min(*next_expiry_, pin.expires) : pin.expires;
  }
}

PinTable::Pins::iterator PinTable::erase(Pins::iterator pin) {
  const auto [begin, end] = by_last_name_.equal_range(pin->second.names.back());
  by_last_name_.erase(
      std::find_if(begin, end, [&](const auto& entry) { return entry.second == &pin->second; }));
  unpin(pin->first.first, pin->second);
  return pins_.erase(pin);
}

void PinTable::unpin(std::string_view tenant, const Pin& pin) {
  kv_.unpin(pin.names);
  num_blocks_ -= pin.blocks;
  const auto used = blocks_of_.find(tenant);
  used->second -= pin.blocks;
  if (used->second == 0) blocks_of_.erase(used);
}

void PinTable::check_integrity() const {
  std::int64_t blocks = 0;
  std::map<std::string, std::int64_t, std::less<>> blocks_of;
  for (const auto& [key, pin] : pins_) {
    CHECK(pin.blocks == kv_.count_blocks(pin.names).all);
    CHECK(next_expiry_ && *next_expiry_ <= pin.expires);
    blocks += pin.blocks;
    blocks_of[key.first] += pin.blocks;
  }
  for (const auto& [request, pending] : pending_) {
    blocks += pending.pin.blocks;
    blocks_of[pending.order.tenant] += pending.pin.blocks;
  }
  CHECK(blocks == num_blocks_ && blocks_of == blocks_of_);
  CHECK(by_last_name_.size() == pins_.size());
}

}  // namespace sluice
