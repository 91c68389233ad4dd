// ClientLedger: how much service each client has had: the counters of the Virtual Token Counter
// algorithm (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024).
// Request::client_key names the client; all requests with an empty key are one client. A client of
// weight w pays 1/w of a cost, so it gets w shares. The weight of its last request counts.
//
// Idle time earns no credit: when a client whose queue was empty returns, its counter is raised to
// the smallest counter of the waiting clients, or, when none waits, to that of the client that left
// the queue last. The counters of idle clients are kept, but only the kMaxIdle largest, so invented
// keys cannot fill the memory.
// Owner: the scheduler's state. Threads: the engine's. Allocation: when clients come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class ClientLedger {
 public:
  static constexpr std::size_t kMaxIdle = 1024;

  // A new sequence of a client enters the queue. Returns the client's index, valid until finish()
  // was called for each of its sequences.
  std::int32_t arrive(std::string_view key, std::int32_t weight = 1);
  // A preempted sequence enters the queue again. The counter is not raised: the client was not
  // idle.
  void requeue(std::int32_t client) { ++accounts_[index(client)].queued; }
  // A sequence leaves the queue: for a slot, or because it ended there.
  void dequeue(std::int32_t client);
  // A sequence has ended.
  void finish(std::int32_t client);

  void charge(std::int32_t client, std::int64_t cost) {
    Account& account = accounts_[index(client)];
    account.served += static_cast<double>(cost) / account.weight;
  }
  double served(std::int32_t client) const { return accounts_[index(client)].served; }

  // Number of clients with a counter, idle ones included.
  std::size_t size() const { return clients_.size(); }
  // CHECKs the counts against `queued` waiting sequences and `alive` sequences in all.
  void check_integrity(std::size_t queued, std::size_t alive) const;

 private:
  struct Account {
    std::string key;
    double served = 0;
    std::int32_t weight = 1;
    std::int32_t queued = 0;  // sequences that wait
    std::int32_t alive = 0;   // sequences that wait or run
    bool used = false;
  };
  static std::size_t index(std::int32_t client) { return static_cast<std::size_t>(client); }
  std::int32_t open(std::string_view key);
  double raised(double own) const;  // the counter of a client that returns
  void forget_idle();
  void forget(std::int32_t client);

  std::vector<Account> accounts_;
  std::vector<std::int32_t> free_;
  // An ordered map: a client that chooses keys cannot cause hash collisions, and no seed is needed.
  std::map<std::string, std::int32_t, std::less<>> clients_;
  std::size_t num_idle_ = 0;
  std::int32_t last_left_ =
      -1;                   // the client whose queue became empty last; -1: forgotten, or none yet
  double last_served_ = 0;  // its counter when it was forgotten
};

}  // namespace sluice
