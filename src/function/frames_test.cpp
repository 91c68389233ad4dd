// Frames: round trips, and the bytes that decoding refuses.
#include "function/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "grammar/grammar_image.h"
#include "grammar/regex_grammar.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

using testing::HasSubstr;

template <class Message>
std::vector<std::byte> body_of(const Message& message) {
  std::vector<std::byte> bytes = *encode_frame(message);
  EXPECT_EQ(*frame_length(bytes), bytes.size() - kFrameLengthBytes);
  bytes.erase(bytes.begin(), bytes.begin() + kFrameLengthBytes);
  return bytes;
}

Request full_request() {
  Request request;
  request.id = 7;
  request.prompt = {1, 2, 3};
  request.sampling.max_tokens = 9;
  request.sampling.temperature = 0.25F;
  request.sampling.seed = ~std::uint64_t{0};
  request.sampling.logit_bias = {{4, -1.5F}};
  request.sampling.bad_words = {{5, 6}, {}};
  request.sampling.stop_token_ids = {8};
  request.sampling.ignore_eos = true;
  request.sampling.prompt_logprobs = 2;
  request.arrival = TimePoint{Duration(123)};
  request.deadline = TimePoint{Duration(456)};
  request.ttft_goal = Duration(333);
  request.priority = -3;
  request.block_hashes = {{1, 2}, {3, 4}};
  request.block_hash_root = Hash128{5, 6};
  request.pooling = Pooling::kMean;
  return request;
}

OutputBatch full_batch() {
  OutputBatch batch;
  OutputEvent event;
  event.request = 7;
  event.choice = 1;
  event.finish_reason = FinishReason::kLength;
  event.num_tokens = 2;
  event.num_logprobs = 2;
  event.num_prompt_logprobs = 1;
  event.num_embedding = 2;
  event.time = TimePoint{Duration(9)};
  batch.events = {event};
  batch.tokens = {10, 11};
  batch.logprobs = {{10, -0.5F}, {11, -0.25F}};
  batch.prompt_logprobs = {{3, -1.0F, 2}};
  batch.embeddings = {0.5F, -0.5F};
  batch.refused = {{8, invalid_argument("too long")}};
  batch.steps = {{TimePoint{Duration(9)}, Duration(3), 4}};
  batch.progress = {{7, 1, 2, 3, 4, 5}};
  batch.has_progress = true;
  batch.gauges.totals.computed.matmul_rows = 12;
  return batch;
}

TEST(FunctionFrames, RequestsCrossWithoutTheTextOfClients) {
  Request request = full_request();
  request.client_key = "secret name";
  request.sampling.stop = {"stop here"};
  const auto body = body_of(ToFunction(RequestFrame{request, 3}));
  const auto decoded = decode_to_function(body);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(std::get<RequestFrame>(*decoded).grammar, 3);
  const Request& got = std::get<RequestFrame>(*decoded).request;
  EXPECT_EQ(got.sampling, full_request().sampling);
  EXPECT_EQ(got.prompt, request.prompt);
  EXPECT_EQ(got.deadline, request.deadline);
  EXPECT_EQ(got.pooling, request.pooling);
  EXPECT_EQ(got.block_hashes, request.block_hashes);
  EXPECT_EQ(got.block_hash_root, request.block_hash_root);
  EXPECT_TRUE(got.client_key.empty());
  EXPECT_EQ(body, body_of(*decoded));
}

TEST(FunctionFrames, EveryOtherMessageComesBackTheSame) {
  StartFrame start;
  start.kv_bytes = 1 << 20;
  start.follow = true;
  start.scheduler = "stall-free";
  for (const ToFunction& message :
       {ToFunction(start), ToFunction(CancelFrame{3}), ToFunction(AskProgressFrame{}),
        ToFunction(AdapterFrame{}), ToFunction(KvLimitFrame{1 << 20}),
        ToFunction(VocabularyFrame{std::string("a\0", 2), {0, 1, 1, 2}}),
        ToFunction(GrammarFrame{15, "image"}),
        ToFunction(EndChoiceFrame{3, 1, FinishReason::kStop})}) {
    const auto decoded = decode_to_function(body_of(message));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(body_of(*decoded), body_of(message));
  }
  StateFrame state;
  state.state = EngineState::kFailed;
  state.message = "no memory";
  state.layers = {{Layer::kNetwork, true, "empty"}, {Layer::kDump, false, "why"}};
  for (const FromFunction& message : {FromFunction(state), FromFunction(full_batch())}) {
    const auto decoded = decode_from_function(body_of(message));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(body_of(*decoded), body_of(message));
  }
}

TEST(FunctionFrames, LongTextsOfStatesAreRefused) {
  StateFrame state;
  state.message = std::string(kMaxStateText, 'x');
  state.layers = {{Layer::kNetwork, true, state.message}};
  EXPECT_TRUE(decode_from_function(body_of(FromFunction(state))));
  state.layers[0].detail += 'x';
  EXPECT_FALSE(decode_from_function(body_of(FromFunction(state))));
  state.layers.clear();
  state.message += 'x';
  const auto decoded = decode_from_function(body_of(FromFunction(state)));
  ASSERT_FALSE(decoded);
  EXPECT_THAT(decoded.error().message, HasSubstr("more than 4096 bytes"));
}

TEST(FunctionFrames, EveryCutAndEveryTailIsRefused) {
  std::vector<std::byte> request = body_of(ToFunction(RequestFrame{full_request(), 0}));
  for (std::size_t size = 0; size < request.size(); ++size) {
    EXPECT_FALSE(decode_to_function(std::span(request).first(size))) << size;
  }
  std::vector<std::byte> batch = body_of(FromFunction(full_batch()));
  for (std::size_t size = 0; size < batch.size(); ++size) {
    EXPECT_FALSE(decode_from_function(std::span(batch).first(size))) << size;
  }
  batch.push_back(std::byte{0});
  EXPECT_FALSE(decode_from_function(batch));
}

TEST(FunctionFrames, WrongFieldsAreRefused) {
  OutputBatch batch = full_batch();
  batch.events[0].first_token = 1;  // and two tokens from there
  EXPECT_THAT(decode_from_function(body_of(FromFunction(batch))).error().message,
              HasSubstr("outside"));
  batch.events[0].first_token = ~std::uint32_t{0};
  EXPECT_FALSE(decode_from_function(body_of(FromFunction(batch))));
  batch = full_batch();
  batch.events[0].finish_reason = static_cast<FinishReason>(99);
  EXPECT_FALSE(decode_from_function(body_of(FromFunction(batch))));
  StartFrame start;
  start.version = kFrameVersion + 1;
  EXPECT_THAT(decode_to_function(body_of(ToFunction(start))).error().message, HasSubstr("version"));
  std::vector<std::byte> kind = body_of(ToFunction(CancelFrame{3}));
  kind[0] = std::byte{200};
  EXPECT_THAT(decode_to_function(kind).error().message, HasSubstr("unknown kind"));
}

TEST(FunctionFrames, PlacesOfGrammarsHaveARange) {
  for (const std::int32_t place : {-2, kGrammarPlaces, 1 << 30}) {
    const auto request = body_of(ToFunction(RequestFrame{full_request(), place}));
    EXPECT_THAT(decode_to_function(request).error().message, HasSubstr("place")) << place;
    EXPECT_FALSE(decode_to_function(body_of(ToFunction(GrammarFrame{place, "x"})))) << place;
  }
  EXPECT_FALSE(decode_to_function(body_of(ToFunction(GrammarFrame{-1, "x"}))));
}

TEST(FunctionFrames, AVocabularyBeyondTheLimitIsRefusedByName) {
  const std::vector<std::string> tokens(5000, std::string(TokenTrie::kMaxTokenBytes, 'a'));
  const auto large = std::make_shared<GrammarVocabulary>(TokenTrie(tokens, 5000));
  const auto grammar = compile_or_fail(regex_grammar("a"), large);
  EXPECT_EQ(check_grammar(*grammar).error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(encode_frame(ToFunction(vocabulary_frame(large->trie))));
  const auto small = compile_or_fail(regex_grammar("a+b"), test_vocabulary({"ab"}));
  EXPECT_TRUE(check_grammar(*small));
  const VocabularyFrame words = vocabulary_frame(small->trie());
  EXPECT_EQ(words.text.substr(words.begins.at(256), 2), "ab");
  EXPECT_EQ(words.begins.back(), words.text.size());
  EXPECT_TRUE(encode_frame(ToFunction(grammar_frame(*small, 0))));
}

// Each of 32,000 states has a run for nearly each class of bytes.
TEST(FunctionFrames, AGrammarBeyondTheLimitIsRefusedByName) {
  std::string pattern;
  const auto letters = [&](int bit) {
    pattern += '[';
    for (char c = '0'; c <= 'z'; ++c) {
      if (std::isalnum(c) != 0 && ((c >> bit) & 1) != 0) pattern += c;
    }
    pattern += ']';
  };
  for (int bit = 0; bit < 7; ++bit) {
    letters(bit);
    pattern += '?';
  }
  for (int i = 0; i < 8; ++i) {
    letters(0);
    pattern += "{500}";
  }
  const auto large = compile_or_fail(regex_grammar(pattern), test_vocabulary({"ab"}));
  const Status refused = check_grammar(*large);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("too large"));
  EXPECT_GT(large->image().size(), kMaxGrammarImage);
  EXPECT_LT(large->image().size(), kMaxFrameBytes);
  EXPECT_EQ(large->image(), encode_grammar(*large));
}

TEST(FunctionFrames, LengthsHaveALimit) {
  const std::uint32_t wrong[] = {0, static_cast<std::uint32_t>(kMaxFrameBytes) + 1, ~0U};
  for (const std::uint32_t length : wrong) {
    EXPECT_FALSE(frame_length(std::as_bytes(std::span(&length, 1)))) << length;
  }
  Request request = full_request();
  request.prompt.resize(kMaxFrameBytes / sizeof(TokenId));
  EXPECT_EQ(encode_frame(ToFunction(RequestFrame{request, -1})).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(FunctionFrames, RequestsDoNotNameAdapters) {
  Request request = full_request();
  request.adapter = 5;
  const auto decoded = decode_to_function(body_of(ToFunction(RequestFrame{request, -1})));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(std::get<RequestFrame>(*decoded).request.adapter, -1);
  StartFrame start;
  start.lora_rank = 16;
  start.touch = true;
  EXPECT_EQ(std::get<StartFrame>(*decode_to_function(body_of(ToFunction(start)))), start);
}

}  // namespace
}  // namespace sluice
