// KeyQuotas: how much the clients of each key use, and whether one more call fits their limits.
// - A rate is a bucket that holds a minute's amount and fills evenly. A call takes one request when
//   it comes, and the tokens of its prompt when they are known. Output tokens are taken as they
//   come, so a long answer may overdraw the bucket; the next call then waits until it has filled.
// - A prompt that is longer than a minute's tokens needs a full bucket.
// - Limits are those of the key file now: they may change between calls.
// - Several servers may share the limits: each takes what the others have used from its own
//   buckets, at most down to a debt of one minute's amount. While they do not hear of each other,
//   each has an even part of each rate and of the concurrency (of each, at least 1).
// Owner: the API service. Threads: the event loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "http/message.h"
#include "server/api_error.h"
#include "server/key_limits.h"

namespace sluice {

class KeyQuotas {
 public:
  struct Use;

  // A call's part in what its client uses. Its end gives back its place; tokens stay used. An empty
  // lease is for calls without a key. Movable; ends on the event loop's thread.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { release(); }

    explicit operator bool() const { return use_ != nullptr; }
    const std::string& name() const;  // of the key; REQUIRES: not empty
    std::int32_t weight() const;      // KeyLimits::weight
    void take_output(std::int64_t tokens) const;

   private:
    friend class KeyQuotas;
    void release();

    std::shared_ptr<Use> use_;   // shared: a closing connection may hold a lease after the quotas
    std::int64_t requests_ = 0;  // in the engine
  };

  struct Prompt {
    std::int64_t requests = 1;  // of the engine
    std::int64_t tokens = 0;
    std::int32_t priority = 0;
  };

  // Counts of a name here: taken since the start; calls that run.
  struct Total {
    std::int64_t requests = 0;
    std::int64_t tokens = 0;
    std::int64_t calls = 0;
  };

  // `max_requests`: that the server holds at once, of which `queue` is a part.
  KeyQuotas(const Clock& clock, std::int64_t max_requests);

  // A call comes: counts it, or 429 with Retry-After.
  ApiResult<Lease> begin(const std::string& name, const KeyLimits& limits);
  // Its prompt is known: takes its tokens, or 400 (priority) or 429.
  std::optional<ApiError> take_prompt(Lease& lease, const Prompt& prompt);

  std::map<std::string, Total> totals() const;
  // Calls of this name at other servers have taken so many requests and tokens since the last time,
  // and so many run there.
  void use_elsewhere(const std::string& name, const KeyLimits& limits, const Total& use);
  // This server has an even part of limits that so many share; 1: it has the whole limits.
  void set_parts(std::int32_t parts) { parts_ = parts; }

  // x-ratelimit-{limit,remaining,reset}-{requests,tokens}, as OpenAI's API gives them; none for
  // limits that the key does not have.
  std::vector<http::Header> headers(const Lease& lease) const;

 private:
  Use& use_of(const std::string& name, const KeyLimits& limits);

  const Clock& clock_;
  const std::int64_t max_requests_;
  std::int32_t parts_ = 1;
  // By name; as many as the key file has had. Shared with the leases.
  std::map<std::string, std::shared_ptr<Use>> uses_;
};

}  // namespace sluice
