// Frames: the messages between the server and a function process (a process that computes one
// tenant's requests). Token ids and sampling parameters go in; tokens, log-probabilities and states
// come out. No text of a client crosses.
//
//   length (u32, of what follows) | kind (u32) | fields
//
// The first frame of each direction has the version. Decoding checks lengths, ranges and
// enumerations, and never allocates more than a small multiple of the frame. It cannot know which
// requests exist: the server checks that with OutstandingRequests.
//
// A grammar crosses as a compiled image (grammar/grammar_image.h) into one of kGrammarPlaces places
// of the function, before the first request that names the place. The bytes of the vocabulary cross
// once, before the first image. The function replaces the grammar of a place; requests that hold
// the old one keep it.
// Limits: kMaxFrameBytes; kMaxGrammarImage, by check_grammar(); kMaxStateText.
// Functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "grammar/token_grammar.h"
#include "request/request.h"
#include "sandbox/report.h"
#include "server/engine_loop.h"

namespace sluice {

inline constexpr std::uint32_t kFrameVersion = 9;
inline constexpr std::size_t kMaxFrameBytes = std::size_t{16} << 20;
inline constexpr std::size_t kFrameLengthBytes = 4;
inline constexpr std::int32_t kGrammarPlaces = 16;
// The largest image of a grammar: the event loop copies it, and others wait meanwhile.
inline constexpr std::size_t kMaxGrammarImage = std::size_t{4} << 20;
// The longest text of a state; these texts go to logs and clients.
inline constexpr std::size_t kMaxStateText = 4096;

// The first frame that a function gets: how its engine runs.
struct StartFrame {
  std::uint32_t version = kFrameVersion;
  std::int64_t kv_bytes = 0;  // the most KV memory
  // The KV memory that it always has, and has at first; requests must fit it. 0: `kv_bytes`.
  std::int64_t kv_least = 0;
  std::int32_t max_num_seqs = 0;
  std::int32_t token_budget = 0;
  bool follow = false;  // BudgetMode::kFollow; false: kTokens
  std::int32_t block_size = 0;
  std::int32_t threads = 0;
  std::int32_t max_requests = 0;
  std::string scheduler;
  std::int32_t lora_rank = 0;  // the function may get an adapter up to this rank; 0: none
  bool touch = false;          // touch every page of the backbone before it is ready
  friend bool operator==(const StartFrame&, const StartFrame&) = default;
};
// Comes with a descriptor: the sealed memory of the adapter that all later requests are for. At
// most one, to a ready function, before its first request.
struct AdapterFrame {
  friend bool operator==(const AdapterFrame&, const AdapterFrame&) = default;
};
// The most KV memory from now on, of what the start allows; 0: all of it.
struct KvLimitFrame {
  std::int64_t bytes = 0;
  friend bool operator==(const KvLimitFrame&, const KvLimitFrame&) = default;
};
struct CancelFrame {
  RequestId request = 0;
  friend bool operator==(const CancelFrame&, const CancelFrame&) = default;
};
struct EndChoiceFrame {
  RequestId request = 0;
  std::int32_t choice = 0;
  FinishReason reason = FinishReason::kNone;
  friend bool operator==(const EndChoiceFrame&, const EndChoiceFrame&) = default;
};
struct AskProgressFrame {
  friend bool operator==(const AskProgressFrame&, const AskProgressFrame&) = default;
};
// The bytes of each token, as grammars read them; empty: the token is no text. They lie as in
// TokenTrie, so that a thread that must not wait makes and encodes the frame by copies.
struct VocabularyFrame {
  std::string text;                   // of all tokens
  std::vector<std::uint32_t> begins;  // in `text`, by id, and one more
  friend bool operator==(const VocabularyFrame&, const VocabularyFrame&) = default;
};
struct GrammarFrame {
  std::int32_t place = 0;
  std::string image;
  friend bool operator==(const GrammarFrame&, const GrammarFrame&) = default;
};
// Everything of the request but the client, stop strings, grammar and adapter.
struct RequestFrame {
  Request request;
  std::int32_t grammar = -1;  // its place; -1: none
};
using ToFunction =
    std::variant<StartFrame, RequestFrame, CancelFrame, EndChoiceFrame, AskProgressFrame,
                 AdapterFrame, KvLimitFrame, VocabularyFrame, GrammarFrame>;

// A change of the function's state. The first one has the layers of the sandbox that the function
// built itself.
struct StateFrame {
  std::uint32_t version = kFrameVersion;
  EngineState state = EngineState::kLoading;
  ErrorCode code = ErrorCode::kInternal;  // with `message`, if the state is kFailed
  std::string message;
  std::vector<LayerState> layers;
};
using FromFunction = std::variant<StateFrame, OutputBatch>;

// kInvalidArgument if the grammar is too large for a function, kUnsupported if its vocabulary is.
// Takes no time if the grammar has its image.
Status check_grammar(const TokenGrammar& grammar);
VocabularyFrame vocabulary_frame(const TokenTrie& trie);
GrammarFrame grammar_frame(const TokenGrammar& grammar, std::int32_t place);

// With the length in front. kInvalidArgument beyond kMaxFrameBytes.
Result<std::vector<std::byte>> encode_frame(const ToFunction& message);
Result<std::vector<std::byte>> encode_frame(const FromFunction& message);

// The length that a frame's first four bytes announce. kInvalidArgument beyond the limit.
Result<std::size_t> frame_length(std::span<const std::byte> first_bytes);
// Decodes the bytes after the length. kInvalidArgument for anything that encode_frame would not
// write.
Result<ToFunction> decode_to_function(std::span<const std::byte> body);
Result<FromFunction> decode_from_function(std::span<const std::byte> body);

}  // namespace sluice
