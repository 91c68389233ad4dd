#include "front/prompt_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

EngineFacts demo_facts() {
  EngineFacts facts;
  facts.limits = {.vocab_size = 3072, .max_model_len = 64, .num_adapters = 0};
  facts.eos_ids = {2, 6};
  facts.kv_identity.model_digest = "demo";
  facts.kv_identity.block_size = 4;
  facts.block_size = 4;
  return facts;
}

const ServedModel& demo() {
  static const ServedModel model = *load_served_model("models/demo", "demo", 1, demo_facts());
  return model;
}

TEST(ServedModel, LoadsWhatADirectoryHas) {
  EXPECT_EQ(demo().name, "demo");
  EXPECT_TRUE(demo().templates);
  EXPECT_EQ(demo().no_templates_reason, "");
  EXPECT_EQ(demo().block_size, 4);
  EXPECT_THAT(demo().eos_ids, ElementsAre(2, 6));
}

TEST(ServedModel, TokenizerIsNeededTemplatesAreNot) {
  const auto directory = std::filesystem::path(::testing::TempDir()) /
                         ("served_model_test_" + std::to_string(getpid()));
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const auto without = load_served_model(directory.string(), "m", 1, demo_facts());
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().message, HasSubstr("tokenizer.json"));

  std::filesystem::copy_file("models/demo/tokenizer.json", directory / "tokenizer.json");
  ::testing::internal::CaptureStderr();
  const auto plain = load_served_model(directory.string(), "m", 1, demo_facts());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("Chat requests will be refused: the model has no chat template"));
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_FALSE(plain->templates);
  EXPECT_THAT(plain->no_templates_reason, HasSubstr("has no chat template"));
  PromptWorker worker(*plain);
  EXPECT_TRUE(worker.from_text("hello", AddSpecialTokens::kNo, ""));
  const auto chat = worker.from_chat({.messages_json = "[]"}, AddSpecialTokens::kNo, "");
  ASSERT_FALSE(chat);
  EXPECT_EQ(chat.error().fault, PromptFault::kChat);
  EXPECT_THAT(chat.error().error.message, HasSubstr("has no chat template"));
  // Clients do not learn where the server keeps its models.
  EXPECT_THAT(chat.error().error.message, Not(HasSubstr(directory.string())));

  std::ofstream(directory / "chat_template.jinja") << "{% if %}";
  ::testing::internal::CaptureStderr();
  const auto broken = load_served_model(directory.string(), "m", 1, demo_facts());
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("Chat requests will be refused: chat template chat_template.jinja, line 1"));
  ASSERT_TRUE(broken);
  PromptWorker broken_worker(*broken);
  const auto refused = broken_worker.from_chat({.messages_json = "[]"}, AddSpecialTokens::kNo, "");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().error.message,
              HasSubstr("chat template chat_template.jinja, line 1"));
  EXPECT_THAT(refused.error().error.message, Not(HasSubstr(directory.string())));
  std::filesystem::remove_all(directory);
}

TEST(PromptWorker, TextIsEncodedAsTheTokenizerDoes) {
  PromptWorker worker(demo());
  for (const AddSpecialTokens add : {AddSpecialTokens::kNo, AddSpecialTokens::kYes}) {
    const auto prompt = worker.from_text("the cat and the dog", add, "");
    ASSERT_TRUE(prompt);
    EXPECT_EQ(prompt->ids,
              *demo().tokenizer.encode("the cat and the dog", {.add_special_tokens = add}));
    EXPECT_THAT(prompt->block_hashes, SizeIs(prompt->ids.size() / 4));
  }
  const auto broken = worker.from_text("a\xFF", AddSpecialTokens::kNo, "");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().fault, PromptFault::kText);
  EXPECT_THAT(broken.error().error.message, HasSubstr("not valid UTF-8 at byte offset 1"));
}

TEST(PromptWorker, APromptBeyondTheContextMayBeShortened) {
  PromptWorker worker(demo());
  std::string text;
  for (int i = 0; i < 200; ++i) text += " the cat";
  ASSERT_FALSE(worker.from_text(text, AddSpecialTokens::kNo, ""));
  const auto whole = *demo().tokenizer.encode(text, {.add_special_tokens = AddSpecialTokens::kNo});
  const PromptTruncation left{10, TruncationSide::kLeft};
  const auto last = worker.from_text(text, AddSpecialTokens::kNo, "", {}, left);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->ids, std::vector<TokenId>(whole.end() - 10, whole.end()));
  EXPECT_THAT(last->block_hashes, SizeIs(2));
  const PromptTruncation right{10, TruncationSide::kRight};
  const auto first = worker.from_text(text, AddSpecialTokens::kNo, "", {}, right);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->ids, std::vector<TokenId>(whole.begin(), whole.begin() + 10));
  // A truncation to more than the context holds does not help.
  EXPECT_FALSE(worker.from_text(text, AddSpecialTokens::kNo, "", {}, {100, TruncationSide::kLeft}));
}

TEST(PromptWorker, ChatIsTheTemplatesTextWithItsSpecialTokens) {
  PromptWorker worker(demo());
  const auto prompt = worker.from_chat(
      {.messages_json = R"([{"role": "user", "content": "Hello"}])"}, AddSpecialTokens::kNo, "");
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->ids.front(), *demo().tokenizer.id_of("<|bos|>"));
  EXPECT_EQ(prompt->ids[1], *demo().tokenizer.id_of("<|user|>"));
  EXPECT_EQ(prompt->ids.back(), *demo().tokenizer.id_of("<|assistant|>"));
  const auto refused =
      worker.from_chat({.messages_json = R"([{"role": "x"}])"}, AddSpecialTokens::kNo, "");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().fault, PromptFault::kChat);
}

TEST(PromptWorker, ChecksIds) {
  PromptWorker worker(demo());
  EXPECT_THAT(worker.from_ids({5, 3071}, "")->ids, ElementsAre(5, 3071));
  for (const TokenId wrong : {-1, 3072}) {
    const auto prompt = worker.from_ids({5, 7, wrong}, "");
    ASSERT_FALSE(prompt);
    EXPECT_EQ(prompt.error().fault, PromptFault::kTokenIds);
    EXPECT_THAT(prompt.error().error.message,
                HasSubstr("token 2 of the prompt has id " + std::to_string(wrong)));
  }
  const auto empty = worker.from_ids({}, "");
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().fault, PromptFault::kEmpty);
  EXPECT_EQ(worker.from_text("", AddSpecialTokens::kNo, "").error().fault, PromptFault::kEmpty);
}

TEST(PromptWorker, ContextLengthIsRecognisable) {
  PromptWorker worker(demo());
  EXPECT_TRUE(worker.from_ids(std::vector<TokenId>(63, 5), ""));
  const auto prompt = worker.from_ids(std::vector<TokenId>(64, 5), "");
  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().fault, PromptFault::kContextLength);
  EXPECT_THAT(prompt.error().error.message,
              HasSubstr("maximum context length is 64 tokens, and the prompt has 64"));
}

TEST(PromptWorker, TooLongTextIsRefusedEarly) {
  PromptWorker worker(demo());
  std::string text;
  for (int i = 0; i < 100; ++i) text += " cat";
  const std::string chat = R"([{"role":"user","content":")" + text + R"("}])";
  int asked = 0;
  const StopCheck count = [&]() -> Status { return ++asked, Status(); };
  for (const std::size_t bytes : {text.size(), std::size_t{64} << 20}) {
    text.resize(bytes, 'x');
    const auto prompt = worker.from_text(text, AddSpecialTokens::kNo, "", count);
    ASSERT_FALSE(prompt);
    EXPECT_EQ(prompt.error().fault, PromptFault::kContextLength);
    EXPECT_EQ(prompt.error().error.code, ErrorCode::kContextLength);
    EXPECT_THAT(prompt.error().error.message,
                HasSubstr("maximum context length is 64 tokens, and the prompt has at least 64;"));
  }
  EXPECT_EQ(asked, 0);
  const auto prompt = worker.from_chat({.messages_json = chat}, AddSpecialTokens::kNo, "");
  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().fault, PromptFault::kContextLength);
}

TEST(PromptWorker, TheStopCheckEndsTheWork) {
  PromptWorker worker(demo());
  const StopCheck stop = []() -> Status { return Error{ErrorCode::kCancelled, "client left"}; };
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += " cat";
  const auto ids = worker.tokenize_text(text, AddSpecialTokens::kNo, stop);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().fault, PromptFault::kStopped);
  EXPECT_EQ(ids.error().error.code, ErrorCode::kCancelled);
  EXPECT_EQ(ids.error().error.message, "client left");
  std::string chat = "[";
  for (int i = 0; i < 50'000; ++i) chat += R"({"role":"user","content":"x"},)";
  chat.back() = ']';
  const auto prompt = worker.from_chat({.messages_json = chat}, AddSpecialTokens::kNo, "", stop);
  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().fault, PromptFault::kStopped);
  EXPECT_EQ(prompt.error().error.message, "client left");
}

TEST(PromptWorker, TokenizeHasNoLimit) {
  PromptWorker worker(demo());
  EXPECT_THAT(*worker.tokenize_text("", AddSpecialTokens::kNo), IsEmpty());
  std::string text;
  for (int i = 0; i < 100; ++i) text += " cat";
  EXPECT_GT(worker.tokenize_text(text, AddSpecialTokens::kNo)->size(), 64U);
}

TEST(PromptWorker, BlocksAreNamedUnderTheTenantsSalt) {
  PromptWorker worker(demo());
  const std::vector<TokenId> ids{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto open = worker.from_ids(ids, "");
  const auto salted = worker.from_ids(ids, tenant_salt("alice", ""));
  const auto open_again = worker.from_ids(ids, "");
  ASSERT_TRUE(open && salted && open_again);
  EXPECT_EQ(open->block_hash_root, block_hash_root(demo().kv_identity));
  EXPECT_EQ(open->block_hashes, BlockHasher(open->block_hash_root, 4).hash_prompt(ids));
  EXPECT_THAT(open->block_hashes, SizeIs(2));
  EXPECT_EQ(open_again->block_hashes, open->block_hashes);
  KvIdentity alice = demo().kv_identity;
  alice.tenant_salt = tenant_salt("alice", "");
  EXPECT_EQ(salted->block_hash_root, block_hash_root(alice));
  EXPECT_NE(salted->block_hashes[0], open->block_hashes[0]);
}

TEST(TenantSalt, IsUnambiguous) {
  EXPECT_EQ(tenant_salt("", ""), "");
  EXPECT_EQ(tenant_salt("alice", ""), "key:5:alice");
  EXPECT_EQ(tenant_salt("", "abc"), "salt:3:abc");
  EXPECT_EQ(tenant_salt("alice", "abc"), "key:5:alicesalt:3:abc");
  // A name that looks like a part of a salt does not give another tenant's salt.
  const std::set<std::string> salts{tenant_salt("a", "b"), tenant_salt("asalt:1:b", ""),
                                    tenant_salt("", "b"),  tenant_salt("", "key:1:asalt:1:b"),
                                    tenant_salt("a", ""),  tenant_salt("b", "a"),
                                    tenant_salt("ab", ""), tenant_salt("", "ab")};
  EXPECT_THAT(salts, SizeIs(8));
}

TEST(PromptWorker, WorkersShareAModel) {
  const std::string text = "the cat and the dog walked home";
  const auto expected = PromptWorker(demo()).from_text(text, AddSpecialTokens::kYes, "s");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      PromptWorker worker(demo());
      for (int i = 0; i < 50; ++i) {
        const auto prompt = worker.from_text(text, AddSpecialTokens::kYes, "s");
        ASSERT_TRUE(prompt);
        EXPECT_EQ(prompt->ids, expected->ids);
        EXPECT_EQ(prompt->block_hashes, expected->block_hashes);
        EXPECT_TRUE(worker.from_chat({.messages_json = R"([{"role":"user","content":"hi"}])"},
                                     AddSpecialTokens::kNo, ""));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Two tenants share the blocks that a warm prompt has, and nothing behind them.
TEST(PromptWorker, WarmBlocksHaveTheOperatorsNames) {
  ServedModel model = *load_served_model("models/demo", "demo", 1, demo_facts());
  std::vector<TokenId> ids;
  for (TokenId id = 10; id < 30; ++id) ids.push_back(id);
  const Hash128 root = block_hash_root(model.kv_identity);
  const auto warm = BlockHasher(root, 4).hash_prompt(std::span(ids).first(12));
  auto sorted = warm;
  std::ranges::sort(sorted);
  model.warm_names->set(sorted);
  PromptWorker worker(model);
  const std::string alice = tenant_salt("alice", "");
  const auto of_alice = worker.from_ids(ids, alice);
  const auto of_bob = worker.from_ids(ids, tenant_salt("bob", ""));
  ASSERT_TRUE(of_alice && of_bob);
  ASSERT_THAT(of_alice->block_hashes, SizeIs(5));
  for (std::size_t b = 0; b < 3; ++b) {
    EXPECT_EQ(of_alice->block_hashes[b], warm[b]);
    EXPECT_EQ(of_bob->block_hashes[b], warm[b]);
  }
  for (std::size_t b = 3; b < 5; ++b) {
    EXPECT_NE(of_alice->block_hashes[b], of_bob->block_hashes[b]);
  }
  EXPECT_NE(of_alice->block_hash_root, root);
  // A prompt that leaves the warm one early shares only the blocks before.
  ids[5] = 99;
  const auto other = worker.from_ids(ids, alice);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->block_hashes[0], warm[0]);
  EXPECT_NE(other->block_hashes[1], of_alice->block_hashes[1]);
  EXPECT_NE(other->block_hashes[2], warm[2]);
  // Equal blocks behind other ones are not the warm prompt's.
  const auto shifted = worker.from_ids({ids.begin() + 8, ids.end()}, alice);
  ASSERT_TRUE(shifted);
  EXPECT_NE(shifted->block_hashes[0], warm[2]);
}

}  // namespace
}  // namespace sluice
