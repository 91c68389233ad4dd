// OutstandingRequests: the requests that one function has and has not finished. The server checks
// every batch of a function against them before it uses anything of it: a function that reports
// another's request, a choice that has ended, a token outside of the vocabulary or more tokens than
// were asked for is lying or broken.
// Threads: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "request/request.h"
#include "server/engine_loop.h"

namespace sluice {

class OutstandingRequests {
 public:
  // `hidden_size`: the length of a prompt's vector.
  OutstandingRequests(std::int32_t vocab_size, std::int32_t hidden_size)
      : vocab_size_(vocab_size), hidden_size_(hidden_size) {}

  void add(const Request& request);
  std::size_t size() const { return requests_.size(); }
  bool contains(RequestId id) const { return requests_.contains(id); }

  // Checks a decoded batch and removes what it ends. Times after `now` become `now`.
  // kInvalidArgument, naming the request; the batch must then be thrown away, and ends nothing:
  // fail_all() must follow.
  Status accept(OutputBatch& batch, TimePoint now);

  // Ends every choice that is left with kError, as events for the server.
  void fail_all(TimePoint now, std::vector<OutputEvent>& events);

 private:
  struct Choice {
    std::int64_t tokens = 0;
    bool ending = false;  // by the batch that is being checked
    bool ended = false;
  };
  struct Entry {
    std::int64_t max_tokens = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t logprobs_per_token = 0;
    std::int64_t scores_wanted = 0;  // log-probabilities of the prompt, of all its tokens
    std::int64_t scores = 0;
    std::int64_t embedding_wanted = 0;  // numbers of the prompt's vector, with its token
    std::size_t unfinished = 0;
    std::vector<Choice> choices;
  };

  Status accept_scores(const OutputEvent& event);
  Status accept_event(OutputEvent& event, TimePoint now);
  void remove_ended(const OutputBatch& batch);
  bool in_vocabulary(TokenId token) const { return token >= 0 && token < vocab_size_; }

  std::int32_t vocab_size_;
  std::int32_t hidden_size_;
  std::map<RequestId, Entry> requests_;
};

}  // namespace sluice
