// SchedulerState: all state of the scheduler, common to all policies: the waiting queue, the
// running set, KV bookkeeping, the clients' counters and the choices of one request. Internal to
// scheduler/; read and changed by Scheduler (add, cancel, commit) and PlanPass (plan).
//
// The running set is a structure of arrays by slot, so that steady decode touches few cache lines
// per sequence. Threads: the engine's. Allocation: at construction, and when a queue grows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash128.h"
#include "kv/block_hash.h"
#include "kv/kv_manager.h"
#include "scheduler/adapter_slots.h"
#include "scheduler/batch_plan.h"
#include "scheduler/block_pager.h"
#include "scheduler/client_ledger.h"
#include "scheduler/kv_sizer.h"
#include "scheduler/resource_view.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_time_correction.h"
#include "scheduler/stream_lane.h"
#include "scheduler/waiting_queue.h"

namespace sluice {

enum class SlotState : std::uint8_t {
  kFree,
  kRunning,   // in RunningSet::order
  kStreamed,  // runs in StreamLane
  kDraining,  // its sequence ended or is cancelled, and a step in flight still names the slot
};

// By slot, except for `order` and `free_slots`.
struct RunningSet {
  explicit RunningSet(std::size_t slots);

  std::vector<SlotState> state;
  std::vector<Sequence*> sequence;  // null when draining after a finish
  std::vector<SequenceId> id;
  std::vector<ServiceOrder> service_order;
  // Position of the first token that no plan has: computed + in flight.
  std::vector<std::int32_t> next;
  std::vector<std::int32_t> known;        // tokens whose ids have come back
  std::vector<TokenId> last_token;        // the last of them
  std::vector<std::int32_t> prefill_end;  // tokens known at admission; from there on, decode
  std::vector<std::int32_t> decode_end;   // a row at or after this position would exceed max_len
  std::vector<std::int32_t> prompt_len;
  std::vector<std::int32_t> client;     // in the ClientLedger
  std::vector<std::int32_t> adapter;    // as Request::adapter
  std::vector<std::int32_t> in_flight;  // steps planned and not committed that name the slot
  std::vector<std::uint8_t> held;       // gets no row in this plan; the next one can preempt it
  std::vector<std::uint8_t> undecided;  // the row in flight may commit fewer tokens than it has
  std::vector<std::int32_t> loaded;     // tokens just before `next` that no row has: BackLoads

  std::vector<std::int32_t> order;       // running slots in service order
  std::vector<std::int32_t> free_slots;  // the last one is given out next
  std::int32_t num_draining = 0;

  static std::size_t index(std::int32_t slot) { return static_cast<std::size_t>(slot); }
};

// The choices of a request with n > 1. They share its prompt: one (the leader) is admitted alone;
// the others wait until the leader has computed the prompt and then fork its blocks.
struct ChoiceGroup {
  std::int32_t leader_slot = -1;  // -1: the next one admitted leads
  std::int32_t alive = 0;
};

// A running prompt that got no chunk in the last plan, because memory was short and all that could
// yield to it had their rows.
struct StarvedPrompt {
  SequenceId id = 0;  // 0: there is none
  std::int32_t slot = -1;
  std::int32_t blocks = 0;  // available blocks that it needs
};

struct SchedulerState {
  SchedulerState(const SchedulerOptions& scheduler_options, KvManager& kv_manager);

  SchedulerOptions options;
  KvManager& kv;
  WaitingQueue waiting;
  ClientLedger clients;
  RunningSet running;
  KvSizer kv_sizer;
  AdapterSlots adapters;
  BlockPager pager;
  StreamLane streams;
  TransferId next_transfer = 1;
  // The waiting sequence for which others were displaced, since when; null: there is none.
  const Sequence* urgent = nullptr;
  TimePoint urgent_since;
  StarvedPrompt starved;
  std::unordered_map<const Request*, ChoiceGroup> choices;  // n > 1 only
  std::uint64_t next_ticket = 0;
  std::uint64_t next_step = 0;       // of the next plan with rows
  std::uint64_t next_committed = 0;  // step
  // With a time budget: the step times, when the steps planned so far should end, and when the last
  // committed step ended.
  std::optional<StepTimeCorrection> step_time;
  TimePoint busy_until;
  TimePoint last_end;
  TimePoint last_commit;
  Duration step_limit = Duration::max();  // Scheduler::limit_step()
  BlockHasher hasher;
  std::vector<Hash128> hashes;  // scratch

  static ServiceOrder place_of(const Sequence& sequence) {
    return {sequence.request->priority, sequence.ticket};
  }
  ChoiceGroup* group_of(const Sequence& sequence);

  // Gives an entry's sequence a free slot and its place in the order. REQUIRES: the slot has its
  // blocks.
  void occupy(std::int32_t slot, const WaitingEntry& entry, std::int32_t cached);
  // Takes a slot out of the running order; blocks and slot stay until vacate().
  void leave_order(std::int32_t slot);
  // Frees blocks and slot. REQUIRES: not in the order, no step in flight.
  void vacate(std::int32_t slot);
  // Frees the slot and its blocks and puts the sequence back in the queue. Blocks that are neither
  // in memory nor in a tier when it returns are computed again. REQUIRES: not in flight.
  void preempt(std::int32_t slot, BatchPlan& plan);
  // Ends a sequence that holds a slot. The slot drains while a step in flight names it.
  void finish_running(std::int32_t slot, FinishReason reason);
  // Finishes a sequence that holds neither a slot nor a place in the queue.
  void finish(Sequence& sequence, std::int32_t client, FinishReason reason);
  // Adds an entry to the queue, or removes it.
  void enqueue(const WaitingEntry& entry);
  WaitingEntry dequeue(std::size_t position);

  // End a sequence in a plan, which reports it. REQUIRES: the slot is not in flight.
  void end_running(std::int32_t slot, FinishReason reason, BatchPlan& plan);
  void end_waiting(std::size_t position, FinishReason reason, BatchPlan& plan);
  // Handles ended transfers. A failed load ends the sequences that wait for its adapter.
  void take_completions(TimePoint now, const ResourceView& resources, BatchPlan& plan);
  // Whether the sequence can run alone: kContextLength if it never can, kResourceExhausted if only
  // the present limit forbids it.
  Status check_room(const Sequence& sequence, std::int32_t max_len) const;
  // Whether it fits into `most_blocks`, or can be streamed with them.
  Status check_fit(const Sequence& sequence, std::int32_t max_len, std::int32_t most_blocks) const;
  // Whether the sequence, which does not fit into memory, can be streamed. REQUIRES: there is a
  // lane.
  Status check_stream(const Sequence& sequence, std::int32_t max_len,
                      std::int32_t most_blocks) const;
  void enqueue_stream(const WaitingEntry& entry);
  // REQUIRES: the sequence waits in the lane.
  WaitingEntry dequeue_stream(const Sequence& sequence);
  // A streamed sequence has ended: its blocks may be kept.
  void keep_streamed_names(const Sequence& sequence, FinishReason reason);
  void end_waiting_stream(Sequence& sequence, FinishReason reason);
  // The streamed sequence that runs gives its blocks and slot back, and waits. False: there is
  // none. REQUIRES: no step is in flight.
  bool yield_stream(BatchPlan& plan);
  // Starts loads. REQUIRES: the waiting queue is compacted.
  void plan_loads(TimePoint now, BatchPlan& plan);

  void check_integrity() const;

 private:
  void publish_outputs(std::int32_t slot, Sequence& sequence, Hash128 root);
  void name_displaced(std::int32_t slot, Sequence& sequence);
  void forget_private_names(Sequence& sequence);
  // The root of names that no other sequence uses.
  Hash128 private_root(const Sequence& sequence) const {
    return {options.private_root.high, options.private_root.low ^ sequence.id};
  }
  void check_slot(std::int32_t slot) const;
};

}  // namespace sluice
