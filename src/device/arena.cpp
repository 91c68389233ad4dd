#include "device/arena.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::size_t kMinAlignment = 64;  // a cache line

bool is_power_of_two(std::size_t n) { return n != 0 && (n & (n - 1)) == 0; }

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

std::size_t index_of(RegionKind kind) { return static_cast<std::size_t>(kind); }

std::size_t end_of(const RegionPlan& region) {
  return region.buffers.empty() ? 0 : region.buffers.back().offset + region.buffers.back().bytes;
}

}  // namespace

std::string_view region_name(RegionKind kind) {
  constexpr std::array<std::string_view, kNumRegions> kNames = {"weights", "adapters", "inputs",
                                                                "workspace", "kv"};
  return kNames[index_of(kind)];
}

ArenaPlan::ArenaPlan() : regions_(kNumRegions) {
  for (std::size_t i = 0; i < kNumRegions; ++i) regions_[i].kind = static_cast<RegionKind>(i);
}

std::size_t ArenaPlan::add(RegionKind region, std::string name, std::size_t bytes,
                           std::size_t alignment) {
  CHECK(!finished_);
  CHECK(is_power_of_two(alignment) && alignment >= kMinAlignment);
  RegionPlan& plan = regions_[index_of(region)];
  for (const BufferPlan& buffer : plan.buffers) CHECK(buffer.name != name);
  const std::size_t offset = round_up(end_of(plan), alignment);
  plan.buffers.push_back({std::move(name), offset, bytes});
  return offset;
}

void ArenaPlan::reserve(RegionKind region, std::size_t bytes) {
  CHECK(!finished_);
  RegionPlan& plan = regions_[index_of(region)];
  plan.reserved = std::max(plan.reserved, bytes);
}

void ArenaPlan::finish(std::size_t granularity) {
  CHECK(!finished_);
  CHECK(is_power_of_two(granularity) && granularity >= kMinAlignment);
  for (RegionPlan& region : regions_) {
    region.reserved = round_up(std::max(region.reserved, end_of(region)), granularity);
    region.offset = total_bytes_;
    total_bytes_ += region.reserved;
  }
  finished_ = true;
}

const RegionPlan& ArenaPlan::region(RegionKind kind) const { return regions_[index_of(kind)]; }

Result<Arena> Arena::create(Device& device, ArenaPlan plan) {
  CHECK(plan.finished());
  CHECK(plan.total_bytes() > 0 && plan.total_bytes() % device.traits().granularity == 0);
  ASSIGN_OR_RETURN(const AddressRange range, device.reserve(plan.total_bytes()));
  return Arena(device, std::move(plan), range);
}

Result<Arena> Arena::create_at(std::byte* base, Device& device, ArenaPlan plan) {
  CHECK(plan.finished());
  ASSIGN_OR_RETURN(const AddressRange range, device.reserve_at(base, plan.total_bytes()));
  return Arena(device, std::move(plan), range);
}

Result<Arena> Arena::create_elsewhere(const std::byte* base, Device& device, ArenaPlan plan) {
  ASSIGN_OR_RETURN(Arena first, create(device, plan));
  if (first.base() != base) return first;
  return create(device, std::move(plan));  // the next one, while the first is taken
}

Arena::Arena(Device& device, ArenaPlan plan, AddressRange range)
    : device_(&device), plan_(std::move(plan)), range_(range), backed_(kNumRegions, 0) {}

Arena::Arena(Arena&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      plan_(std::move(other.plan_)),
      range_(std::exchange(other.range_, {})),
      backed_(std::move(other.backed_)),
      mappings_(std::move(other.mappings_)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    release();
    device_ = std::exchange(other.device_, nullptr);
    plan_ = std::move(other.plan_);
    range_ = std::exchange(other.range_, {});
    backed_ = std::move(other.backed_);
    mappings_ = std::move(other.mappings_);
  }
  return *this;
}

Arena::~Arena() { release(); }

void Arena::release() {
  if (device_ == nullptr) return;
  for (std::size_t i = 0; i < kNumRegions; ++i) shrink(static_cast<RegionKind>(i), 0);
  for (const Mapping& mapping : mappings_) {
    device_->unback(range_, mapping.offset, mapping.bytes);
  }
  mappings_.clear();
  device_->release(range_);
  device_ = nullptr;
}

std::size_t Arena::offset_of(RegionKind kind) const { return plan_.region(kind).offset; }

std::byte* Arena::region_base(RegionKind kind) const { return range_.base + offset_of(kind); }

std::byte* Arena::address(RegionKind kind, std::string_view buffer) const {
  for (const BufferPlan& candidate : plan_.region(kind).buffers) {
    if (candidate.name == buffer) return region_base(kind) + candidate.offset;
  }
  CHECK(!"no such buffer in this region of the arena");
  return nullptr;
}

std::optional<ArenaPlace> Arena::find(const void* address) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(range_.base);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at < begin || at - begin >= plan_.total_bytes()) return std::nullopt;
  const std::size_t offset = at - begin;
  for (std::size_t i = 0; i < kNumRegions; ++i) {
    const RegionPlan& region = plan_.region(static_cast<RegionKind>(i));
    if (offset < region.offset || offset - region.offset >= region.reserved) continue;
    const std::size_t in_region = offset - region.offset;
    // Buffers are sorted by offset.
    const auto after = std::upper_bound(
        region.buffers.begin(), region.buffers.end(), in_region,
        [](std::size_t wanted, const BufferPlan& buffer) { return wanted < buffer.offset; });
    if (after == region.buffers.begin()) return std::nullopt;
    const BufferPlan& buffer = *std::prev(after);
    if (in_region - buffer.offset >= buffer.bytes) return std::nullopt;
    return ArenaPlace{region.kind, buffer.name, in_region - buffer.offset};
  }
  return std::nullopt;
}

std::byte* Arena::address(const ArenaPlace& place) const {
  for (const BufferPlan& buffer : plan_.region(place.region).buffers) {
    if (buffer.name != place.buffer) continue;
    if (place.offset >= buffer.bytes) return nullptr;
    return region_base(place.region) + buffer.offset + place.offset;
  }
  return nullptr;
}

Status Arena::grow(RegionKind kind, std::size_t bytes) {
  const std::size_t reserved = plan_.region(kind).reserved;
  std::size_t& backed = backed_[index_of(kind)];
  if (bytes > reserved) {
    return resource_exhausted(fmt::format("arena region {}: {} bytes requested, {} reserved",
                                          region_name(kind), bytes, reserved));
  }
  const std::size_t target = round_up(bytes, device_->traits().granularity);
  if (target <= backed) return {};
  const std::size_t begin = offset_of(kind) + backed;
  const std::size_t end = offset_of(kind) + target;
  for (const Mapping& mapping : mappings_) {
    CHECK(mapping.offset + mapping.bytes <= begin || mapping.offset >= end);
  }
  if (auto status = device_->back(range_, begin, end - begin, Backing::memory()); !status) {
    return with_context(fmt::format("arena region {}", region_name(kind)),
                        std::move(status).error());
  }
  backed = target;
  return {};
}

void Arena::shrink(RegionKind kind, std::size_t bytes) {
  std::size_t& backed = backed_[index_of(kind)];
  const std::size_t target = round_up(bytes, device_->traits().granularity);
  if (target >= backed) return;
  device_->unback(range_, offset_of(kind) + target, backed - target);
  backed = target;
}

Status Arena::populate(RegionKind kind) {
  return device_->populate(range_, offset_of(kind), backed_[index_of(kind)]);
}

void Arena::discard(RegionKind kind) {
  device_->discard(range_, offset_of(kind), backed_[index_of(kind)]);
}

std::size_t Arena::backed_bytes(RegionKind kind) const { return backed_[index_of(kind)]; }

Status Arena::map(RegionKind kind, std::size_t offset, std::size_t bytes, const Backing& backing) {
  const std::size_t granularity = device_->traits().granularity;
  const RegionPlan& region = plan_.region(kind);
  CHECK(offset % granularity == 0 && offset >= backed_bytes(kind));
  CHECK(offset <= region.reserved && bytes <= region.reserved - offset);
  const Mapping wanted{region.offset + offset, round_up(bytes, granularity)};
  for (const Mapping& mapping : mappings_) {
    CHECK(mapping.offset + mapping.bytes <= wanted.offset ||
          mapping.offset >= wanted.offset + wanted.bytes);
  }
  RETURN_IF_ERROR(device_->back(range_, wanted.offset, bytes, backing));
  mappings_.push_back(wanted);
  return {};
}

void Arena::unmap(RegionKind kind, std::size_t offset) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
    return mapping.offset == offset_of(kind) + offset;
  });
  CHECK(found != mappings_.end());
  device_->unback(range_, found->offset, found->bytes);
  mappings_.erase(found);
}

Result<FileDescriptor> Arena::export_memory(RegionKind kind, std::size_t offset) const {
  CHECK(offset < backed_bytes(kind));
  return device_->export_memory(range_, offset_of(kind) + offset);
}

Status Arena::protect(RegionKind kind, Protection protection) {
  const std::size_t bytes = backed_bytes(kind);
  if (bytes == 0) return {};
  return device_->protect(range_, offset_of(kind), bytes, protection);
}

}  // namespace sluice
