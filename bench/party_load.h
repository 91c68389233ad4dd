// PartyLoad: many parties of a coordinator, each as `serve --lend` is one: a LendingAgent that
// looks every 20 ms, sends a heartbeat every 100 ms, borrows during bursts and gives back
// afterwards. Each has a connection of its own. All run on the calling thread, and as cheaply as
// parties can, because the thread takes its time from the coordinator's cores. Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "lending/lending_agent.h"

namespace sluice::bench {

struct PartyLoadOptions {
  std::uint16_t port = 0;
  std::string token;
  int parties = 1000;
  std::vector<std::string> devices;  // the parties are divided over them
  std::uint64_t seed = 1;
  double calm_s = 10;  // the mean time between two bursts of a party
  double burst_s = 3;
};

class PartyLoad {
 public:
  static constexpr std::int64_t kLeast = std::int64_t{16} << 20;
  static constexpr std::int64_t kMost = std::int64_t{1} << 30;
  static constexpr Duration kTick = std::chrono::milliseconds(20);

  static Result<PartyLoad> connect(PartyLoadOptions options);
  ~PartyLoad();
  PartyLoad(PartyLoad&& other) noexcept;
  PartyLoad(const PartyLoad&) = delete;
  PartyLoad& operator=(const PartyLoad&) = delete;

  Status run_for(Duration duration);
  // Forgets the times of calls so far.
  void reset() { times_.clear(); }

  // Milliseconds from the sending of a message to its answer.
  const std::map<LendVerb, std::vector<double>>& times() const { return times_; }
  int joined() const;
  std::int64_t errors() const { return errors_; }
  // Bytes that the parties of the device may use now beyond their own.
  std::int64_t borrowed(const std::string& device) const;

 private:
  struct Party {
    LendingAgent agent;
    std::string device;
    int socket = -1;
    std::string answer = {};  // received so far
    LendVerb verb = LendVerb::kJoin;
    TimePoint sent = {};
    bool waits = false;
    // Its memory.
    std::int64_t need = 0;  // 0: no burst
    std::int64_t used = 0;
    std::int64_t backed = 0;
    TimePoint next_change = {};  // a burst begins or ends
  };

  explicit PartyLoad(PartyLoadOptions options)
      : options_(std::move(options)), random_(options_.seed) {}
  Status open(int index);
  void live(TimePoint now, Party& party);
  void look(TimePoint now, Party& party);
  Status send(TimePoint now, Party& party);
  Status receive(Party& party);

  PartyLoadOptions options_;
  std::mt19937_64 random_;
  SystemClock clock_;
  int epoll_ = -1;
  std::deque<Party> parties_;
  std::size_t next_ = 0;  // to be ticked
  std::map<LendVerb, std::vector<double>> times_;
  std::int64_t errors_ = 0;
};

}  // namespace sluice::bench
