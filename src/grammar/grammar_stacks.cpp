#include "grammar/grammar_stacks.h"

#include <algorithm>

namespace sluice {

GrammarStacks::FrameId GrammarStacks::frame_of(std::int32_t state, FrameId below) {
  const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(state)) << 32 |
                            static_cast<std::uint32_t>(below);
  const auto [at, added] = frame_ids_.try_emplace(key, static_cast<FrameId>(frames_.size()));
  if (added) {
    frames_.push_back({state, below});
    reached_in_.push_back(0);
    resumed_.push_back(kUnknown);
  }
  return at->second;
}

void GrammarStacks::begin_set() {
  ++round_;
  tops_.clear();
  open_.clear();
  ends_ = false;
  ways_ = 0;
}

// Adds the state on top of `below`, and what calls and ends reach from there without a byte.
void GrammarStacks::reach(std::int32_t state, FrameId below) {
  open_.push_back({state, below});
  while (!open_.empty()) {
    const Frame at = open_.back();
    open_.pop_back();
    const FrameId id = frame_of(at.state, at.below);
    std::uint32_t& reached = reached_in_[static_cast<std::size_t>(id)];
    if (reached == round_) continue;
    reached = round_;
    if (++ways_ > kMaxWays) {
      overflowed_ = true;
      return;
    }
    if (automaton_->reads_bytes(at.state)) tops_.push_back(id);
    if (automaton_->final(at.state)) {
      if (at.below == kBottom) {
        ends_ = true;
      } else {
        open_.push_back(frame(at.below));
      }
    }
    for (const RuleCall& call : automaton_->calls(at.state)) {
      open_.push_back({call.callee, call.resume < 0 ? at.below : frame_of(call.resume, at.below)});
    }
  }
}

GrammarStacks::SetId GrammarStacks::finish_set() {
  if (ways_ > kMaxWays) return kDead;
  if (tops_.empty() && !ends_) return kDead;
  std::ranges::sort(tops_);
  std::uint64_t hash = ends_ ? 1 : 2;
  for (const FrameId top : tops_) {
    hash = (hash ^ static_cast<std::uint64_t>(top)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 31;
  }
  const auto [first, last] = set_ids_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (ends(at->second) == ends_ && std::ranges::equal(tops(at->second), tops_)) {
      return at->second;
    }
  }
  const auto id = static_cast<SetId>(sets_.size());
  sets_.push_back({static_cast<std::uint32_t>(members_.size()),
                   static_cast<std::uint32_t>(tops_.size()), ends_});
  members_.insert(members_.end(), tops_.begin(), tops_.end());
  steps_.resize(steps_.size() + static_cast<std::size_t>(automaton_->num_classes()), kUnknown);
  set_ids_.emplace(hash, id);
  return id;
}

GrammarStacks::SetId GrammarStacks::enter(std::int32_t state) {
  begin_set();
  reach(state, kBottom);
  return finish_set();
}

GrammarStacks::SetId GrammarStacks::only(std::int32_t state) {
  begin_set();
  tops_.push_back(frame_of(state, kBottom));
  return finish_set();
}

GrammarStacks::SetId GrammarStacks::resume(FrameId id) {
  const auto at = static_cast<std::size_t>(id);
  if (resumed_[at] != kUnknown) return resumed_[at];
  begin_set();
  reach(frame(id).state, frame(id).below);
  const SetId set = finish_set();
  resumed_[at] = set;
  return set;
}

GrammarStacks::SetId GrammarStacks::compute_step(SetId set, int byte_class) {
  begin_set();
  const Set from = sets_[static_cast<std::size_t>(set)];
  for (std::uint32_t i = 0; i < from.count && ways_ <= kMaxWays; ++i) {
    const Frame top = frame(members_[from.first + i]);
    const std::int32_t next = automaton_->next(top.state, byte_class);
    if (next >= 0) reach(next, top.below);
  }
  const SetId result = finish_set();
  steps_[index(set, byte_class)] = result;
  return result;
}

GrammarStacks::SetId GrammarStacks::keep_only(SetId set) {
  GrammarStacks fresh(*automaton_);
  // Frames are made from the bottom up: a frame below another one has the smaller id, always.
  std::vector<FrameId> renamed(frames_.size(), kBottom);
  std::vector<std::uint8_t> needed(frames_.size(), 0);
  for (const FrameId top : tops(set)) needed[static_cast<std::size_t>(top)] = 1;
  for (std::size_t i = frames_.size(); i-- > 0;) {
    if (needed[i] != 0 && frames_[i].below != kBottom) {
      needed[static_cast<std::size_t>(frames_[i].below)] = 1;
    }
  }
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    if (needed[i] == 0) continue;
    const FrameId below = frames_[i].below;
    renamed[i] = fresh.frame_of(
        frames_[i].state, below == kBottom ? kBottom : renamed[static_cast<std::size_t>(below)]);
  }
  fresh.begin_set();
  fresh.ends_ = ends(set);
  for (const FrameId top : tops(set)) {
    fresh.tops_.push_back(renamed[static_cast<std::size_t>(top)]);
  }
  const SetId kept = fresh.finish_set();
  fresh.overflowed_ = overflowed_;
  *this = std::move(fresh);
  return kept;
}

void GrammarStacks::clear() { *this = GrammarStacks(*automaton_); }

}  // namespace sluice
