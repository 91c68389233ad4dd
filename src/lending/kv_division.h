// KvDivision: divides the KV memory of one server over its functions, which are engines in
// processes of their own. The server's limit changes while memory is lent; this says what each
// function may use, and what the server tells the coordinator about all of them.
//
// - There are Options::places for functions. Each place has own() bytes, an equal part of `least`,
//   whether a function runs there or not. So a function that starts never waits for memory, and a
//   request that fits own() is never ended by a recall.
// - The rest of the limit is the pool. A function that lacks memory (LendingPolicy) gets what is
//   free of it. Then functions give up what they can spare, and then what they have beyond their
//   share of the pool, for functions that have less than theirs.
// - When the limit falls, unused memory goes first, and then the largest parts come down to one
//   level.
// - A limit rises only by memory that no function holds: the limits, and what functions still hold
//   above them, stay within the limit of the server. A fall of that limit takes effect as the
//   functions give memory back.
// Owner: the command. Pure; one thread. Units: bytes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/clock.h"
#include "lending/lending_policy.h"

namespace sluice {

class KvDivision {
 public:
  struct Options {
    std::int64_t least = 0;   // of the server's limit
    std::int64_t most = 0;    // likewise
    std::int32_t places = 1;  // the most functions at one time
  };
  struct Function {
    std::uint64_t id = 0;  // differs from those of all other functions
    // `limit`: as divide() set it last, own() at first. `backed`: it holds at most so much.
    LendingLoad load;
  };

  explicit KvDivision(Options options) : options_(options) {}

  std::int64_t own() const { return options_.least / options_.places; }
  // The most that one function can have.
  std::int64_t most_of_one() const { return options_.most - own() * (options_.places - 1); }

  // The new limit of each function. `limit`: of the server, `least` at least. `ending`: held by
  // functions that end and have no place any more.
  std::vector<std::int64_t> divide(TimePoint now, std::int64_t limit,
                                   std::span<const Function> functions, std::int64_t ending);

  // All functions as one, for the policies of a server. Half of what a place has for itself and
  // does not use counts as used, because twice the use is kept; all of it counts as backed.
  // Sequences wait where divide() had less than a function lacks.
  LendingLoad total(std::int64_t limit, std::span<const Function> functions,
                    std::int64_t ending) const;

 private:
  struct Part;  // of the pool

  std::vector<Part> look(TimePoint now, std::span<const Function> functions);
  static void fit(std::int64_t pool, std::vector<Part>& parts);
  static std::int64_t give(std::int64_t free, std::vector<Part>& parts);
  static void take_back(std::int64_t pool, std::int64_t missing, std::vector<Part>& parts);

  const Options options_;
  std::map<std::uint64_t, LendingPolicy> policies_;  // by function
  std::int64_t unmet_ = 0;                           // what functions lack and will not get
};

}  // namespace sluice
