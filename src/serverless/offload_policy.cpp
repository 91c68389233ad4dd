#include "serverless/offload_policy.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace sluice {
namespace {

std::size_t slot_of(std::int32_t item) { return static_cast<std::size_t>(item); }

constexpr auto kTargets =
    std::to_array({OffloadTarget::kNothing, OffloadTarget::kDisk, OffloadTarget::kHost});

// The target where the item keeps most value, among those with room for it.
OffloadTarget best_target(const OffloadItem& item,
                          const std::array<std::int64_t, kOffloadTargets>& room) {
  OffloadTarget best = OffloadTarget::kNothing;
  for (const OffloadTarget target : kTargets) {
    const auto i = static_cast<std::size_t>(target);
    const bool fits = target == OffloadTarget::kNothing || room[i] >= item.bytes;
    if (fits && item.value_after[i] > item.value_after[static_cast<std::size_t>(best)]) {
      best = target;
    }
  }
  return best;
}

double loss_at(const OffloadItem& item, OffloadTarget target) {
  return std::max(item.value - item.value_after[static_cast<std::size_t>(target)], 0.0);
}

}  // namespace

void OffloadPolicy::prepare(const OffloadView& view) {
  const std::size_t count = view.items.size();
  state_.assign(count, State::kStays);
  loss_.resize(count);
  groups_.resize(count);
  first_child_.assign(count, -1);
  next_child_.assign(count, -1);
  gone_.clear();
  freed_ = 0;
  lost_ = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const OffloadItem& item = view.items[i];
    CHECK(item.needs < static_cast<std::int32_t>(i) && item.bytes >= 0);
    loss_[i] = loss_at(item, best_target(item, view.room));
    groups_[i] = {item.bytes, loss_[i]};
    if (item.in_use) state_[i] = State::kPinned;
  }
  // Items stand behind those that they need, so each is complete when it is added to its own.
  for (std::size_t i = count; i-- > 0;) {
    const std::int32_t parent = view.items[i].needs;
    if (parent < 0) continue;
    const std::size_t p = slot_of(parent);
    if (state_[i] == State::kPinned) state_[p] = State::kPinned;
    groups_[p].bytes += groups_[i].bytes;
    groups_[p].lost += groups_[i].lost;
    next_child_[i] = first_child_[p];
    first_child_[p] = static_cast<std::int32_t>(i);
  }
  whole_ = groups_;
}

// Marks the item and all that need it, and takes them out of the groups that they were part of.
void OffloadPolicy::remove(const OffloadView& view, std::int32_t item) {
  const Group group = groups_[slot_of(item)];
  const std::size_t first = gone_.size();
  gone_.push_back(item);
  for (std::size_t i = first; i < gone_.size(); ++i) {
    state_[slot_of(gone_[i])] = State::kGoes;
    freed_ += view.items[slot_of(gone_[i])].bytes;
    lost_ += loss_[slot_of(gone_[i])];
    for (std::int32_t child = first_child_[slot_of(gone_[i])]; child >= 0;
         child = next_child_[slot_of(child)]) {
      if (state_[slot_of(child)] != State::kGoes) gone_.push_back(child);
    }
  }
  for (std::int32_t up = view.items[slot_of(item)].needs; up >= 0;
       up = view.items[slot_of(up)].needs) {
    groups_[slot_of(up)].bytes -= group.bytes;
    groups_[slot_of(up)].lost = std::max(groups_[slot_of(up)].lost - group.lost, 0.0);
  }
}

// The density of a group only grows while its least dense parts go, so an old key in the heap is
// too small and never too large.
void OffloadPolicy::choose_by_density(const OffloadView& view) {
  const auto later = [](const Entry& a, const Entry& b) {
    return a.density != b.density ? a.density > b.density : a.item > b.item;
  };
  const auto density_of = [&](std::size_t i) {
    return groups_[i].lost / static_cast<double>(groups_[i].bytes);
  };
  heap_.clear();
  for (std::size_t i = 0; i < view.items.size(); ++i) {
    if (state_[i] == State::kPinned || groups_[i].bytes == 0) continue;
    heap_.push_back({density_of(i), static_cast<std::int32_t>(i)});
  }
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (freed_ < view.bytes_needed && !heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry entry = heap_.back();
    heap_.pop_back();
    const std::size_t i = slot_of(entry.item);
    if (state_[i] != State::kStays || groups_[i].bytes == 0) continue;
    const double density = density_of(i);
    if (density > entry.density * (1 + 1e-12) && !heap_.empty() &&
        density > heap_.front().density) {
      heap_.push_back({density, entry.item});
      std::push_heap(heap_.begin(), heap_.end(), later);
      continue;
    }
    remove(view, entry.item);
  }
}

// Spares items whose bytes are not needed, those that were chosen last first. An item can be spared
// once what it needs stays, so a second pass sees more of them.
void OffloadPolicy::spare(const OffloadView& view) {
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t i = gone_.size(); i-- > 0;) {
      const std::size_t item = slot_of(gone_[i]);
      if (state_[item] != State::kGoes) continue;
      const std::int32_t parent = view.items[item].needs;
      if (parent >= 0 && state_[slot_of(parent)] == State::kGoes) continue;
      if (loss_[item] <= 0 || freed_ - view.items[item].bytes < view.bytes_needed) continue;
      state_[item] = State::kStays;
      freed_ -= view.items[item].bytes;
      lost_ -= loss_[item];
    }
  }
}

// If one group alone frees enough and loses less than the choice so far, it goes instead.
void OffloadPolicy::choose_one_group(const OffloadView& view) {
  std::int32_t best = -1;
  for (std::size_t i = 0; i < whole_.size(); ++i) {
    if (state_[i] == State::kPinned || whole_[i].bytes < view.bytes_needed) continue;
    const double least = best < 0 ? lost_ : whole_[slot_of(best)].lost;
    if (whole_[i].lost < least * (1 - 1e-9)) best = static_cast<std::int32_t>(i);
  }
  if (best < 0) return;
  for (const std::int32_t item : gone_) state_[slot_of(item)] = State::kStays;
  gone_.clear();
  groups_ = whole_;
  freed_ = 0;
  lost_ = 0;
  remove(view, best);
  spare(view);
}

// Items with most value at their best target choose first, while there is room.
OffloadPlan OffloadPolicy::result(const OffloadView& view) {
  OffloadPlan plan;
  for (std::size_t i = view.items.size(); i-- > 0;) {
    if (state_[i] == State::kGoes) plan.moves.push_back({static_cast<std::int32_t>(i), {}});
  }
  std::vector<Entry> order;
  for (std::size_t m = 0; m < plan.moves.size(); ++m) {
    const std::size_t item = slot_of(plan.moves[m].item);
    const double kept = view.items[item].value - loss_[item];
    order.push_back({kept / static_cast<double>(std::max<std::int64_t>(view.items[item].bytes, 1)),
                     static_cast<std::int32_t>(m)});
  }
  std::ranges::sort(order, [](const Entry& a, const Entry& b) {
    return a.density != b.density ? a.density > b.density : a.item < b.item;
  });
  auto room = view.room;
  for (const Entry& entry : order) {
    OffloadMove& move = plan.moves[slot_of(entry.item)];
    const OffloadItem& item = view.items[slot_of(move.item)];
    move.target = best_target(item, room);
    if (move.target != OffloadTarget::kNothing) {
      room[static_cast<std::size_t>(move.target)] -= item.bytes;
    }
    plan.freed += item.bytes;
    plan.lost += loss_at(item, move.target);
  }
  return plan;
}

std::optional<OffloadPlan> OffloadPolicy::plan(const OffloadView& view) {
  prepare(view);
  if (view.bytes_needed <= 0) return OffloadPlan();
  choose_by_density(view);
  if (freed_ < view.bytes_needed) return std::nullopt;
  spare(view);
  choose_one_group(view);
  return result(view);
}

}  // namespace sluice
