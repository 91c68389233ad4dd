#include "scheduler/policy_vtc.h"

#include <algorithm>
#include <utility>

#include "scheduler/plan_pass.h"

namespace sluice {

std::int64_t VtcWeights::of_streamed(const PlanPass& pass) const {
  return input * pass.new_streamed_tokens() + output * pass.rows().front().num_logits;
}

void VtcPolicy::charge_streamed(PlanPass& pass) const {
  const std::int32_t client = pass.client_of(pass.rows().front().slot);
  pass.clients().charge(client, weights_.of_streamed(pass));
}

void VtcPolicy::plan(PlanPass& pass) {
  pass.decode_all();
  charge_decodes(pass);
  const std::size_t decodes = pass.rows().size();
  pass.prefill_all();
  for (const PlanRow& row : pass.rows().subspan(decodes)) give_back_loaded(pass, row);
  if (pass.short_of_memory()) return;
  for (std::size_t begin = 0; begin < pass.waiting().size() && pass.can_admit();) {
    begin = line_up(pass.waiting(), begin);
    if (!admit_lines(pass)) return;
  }
}

// Builds the lines of the priority class that starts at `begin`, back to front. Returns its end.
std::size_t VtcPolicy::line_up(std::span<const WaitingEntry> waiting, std::size_t begin) {
  const std::int32_t priority = waiting[begin].order.priority;
  const auto past = std::partition_point(
      waiting.begin() + static_cast<std::ptrdiff_t>(begin), waiting.end(),
      [&](const WaitingEntry& entry) { return entry.order.priority == priority; });
  const auto end = static_cast<std::size_t>(past - waiting.begin());
  next_.resize(waiting.size());
  for (std::size_t i = end; i > begin; --i) {
    const WaitingEntry& entry = waiting[i - 1];
    if (entry.sequence == nullptr) continue;
    const auto client = static_cast<std::size_t>(entry.client);
    if (client >= first_.size()) first_.resize(client + 1, kNone);
    next_[i - 1] = std::exchange(first_[client], static_cast<std::int32_t>(i - 1));
    if (next_[i - 1] == kNone) lines_.push_back({entry.client, 0});
  }
  for (Line& line : lines_) {
    line.first = std::exchange(first_[static_cast<std::size_t>(line.client)], kNone);
  }
  return end;
}

// The next sequence is the first one of the client with the least counter; among equal clients, the
// first in service order. False when it does not fit; then no other sequence overtakes it.
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
    if (!pass.passes_over(pass.waiting()[position])) {
      if (pass.admit_at(position, {})) {
        charge_prompt(pass, pass.rows().back().slot);
      } else if (!pass.passes_over(pass.waiting()[position])) {
        fits = false;
        break;
      }
    }
    line.first = next_[position];
    if (line.first == kNone) {
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

// A prompt was charged before its loads brought these tokens.
void VtcPolicy::give_back_loaded(PlanPass& pass, const PlanRow& row) const {
  if (pass.sequence(row.slot).num_preemptions > 0) return;
  pass.clients().charge(pass.client_of(row.slot), -weights_.input * row.loaded_len);
}

// All chunks are charged at once, so that the next decision includes them. A client does not pay
// again after a preemption, nor for tokens from the prefix cache or from a sibling.
void VtcPolicy::charge_prompt(PlanPass& pass, std::int32_t slot) const {
  const Sequence& sequence = pass.sequence(slot);
  if (sequence.num_preemptions > 0) return;
  const std::int64_t computed = sequence.prompt_len - sequence.cached_prompt_tokens;
  pass.clients().charge(pass.client_of(slot), weights_.input * computed);
}

}  // namespace sluice
