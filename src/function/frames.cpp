#include "function/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/byte_stream.h"
#include "grammar/grammar_image.h"

namespace sluice {
namespace {

// The most for a vocabulary or an image; its frame has other fields too.
constexpr std::size_t kMaxContentBytes = kMaxFrameBytes - 64;

template <class T, class Wanted>
concept Like = std::same_as<std::remove_const_t<T>, Wanted>;

// The last value of each enumeration that crosses.
template <class T>
constexpr T kLast = T::kNone;
template <>
constexpr Pooling kLast<Pooling> = Pooling::kMean;
template <>
constexpr FinishReason kLast<FinishReason> = FinishReason::kLostKv;
template <>
constexpr EngineState kLast<EngineState> = EngineState::kStopped;
template <>
constexpr Layer kLast<Layer> = Layer::kSystemCalls;
template <>
constexpr ErrorCode kLast<ErrorCode> = ErrorCode::kContextLength;

// The fields of each struct, listed once for both directions.
template <class Archive>
void list(Archive& a, Like<TimePoint> auto& x) {
  a(x.since_start);
}
template <class Archive>
void list(Archive& a, Like<Hash128> auto& x) {
  a(x.high, x.low);
}
template <class Archive>
void list(Archive& a, Like<SamplingParams> auto& x) {
  a(x.max_tokens, x.min_tokens, x.n, x.temperature, x.top_p, x.top_k, x.min_p, x.seed);
  a(x.repetition_penalty, x.presence_penalty, x.frequency_penalty, x.logit_bias);
  a(x.allowed_token_ids, x.bad_words, x.stop_token_ids, x.ignore_eos, x.logprobs);
  a(x.prompt_logprobs);
}
template <class Archive>
void list(Archive& a, Like<Request> auto& x) {
  a(x.id, x.prompt, x.sampling, x.arrival, x.deadline, x.priority, x.block_hashes);
  a(x.block_hash_root, x.pooling, x.ttft_goal);
}
template <class Archive>
void list(Archive& a, Like<RequestFrame> auto& x) {
  a(x.request, x.grammar);
}
template <class Archive>
void list(Archive& a, Like<VocabularyFrame> auto& x) {
  a(x.text, x.begins);
}
template <class Archive>
void list(Archive& a, Like<GrammarFrame> auto& x) {
  a(x.place, x.image);
}
template <class Archive>
void list(Archive& a, Like<StartFrame> auto& x) {
  a(x.version, x.kv_bytes, x.kv_least, x.max_num_seqs, x.token_budget, x.follow, x.block_size);
  a(x.threads, x.max_requests, x.scheduler, x.lora_rank, x.touch);
}
template <class Archive>
void list(Archive& a, Like<CancelFrame> auto& x) {
  a(x.request);
}
template <class Archive>
void list(Archive& a, Like<EndChoiceFrame> auto& x) {
  a(x.request, x.choice, x.reason);
}
template <class Archive>
void list(Archive&, Like<AskProgressFrame> auto&) {}
template <class Archive>
void list(Archive&, Like<AdapterFrame> auto&) {}
template <class Archive>
void list(Archive& a, Like<KvLimitFrame> auto& x) {
  a(x.bytes);
}
template <class Archive>
void list(Archive& a, Like<LayerState> auto& x) {
  a(x.layer, x.active, x.detail);
}
template <class Archive>
void list(Archive& a, Like<StateFrame> auto& x) {
  a(x.version, x.state, x.code, x.message, x.layers);
}
template <class Archive>
void list(Archive& a, Like<TokenLogprob> auto& x) {
  a(x.token, x.logprob);
}
template <class Archive>
void list(Archive& a, Like<PromptLogprob> auto& x) {
  a(x.token, x.logprob, x.rank);
}
template <class Archive>
void list(Archive& a, Like<OutputEvent> auto& x) {
  a(x.request, x.choice, x.finish_reason, x.cached_prompt_tokens, x.first_token, x.num_tokens);
  a(x.first_logprob, x.num_logprobs, x.first_prompt_logprob, x.num_prompt_logprobs, x.time);
  a(x.first_scheduled, x.first_embedding, x.num_embedding);
}
template <class Archive>
void list(Archive& a, Like<Error> auto& x) {
  a(x.code, x.message);
}
template <class Archive>
void list(Archive& a, Like<RefusedRequest> auto& x) {
  a(x.request, x.error);
}
template <class Archive>
void list(Archive& a, Like<StepRecord> auto& x) {
  a(x.end, x.duration, x.tokens);
}
template <class Archive>
void list(Archive& a, Like<RequestProgress> auto& x) {
  a(x.request, x.prompt_tokens, x.computed_tokens, x.output_tokens, x.running, x.waiting);
}
template <class Archive>
void list(Archive& a, Like<DeviceTime> auto& x) {
  a(x.busy, x.idle);
}
template <class Archive>
void list(Archive& a, Like<ComputedWork> auto& x) {
  a(x.matmul_rows, x.matmul_rows_padding, x.attention_pairs, x.attention_pairs_padding);
}
template <class Archive>
void list(Archive& a, Like<EngineStats> auto& x) {
  a(x.steps, x.computed_tokens, x.preemptions, x.adapter_loads, x.device, x.computed);
  a(x.prefill_tokens, x.decode_tokens, x.forced_tokens);
}
template <class Archive>
void list(Archive& a, Like<EngineGauges> auto& x) {
  a(x.running, x.waiting, x.kv_blocks, x.kv_blocks_used, x.kv_blocks_cached);
  a(x.kv_blocks_backed, x.kv_limit_blocks);
  a(x.prefix_queried_tokens, x.prefix_hit_tokens, x.totals);
}
template <class Archive>
void list(Archive& a, Like<OutputBatch> auto& x) {
  a(x.events, x.tokens, x.logprobs, x.prompt_logprobs, x.refused, x.steps, x.progress);
  a(x.has_progress, x.gauges, x.embeddings);
}

class Writer {
 public:
  template <class... T>
  void operator()(const T&... fields) {
    (one(fields), ...);
  }
  std::vector<std::byte> take() { return out_.take(); }
  std::size_t size() const { return out_.size(); }

 private:
  template <class T>
  void one(const T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      out_.bytes(std::as_bytes(std::span(&value, 1)));
    } else if constexpr (std::is_enum_v<T>) {
      one(static_cast<std::uint32_t>(value));
    } else {
      list(*this, value);
    }
  }
  void one(const std::string& text) { out_.text(text); }
  void one(Duration duration) { one(static_cast<std::int64_t>(duration.count())); }
  template <class A, class B>
  void one(const std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class T>
  void one(const std::optional<T>& value) {
    one(value.has_value());
    if (value) one(*value);
  }
  template <class T>
  void one(const std::vector<T>& values) {
    one(static_cast<std::uint32_t>(values.size()));
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      out_.bytes(std::as_bytes(std::span(values)));
    } else {
      for (const T& value : values) one(value);
    }
  }

  ByteWriter out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : in_(bytes) {}

  template <class... T>
  void operator()(T&... fields) {
    (one(fields), ...);
  }
  // Whether every field was right and nothing is left.
  bool complete() const { return ok_ && in_.ok() && in_.left() == 0; }

 private:
  template <class T>
  void one(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      one(byte);
      if (byte > 1) ok_ = false;
      value = byte == 1;
    } else if constexpr (std::is_arithmetic_v<T>) {
      const auto raw = in_.bytes(sizeof(T));
      if (!raw.empty()) std::memcpy(&value, raw.data(), sizeof(T));
    } else if constexpr (std::is_enum_v<T>) {
      std::uint32_t number = 0;
      one(number);
      if (number > static_cast<std::uint32_t>(kLast<T>)) {
        ok_ = false;
      } else {
        value = static_cast<T>(number);
      }
    } else {
      list(*this, value);
    }
  }
  void one(std::string& text) { text = in_.text(); }
  void one(Duration& duration) {
    std::int64_t count = 0;
    one(count);
    duration = Duration(count);
  }
  template <class A, class B>
  void one(std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class T>
  void one(std::optional<T>& value) {
    bool present = false;
    one(present);
    if (present) one(value.emplace());
  }
  // Grows with the bytes that were read, so a count alone allocates nothing.
  template <class T>
  void one(std::vector<T>& values) {
    std::uint32_t count = 0;
    one(count);
    for (std::uint32_t i = 0; i < count && ok_ && in_.left() > 0; ++i) one(values.emplace_back());
    if (values.size() != count) ok_ = false;
  }

  ByteReader in_;
  bool ok_ = true;
};

template <class Message>
Result<std::vector<std::byte>> encode(const Message& message) {
  Writer writer;
  writer(std::uint32_t{0}, static_cast<std::uint32_t>(message.index()));
  std::visit([&](const auto& fields) { writer(fields); }, message);
  std::vector<std::byte> bytes = writer.take();
  const std::size_t body = bytes.size() - kFrameLengthBytes;
  if (body > kMaxFrameBytes) {
    return invalid_argument(fmt::format(
        "what is to be sent takes {} bytes, at most {} fit in a frame", body, kMaxFrameBytes));
  }
  const auto length = static_cast<std::uint32_t>(body);
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes;
}

// Reads the alternative with the number `kind` of a variant.
template <class Message, std::size_t kIndex = 0>
bool read_kind(std::uint32_t kind, Reader& reader, Message& message) {
  if constexpr (kIndex == std::variant_size_v<Message>) {
    return false;
  } else {
    if (kind != kIndex) return read_kind<Message, kIndex + 1>(kind, reader, message);
    reader(message.template emplace<kIndex>());
    return true;
  }
}

template <class Message>
Result<Message> decode(std::span<const std::byte> body) {
  if (body.size() > kMaxFrameBytes) return invalid_argument("a frame is larger than its limit");
  Reader reader(body);
  std::uint32_t kind = 0;
  reader(kind);
  Message message;
  if (!read_kind(kind, reader, message)) {
    return invalid_argument(fmt::format("a frame has the unknown kind {}", kind));
  }
  if (!reader.complete()) {
    return invalid_argument(fmt::format("a frame of kind {} is cut off or has wrong fields", kind));
  }
  return message;
}

bool fits(std::uint32_t first, std::uint32_t count, std::size_t size) {
  return std::uint64_t{first} + count <= size;
}

Status check_texts(const StateFrame& state) {
  const auto fits = [](const std::string& text) { return text.size() <= kMaxStateText; };
  if (fits(state.message) && std::ranges::all_of(state.layers, fits, &LayerState::detail)) {
    return {};
  }
  return invalid_argument(fmt::format("a state has a text of more than {} bytes", kMaxStateText));
}

Status check_ranges(const OutputBatch& batch) {
  for (const OutputEvent& event : batch.events) {
    if (!fits(event.first_token, event.num_tokens, batch.tokens.size()) ||
        !fits(event.first_logprob, event.num_logprobs, batch.logprobs.size()) ||
        !fits(event.first_embedding, event.num_embedding, batch.embeddings.size()) ||
        !fits(event.first_prompt_logprob, event.num_prompt_logprobs,
              batch.prompt_logprobs.size())) {
      return invalid_argument(
          fmt::format("an output of request {} lies outside of its batch", event.request));
    }
  }
  return {};
}

Status check_version(std::uint32_t version) {
  if (version == kFrameVersion) return {};
  return invalid_argument(
      fmt::format("frames have version {}, not {}: server and function are of different programs",
                  version, kFrameVersion));
}

}  // namespace

Status check_grammar(const TokenGrammar& grammar) {
  const TokenTrie& trie = grammar.trie();
  const std::size_t vocabulary = trie.text().size() + trie.num_tokens() * sizeof(std::uint32_t);
  if (vocabulary > kMaxContentBytes) {
    return unsupported(fmt::format(
        "structured output is not available with --isolation process for this model: the bytes of "
        "its tokens take {} bytes, at most {} can be sent to a function",
        vocabulary, kMaxContentBytes));
  }
  if (grammar_image_bound(grammar) <= kMaxGrammarImage) return {};
  const std::size_t image = grammar.image().size();
  if (image <= kMaxGrammarImage) return {};
  return invalid_argument(
      fmt::format("the schema or grammar is too large for --isolation process: compiled, it takes "
                  "{} bytes, at most {} can be sent to a function; use a smaller one",
                  image, kMaxGrammarImage));
}

VocabularyFrame vocabulary_frame(const TokenTrie& trie) {
  const auto begins = trie.begins();
  return {std::string(trie.text()), {begins.begin(), begins.end()}};
}

GrammarFrame grammar_frame(const TokenGrammar& grammar, std::int32_t place) {
  const std::vector<std::byte>& image = grammar.image();
  return {place, std::string(reinterpret_cast<const char*>(image.data()), image.size())};
}

Result<std::vector<std::byte>> encode_frame(const ToFunction& message) { return encode(message); }
Result<std::vector<std::byte>> encode_frame(const FromFunction& message) { return encode(message); }

Result<std::size_t> frame_length(std::span<const std::byte> first_bytes) {
  const std::size_t length = ByteReader(first_bytes).u32();
  if (length > 0 && length <= kMaxFrameBytes) return length;
  return invalid_argument(
      fmt::format("a frame announces {} bytes, at most {} are allowed", length, kMaxFrameBytes));
}

Result<ToFunction> decode_to_function(std::span<const std::byte> body) {
  Result<ToFunction> decoded = decode<ToFunction>(body);
  if (!decoded) return decoded;
  const ToFunction& message = *decoded;
  if (const auto* start = std::get_if<StartFrame>(&message)) {
    RETURN_IF_ERROR(check_version(start->version));
  }
  const auto* const request = std::get_if<RequestFrame>(&message);
  const auto* const grammar = std::get_if<GrammarFrame>(&message);
  if ((request != nullptr && (request->grammar < -1 || request->grammar >= kGrammarPlaces)) ||
      (grammar != nullptr && (grammar->place < 0 || grammar->place >= kGrammarPlaces))) {
    return invalid_argument("a frame names a place for grammars that does not exist");
  }
  return decoded;
}

Result<FromFunction> decode_from_function(std::span<const std::byte> body) {
  ASSIGN_OR_RETURN(FromFunction message, decode<FromFunction>(body));
  if (const auto* state = std::get_if<StateFrame>(&message)) {
    RETURN_IF_ERROR(check_version(state->version));
    RETURN_IF_ERROR(check_texts(*state));
  } else {
    RETURN_IF_ERROR(check_ranges(std::get<OutputBatch>(message)));
  }
  return message;
}

}  // namespace sluice
