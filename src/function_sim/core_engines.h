// CoreEngines: the function processes of one machine of cores in virtual time. One engine computes
// at a time, step by step; the TurnLedger of the gateway decides which one, and a turn ends by the
// rules of TurnKeeper: at the border of a step, after kTurnQuantum, once another engine has the
// better right.
//
// A step decodes all running sequences of an engine and computes chunks of its prompts beside them,
// as `--token-budget follow` does: kStepTokens at most; beside decodes, a step takes at most three
// times what they take, and without decodes kLongestTurnStep, or kSharedTurnStep while others wait.
// It is planned shorter than that by the model's step_margin, but its first chunk has kLeastChunk
// tokens.
// A step takes the model's decode_step_s, decode_sequence_s for each decode, prefill_token_s for
// each token of a prompt and prefill_pair_s for each pair of positions that these attend. The first
// step of a turn takes `handover` more if another engine computed just before, and handover_token_s
// for each token of a prompt. If none did, it takes `wake` and wake_token_s more, times the factor
// that `rests` has for the time since the last step.
//
// Owner: FunctionSimulation. One thread. Virtual time: the caller gives it, and it must not fall.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "function_sim/cluster_file.h"
#include "turns/turn_ledger.h"

namespace sluice {

class CoreEngines {
 public:
  static constexpr std::int32_t kStepTokens = 512;  // as the engine's default
  static constexpr std::int32_t kLeastChunk = 16;   // as TimeBudget::min_chunk

  struct Options {
    Duration wake{0};
    std::vector<RestTime> rests = {};
    Duration handover{0};
    std::int32_t max_sequences = 64;  // of an engine
  };
  struct Call {
    std::int32_t number = 0;  // the caller's
    std::int32_t prompt_tokens = 1;
    std::int32_t output_tokens = 1;
    TimePoint first_token_due;
  };
  struct Event {
    std::int32_t function = 0;
    std::int32_t call = 0;
    bool first = false;  // token
    bool last = false;
  };

  explicit CoreEngines(const Options& options);

  // A process of the function starts or ends. REQUIRES for remove: it has no calls.
  // `times` outlives it.
  void add(std::int32_t function, std::int32_t tenant, const ModelTimes& times);
  void remove(std::int32_t function);
  void submit(TimePoint now, std::int32_t function, const Call& call);

  // Work outside of the engines takes a core for `time`. The step that computes now waits for it.
  void disturb(Duration time);

  // Seconds since the last step; 0: one computes. Infinity: there was none.
  double rest(TimePoint now) const;
  // When the step that computes ends; nothing: none does.
  std::optional<TimePoint> next_end() const { return step_end_; }
  // Ends that step, begins the next one, and appends what it brought, in the order of submit().
  // REQUIRES: `now` is next_end().
  void end_step(TimePoint now, std::vector<Event>& events);
  // The time of all turns that the function has had, up to the last step that has ended.
  Duration turn_time(std::int32_t function) const;

 private:
  struct Sequence {
    Call call;
    std::int32_t context = 0;  // tokens that are computed
    std::int32_t prompt_left = 0;
    std::int32_t output_left = 0;
    std::int32_t chunk = 0;  // tokens of the prompt in this step
    bool decodes = false;    // in this step
    TimePoint due;
  };
  struct Engine {
    TurnLedger::FunctionId id = 0;
    const ModelTimes* times = nullptr;  // null: no process
    std::deque<Sequence> sequences;     // the first max_sequences of them run
    TimePoint not_due_before;
    Duration turn_time{0};
  };

  std::size_t running(const Engine& engine) const;
  void ask(Engine& engine);
  enum class Before : std::uint8_t { kSame, kOther, kIdle };  // the cores just before a step

  // Gives the cores to the next engine that waits.
  void grant(TimePoint now, Before before);
  void begin_step(TimePoint now, Before before);
  double extra_seconds(TimePoint now, const Engine& engine, Before before) const;
  double plan_chunks(Engine& engine, double seconds, double limit, std::int32_t tokens);
  void commit_step(TimePoint now, std::vector<Event>& events);
  bool keeps_turn(TimePoint now) const;

  const Options options_;
  TurnLedger ledger_;
  std::unordered_map<std::int32_t, Engine> engines_;
  std::unordered_map<TurnLedger::FunctionId, std::int32_t> function_of_;
  std::optional<std::int32_t> computing_;  // function
  TimePoint turn_begun_;
  TimePoint step_begun_;  // its wake or handover included
  std::optional<TimePoint> step_end_;
  std::optional<TimePoint> last_end_;  // of a step
};

}  // namespace sluice
