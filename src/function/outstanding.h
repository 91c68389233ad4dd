// OutstandingRequests: the requests that one function has and has not finished. The server checks
// every batch of a function against them before it uses anything of it: a function that reports
// another's request, a choice that has ended, a token outside of the vocabulary or of the request's
// grammar, or more tokens than were asked for is lying or broken.
// Threads: the owner's lock guards all but check_texts(), which takes as long as a function's
// answers make it. So a lying function does not hold up the threads that submit and cancel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "grammar/grammar_matcher.h"
#include "request/request.h"
#include "server/engine_loop.h"

namespace sluice {

class OutstandingRequests {
 public:
  struct Model {
    std::int32_t vocab_size = 0;
    std::int32_t hidden_size = 0;  // the length of a prompt's vector
    std::vector<TokenId> eos_ids;  // the end-of-sequence ids
  };

  explicit OutstandingRequests(Model model) : model_(std::move(model)) {}

  void add(const Request& request);
  // The server has told the function to end the choice, so its text may end anywhere.
  void end_choice(RequestId id, std::int32_t choice);
  std::size_t size() const { return requests_.size(); }
  bool contains(RequestId id) const { return requests_.contains(id); }
  // When the function owes one of them tokens (due_times.h), by the server's clock: nothing that
  // the function reports makes this sooner. Nothing: there are none.
  std::optional<TimePoint> due() const;

  // Checks a decoded batch and removes what it ends. Times after `now` become `now`.
  // kInvalidArgument, naming the request; the batch must then be thrown away, and ends nothing:
  // fail_all() must follow.
  Status accept(OutputBatch& batch, TimePoint now);

  // The same in three parts, by one thread, each after the one before has succeeded. Between them
  // only add() and end_choice() may change anything.
  Status begin(OutputBatch& batch, TimePoint now);
  Status check_texts();  // against the requests' grammars; needs no lock
  Status finish(const OutputBatch& batch);

  // Ends every choice that is left with kError, as events for the server.
  void fail_all(TimePoint now, std::vector<OutputEvent>& events);

 private:
  struct Choice {
    std::int64_t tokens = 0;
    bool ending = false;  // by the batch that is being checked
    bool ended = false;
    GrammarMatcher grammar;   // inactive: any text
    bool text_ended = false;  // with an end-of-sequence id, which only itself may follow
    bool may_end = true;      // anywhere
  };
  struct Entry {
    TimePoint due;
    std::int64_t max_tokens = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t logprobs_per_token = 0;
    std::int64_t scores_wanted = 0;  // log-probabilities of the prompt, of all its tokens
    std::int64_t scores = 0;
    std::int64_t embedding_wanted = 0;  // numbers of the prompt's vector, with its token
    std::size_t unfinished = 0;
    std::vector<Choice> choices;
  };

  // New tokens of a choice that has a grammar.
  struct Text {
    RequestId request = 0;
    Choice* choice = nullptr;
    std::span<const TokenId> tokens;  // of the batch
    bool stops = false;
  };

  Status accept_tokens(const Text& text) const;
  Status accept_scores(const OutputEvent& event);
  Status accept_event(const OutputBatch& batch, OutputEvent& event, TimePoint now);
  void remove_ended(const OutputBatch& batch);
  bool in_vocabulary(TokenId token) const { return token >= 0 && token < model_.vocab_size; }

  Model model_;
  std::map<RequestId, Entry> requests_;  // a map: entries stay where they are
  std::vector<Text> texts_;              // of the batch that is being checked
};

}  // namespace sluice
