#include "apps/limited_kv.h"

#include <algorithm>
#include <cstddef>

namespace sluice {

LendingLoad EngineKv::load(std::int64_t bytes) {
  const EngineGauges gauges = engine_.gauges();
  // Until the engine shows the limit that it was told, it may use all of the one before.
  const bool obeys = set_ == 0 || gauges.kv_limit_blocks == set_ / block_bytes_;
  const std::int32_t blocks =
      obeys ? gauges.kv_blocks_backed : std::max(gauges.kv_blocks_backed, gauges.kv_limit_blocks);
  return {.limit = bytes,
          .used = gauges.kv_blocks_used * block_bytes_,
          .backed = blocks * block_bytes_,
          .waiting = gauges.waiting,
          .slots_full = gauges.running >= max_num_seqs_};
}

void EngineKv::limit(TimePoint /*now*/, std::int64_t bytes) {
  if (bytes == set_) return;
  set_ = bytes;
  engine_.limit_kv(bytes);
}

void FunctionsKv::look() {
  looked_.clear();
  for (const DividedKv::Kv& one : functions_.kv(ending_)) {
    looked_.push_back({one.loop,
                       {.limit = one.kv.limit,
                        .used = one.kv.used,
                        .backed = one.kv.held,
                        .waiting = one.kv.waiting,
                        .slots_full = one.kv.running >= max_num_seqs_}});
  }
}

LendingLoad FunctionsKv::load(std::int64_t bytes) {
  look();
  return division_.total(bytes, looked_, ending_);
}

void FunctionsKv::limit(TimePoint now, std::int64_t bytes) {
  look();
  const auto limits = division_.divide(now, bytes, looked_, ending_);
  for (std::size_t i = 0; i < limits.size(); ++i) {
    if (limits[i] != looked_[i].load.limit) functions_.limit_kv(looked_[i].id, limits[i]);
  }
}

}  // namespace sluice
