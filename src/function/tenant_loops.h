// TenantLoops: an EngineLoop that gives each tenant and adapter an EngineLoop of its own, which in
// production is a ProcessEngineLoop. A tenant is an API key; calls without keys are one tenant. The
// base model counts as an adapter. An adapter is its content: after a reload, its name leads to
// another loop.
//
// A loop starts at its first request. All loops' batches come out as one; gauges are sums, and
// totals never fall when a loop ends or its process restarts. A loop that had no request for
// Options::idle is ended, and so is one that has failed.
//
// When there are Options::max_loops, an idle loop makes room: one of the tenant that has most, and
// of these the one that is idle for longest. A tenant that asks for one more counts with it, so it
// takes its own place before that of a tenant with as many. If no tenant that counts as many as the
// one that asks has an idle loop, submit() refuses.
//
// Owner: the command. Its thread loads, and ends loops; start() and stop() are the owner's, the
// rest is as EngineLoop says. stop() drops all that was not taken.
#pragma once

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "function/divided_loops.h"
#include "function/tenant_loop.h"
#include "server/engine_loop.h"

namespace sluice {

class TenantLoops final : public DividedLoops {
 public:
  struct Options {
    bool by_key = false;               // Request::client_key names the tenant; false: all are one
    std::int32_t max_requests = 1024;  // of all tenants together
    std::int32_t max_loops = 8;        // at one time
    Duration idle = std::chrono::seconds(300);
    std::int64_t first_kv_limit = 0;  // of a loop that starts; 0: none
  };
  // Makes and starts a loop for requests of one Request::adapter. A request holds the content of
  // that adapter meanwhile. The loop's destructor ends it.
  using MakeLoop =
      std::function<std::unique_ptr<TenantLoop>(std::int32_t adapter, std::function<void()> wake)>;

  TenantLoops(Options options, const Clock& clock, std::function<void()> wake);
  ~TenantLoops() override;  // stops
  TenantLoops(const TenantLoops&) = delete;
  TenantLoops& operator=(const TenantLoops&) = delete;

  // `load` runs once, on the thread; its error is the reason of kFailed. It should show whether
  // loops can run here.
  void start(std::function<Result<MakeLoop>()> load);
  // Ends all loops. A second call does nothing.
  void stop();

  std::vector<Kv> kv(std::int64_t& ending) const override;
  void limit_kv(std::uint64_t loop, std::int64_t bytes) override;
  // kResourceExhausted also when every loop is in use.
  Status submit(Request request) override;
  void cancel(RequestId id) override;
  void end_choice(RequestId id, std::int32_t choice, FinishReason reason) override;
  // The progress lacks requests of loops that are not ready yet.
  void ask_progress() override;
  Status supports_pins() const override {
    return unsupported("--isolation process has no pins; use --isolation none");
  }
  Status ask_pins(PinQuestion) override { return supports_pins(); }
  void take(OutputBatch& batch) override;
  std::int32_t max_requests() const override { return options_.max_requests; }
  EngineState state() const override;
  std::optional<Error> failure() const override;
  std::int32_t unfinished_requests() const override;

 private:
  // A loop of one tenant and adapter.
  struct Function {
    std::unique_ptr<TenantLoop> loop;
    std::uint64_t number = 0;  // see DividedLoops::Kv
    TimePoint last_use;
    EngineGauges gauges;
    bool asked = false;  // for its progress
  };
  struct Key {
    std::string tenant;
    std::int32_t adapter = -1;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  using Functions = std::map<Key, Function>;

  void run(const std::function<Result<MakeLoop>()>& load);
  void loop_woke();
  // The rest: with `mutex_`.
  void end_unused(TimePoint now);
  Result<Function*> function_of(const Key& key);
  bool is_full() const { return functions_.size() >= static_cast<std::size_t>(options_.max_loops); }
  bool make_room(const std::string& tenant);
  static bool has_failed(const Function& function);
  Functions::iterator retire(Functions::iterator function);
  void collect(Function& function);
  std::int32_t count_unfinished() const;

  const Options options_;
  const Clock& clock_;
  const std::function<void()> wake_;

  mutable std::mutex mutex_;
  std::condition_variable news_;  // for the thread
  // Guarded by `mutex_`.
  bool stopping_ = false;
  bool woken_ = false;
  EngineState state_ = EngineState::kLoading;
  std::optional<Error> failure_;
  MakeLoop make_;
  Functions functions_;
  std::vector<std::unique_ptr<TenantLoop>> ending_;  // the thread destroys them
  std::int64_t ending_kv_ = 0;                       // held by those and by what it destroys now
  std::uint64_t next_number_ = 0;
  EngineGauges ended_;  // totals of loops and processes that ended
  OutputBatch pending_;
  OutputBatch scratch_;
  bool progress_wanted_ = false;
  std::vector<RequestProgress> progress_;  // of the loops that have answered

  std::thread thread_;  // the owner's
};

}  // namespace sluice
