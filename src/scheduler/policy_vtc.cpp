#include "scheduler/policy_vtc.h"

#include <algorithm>
#include <utility>

#include "scheduler/plan_pass.h"

namespace sluice {

void VtcPolicy::plan(PlanPass& pass) {
  pass.decode_all();
  charge_decodes(pass);
  pass.prefill_all();
  if (pass.short_of_memory()) return;
  for (std::size_t begin = 0; begin < pass.waiting().size() && pass.can_admit();) {
    begin = line_up(pass.waiting(), begin);
    if (!admit_lines(pass)) return;
  }
}

// Makes the lines of the priority class that begins there, back to front. Returns where it ends.
std::size_t VtcPolicy::line_up(std::span<const WaitingEntry> waiting, std::size_t begin) {
  const std::int32_t priority = waiting[begin].order.priority;
  const auto behind = std::partition_point(
      waiting.begin() + static_cast<std::ptrdiff_t>(begin), waiting.end(),
      [&](const WaitingEntry& entry) { return entry.order.priority == priority; });
  const auto end = static_cast<std::size_t>(behind - waiting.begin());
  next_.resize(waiting.size());
  for (std::size_t i = end; i > begin; --i) {
    const WaitingEntry& entry = waiting[i - 1];
    if (entry.sequence == nullptr) continue;
    const auto client = static_cast<std::size_t>(entry.client);
    if (client >= first_.size()) first_.resize(client + 1, kNobody);
    next_[i - 1] = std::exchange(first_[client], static_cast<std::int32_t>(i - 1));
    if (next_[i - 1] == kNobody) lines_.push_back({entry.client, 0});
  }
  for (Line& line : lines_) {
    line.first = std::exchange(first_[static_cast<std::size_t>(line.client)], kNobody);
  }
  return end;
}

// Who comes next is the first of the client with the least counter, and of equal ones the first in
// service order. When he does not fit, nobody overtakes him: false.
bool VtcPolicy::admit_lines(PlanPass& pass) {
  const auto comes_later = [&](const Line& a, const Line& b) {
    return std::pair(pass.served(a.client), a.first) > std::pair(pass.served(b.client), b.first);
  };
  std::make_heap(lines_.begin(), lines_.end(), comes_later);
  bool fits = true;
  while (!lines_.empty() && pass.can_admit()) {
    std::pop_heap(lines_.begin(), lines_.end(), comes_later);
    Line& line = lines_.back();
    const auto position = static_cast<std::size_t>(line.first);
    if (!pass.waits_for_leader(pass.waiting()[position])) {
      fits = pass.admit_at(position, {});
      if (!fits) break;
      charge_prompt(pass, pass.rows().back().slot);
    }
    line.first = next_[position];
    if (line.first == kNobody) {
      lines_.pop_back();
    } else {
      std::push_heap(lines_.begin(), lines_.end(), comes_later);
    }
  }
  lines_.clear();
  return fits;
}

void VtcPolicy::charge_decodes(PlanPass& pass) const {
  for (const PlanRow& row : pass.rows()) {
    pass.clients().charge(pass.client_of(row.slot), weights_.output * row.num_logits);
  }
}

// At once for all chunks, so that the next choice knows of it. Nobody pays again because he was
// preempted, nor for tokens that came from the prefix cache or from a sibling.
void VtcPolicy::charge_prompt(PlanPass& pass, std::int32_t slot) const {
  const Sequence& sequence = pass.sequence(slot);
  if (sequence.num_preemptions > 0) return;
  const std::int64_t computed = sequence.prompt_len - sequence.cached_prompt_tokens;
  pass.clients().charge(pass.client_of(slot), weights_.input * computed);
}

}  // namespace sluice
