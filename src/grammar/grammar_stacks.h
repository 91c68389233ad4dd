// GrammarStacks: all ways in which an automaton may have read a text so far, as one set of stacks.
// Stacks share their lower frames: a frame is stored once and names the frame below it. Sets are
// stored once too, and a set's transitions are remembered, so that most bytes cost one look-up.
//
// The bottom of every stack is open: below it is the end of the grammar (GrammarMatcher) or an
// unknown caller (StateMasks). ends() says whether a stack has been read to its bottom.
// Owner: one thread at a time. The automaton must outlive it. Memory: grows with the texts; the
// owner calls keep_only() when size() is large.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/grammar_automaton.h"

namespace sluice {

class GrammarStacks {
 public:
  using FrameId = std::int32_t;
  using SetId = std::int32_t;
  static constexpr FrameId kBottom = -1;
  static constexpr SetId kDead = -1;
  // A text that may be read in more ways is refused: its set is dead, and overflowed() is true.
  static constexpr std::size_t kMaxWays = 4096;

  struct Frame {
    std::int32_t state = 0;
    FrameId below = kBottom;
  };

  explicit GrammarStacks(const GrammarAutomaton& automaton) : automaton_(&automaton) {}

  // One stack with the state on top of the bottom, and all states that calls and ends reach.
  SetId enter(std::int32_t state);
  // Only that state.
  SetId only(std::int32_t state);
  // The set after the called rule has ended and left this frame on top.
  SetId resume(FrameId frame);
  SetId step(SetId set, std::uint8_t byte) {
    const int byte_class = automaton_->class_of(byte);
    const SetId known = steps_[index(set, byte_class)];
    return known != kUnknown ? known : compute_step(set, byte_class);
  }

  bool ends(SetId set) const { return sets_[static_cast<std::size_t>(set)].ends; }
  // The tops that read bytes.
  std::span<const FrameId> tops(SetId set) const {
    const Set& s = sets_[static_cast<std::size_t>(set)];
    return std::span(members_).subspan(s.first, s.count);
  }
  const Frame& frame(FrameId id) const { return frames_[static_cast<std::size_t>(id)]; }
  bool overflowed() const { return overflowed_; }

  // Frames and sets; a measure of memory.
  std::size_t size() const { return frames_.size() + sets_.size(); }
  // Forgets everything that this set does not need. Returns its new id.
  SetId keep_only(SetId set);
  // Forgets everything.
  void clear();

 private:
  static constexpr SetId kUnknown = -2;
  struct Set {
    std::uint32_t first = 0;  // in members_
    std::uint32_t count = 0;
    bool ends = false;
  };

  std::size_t index(SetId set, int byte_class) const {
    return static_cast<std::size_t>(set) * static_cast<std::size_t>(automaton_->num_classes()) +
           static_cast<std::size_t>(byte_class);
  }
  FrameId frame_of(std::int32_t state, FrameId below);
  void reach(std::int32_t state, FrameId below);
  void begin_set();
  SetId finish_set();
  SetId compute_step(SetId set, int byte_class);

  const GrammarAutomaton* automaton_;
  std::vector<Frame> frames_;
  std::unordered_map<std::uint64_t, FrameId> frame_ids_;
  std::vector<std::uint32_t> reached_in_;  // by frame: the last set it was reached for
  std::vector<SetId> resumed_;             // by frame: resume(), or kUnknown
  std::uint32_t round_ = 0;

  std::vector<Set> sets_;
  std::vector<FrameId> members_;
  std::unordered_multimap<std::uint64_t, SetId> set_ids_;
  std::vector<SetId> steps_;  // [set][class]

  // The set that is being made.
  std::vector<FrameId> tops_;
  std::vector<Frame> open_;
  bool ends_ = false;
  std::size_t ways_ = 0;
  bool overflowed_ = false;
};

}  // namespace sluice
