// OffloadPolicy: which idle items leave a memory when requests need room there (ServerlessLoRA,
// section 4.3, equations 6 and 7: free at least Q bytes and lose the least value).
//
// Greedy: the item with the least value per byte goes first, together with all items that need it
// (a backbone takes its functions along). Then items are spared again whose bytes turn out not to
// be needed, the most valuable first; and if one item with all that need it frees enough alone and
// loses less, it goes instead. An item that is in use never goes, and neither does one that such an
// item needs.
//
// Items are artifacts and also prefix blocks of idle instances. An item moves to the place where it
// loses the least value, if there is room: to host memory, to disk, or to nothing.
//
// Owner: the gateway or the simulator. One thread. Allocation: grows with the number of items;
// decisions of one size allocate nothing but the result. Time: about n log n.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

enum class OffloadTarget : std::uint8_t { kNothing, kDisk, kHost };
inline constexpr std::size_t kOffloadTargets = 3;

struct OffloadItem {
  std::int64_t bytes = 0;  // that it frees
  double value = 0;        // seconds saved per second where it is
  // The same after a move to each target; 0 for nothing, and where it cannot go.
  std::array<double, kOffloadTargets> value_after{};
  std::int32_t needs = -1;  // the item, before this one in the list, without which it cannot stay
  bool in_use = false;
};

struct OffloadView {
  std::span<const OffloadItem> items;  // of one memory
  std::int64_t bytes_needed = 0;
  std::array<std::int64_t, kOffloadTargets> room{};  // bytes of disk and host; nothing has room
};

struct OffloadMove {
  std::int32_t item = 0;
  OffloadTarget target = OffloadTarget::kNothing;
  friend bool operator==(const OffloadMove&, const OffloadMove&) = default;
};

struct OffloadPlan {
  std::vector<OffloadMove> moves;  // each item before the one that it needs
  std::int64_t freed = 0;
  double lost = 0;  // value per second
};

class OffloadPolicy {
 public:
  // None: the items that may go do not free enough; then nothing should go.
  std::optional<OffloadPlan> plan(const OffloadView& view);

 private:
  enum class State : std::uint8_t { kStays, kGoes, kPinned };
  struct Group {  // an item with all items that need it and have not gone
    std::int64_t bytes = 0;
    double lost = 0;
  };
  struct Entry {
    double density = 0;
    std::int32_t item = 0;
  };

  void prepare(const OffloadView& view);
  void choose_by_density(const OffloadView& view);
  void remove(const OffloadView& view, std::int32_t item);
  void spare(const OffloadView& view);
  void choose_one_group(const OffloadView& view);
  OffloadPlan result(const OffloadView& view);

  std::vector<State> state_;
  std::vector<double> loss_;   // of each item alone, at its best target
  std::vector<Group> groups_;  // shrink as parts go
  std::vector<Group> whole_;   // before anything goes
  std::vector<std::int32_t> first_child_;
  std::vector<std::int32_t> next_child_;
  std::vector<std::int32_t> gone_;  // items that go or were spared, in order
  std::vector<Entry> heap_;
  std::int64_t freed_ = 0;
  double lost_ = 0;
};

}  // namespace sluice
