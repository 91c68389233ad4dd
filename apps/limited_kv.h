// LimitedKv: the KV memory of a server, gateway or agent whose limit LendSession sets: of one
// engine, or of function processes together. Owner: the server. Threads: the event loop's. Units:
// bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "function/divided_loops.h"
#include "lending/kv_division.h"
#include "lending/lending_policy.h"
#include "server/threaded_engine_loop.h"

namespace sluice {

class LimitedKv {
 public:
  virtual ~LimitedKv() = default;
  virtual bool ready() const = 0;
  // Its load under the limit `bytes`, which limit() set last.
  virtual LendingLoad load(std::int64_t bytes) = 0;
  // Called at each look, also with the same limit.
  virtual void limit(TimePoint now, std::int64_t bytes) = 0;
};

class EngineKv final : public LimitedKv {
 public:
  // REQUIRES: the engine is ready when load() or limit() is called first. `block_bytes`: of a
  // block.
  EngineKv(ThreadedEngineLoop& engine, std::int64_t block_bytes, std::int32_t max_num_seqs)
      : engine_(engine), block_bytes_(block_bytes), max_num_seqs_(max_num_seqs) {}

  bool ready() const override { return engine_.state() == EngineState::kReady; }
  LendingLoad load(std::int64_t bytes) override;
  void limit(TimePoint now, std::int64_t bytes) override;

 private:
  ThreadedEngineLoop& engine_;
  const std::int64_t block_bytes_;
  const std::int32_t max_num_seqs_;
  std::int64_t set_ = 0;  // the engine's limit, as it was told
};

class FunctionsKv final : public LimitedKv {
 public:
  // `max_num_seqs`: of each function. REQUIRES: a loop starts with the division's own() as its
  // limit.
  FunctionsKv(DividedKv& functions, KvDivision::Options division, std::int32_t max_num_seqs)
      : functions_(functions), division_(division), max_num_seqs_(max_num_seqs) {}

  bool ready() const override { return functions_.serves(); }
  LendingLoad load(std::int64_t bytes) override;
  void limit(TimePoint now, std::int64_t bytes) override;

 private:
  void look();

  DividedKv& functions_;
  KvDivision division_;
  const std::int32_t max_num_seqs_;
  std::vector<KvDivision::Function> looked_;
  std::int64_t ending_ = 0;
};

}  // namespace sluice
