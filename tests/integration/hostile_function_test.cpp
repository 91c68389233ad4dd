// Functions with arbitrary code: frames that lie end the process that sends them and no other, and
// no attack on the memory of backbone, manifest, adapter or turns succeeds.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "adapter/adapter_store.h"
#include "backbone/backbone.h"
#include "function/probe_sandbox.h"
#include "function/process_engine_loop.h"
#include "tests/support/adapter_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/function_fixture.h"
#include "tests/support/letter_vocabulary.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using test::FunctionClient;

class HostileFunctionTest : public test::FunctionFixture {
 protected:
  ProcessEngineLoop::Options hostile(const std::string& kind) const {
    ProcessEngineLoop::Options made = options();
    made.command = {SLUICE_LYING_FUNCTION, kind};
    return made;
  }
};

class LyingFunctionTest : public HostileFunctionTest,
                          public testing::WithParamInterface<std::string> {};

TEST_P(LyingFunctionTest, EndsAloneAndItsCallsWithAnError) {
  FunctionClient liar(backbone_, *turns_, hostile(GetParam()));
  FunctionClient sibling(backbone_, *turns_, options());
  ASSERT_TRUE(liar.wait_until_ready() && sibling.wait_until_ready());
  ASSERT_FALSE(liar.loop().failure()) << liar.loop().failure()->message;
  const Request request = test::greedy_request(1, {3, 1, 4, 1, 5}, 20);
  ASSERT_TRUE(sibling.loop().submit(request));
  ASSERT_TRUE(liar.loop().submit(request));
  const auto answer = liar.wait_for_answer(1);
  EXPECT_EQ(answer.reason, FinishReason::kError);
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_EQ(sibling.wait_for_answer(1).tokens, expected(request));
  EXPECT_EQ(liar.loop().unfinished_requests(), 0);
}

INSTANTIATE_TEST_SUITE_P(Lies, LyingFunctionTest,
                         testing::Values("another_request", "no_vocabulary", "negative_token",
                                         "too_many_tokens", "another_choice", "tokens_elsewhere",
                                         "ends_twice", "unasked_logprobs", "endless_frame",
                                         "empty_frame", "noise", "another_version", "stopped",
                                         "closes"),
                         [](const auto& lie) { return lie.param; });

// Answers that leave the grammar are lies like any other.
class GrammarLieTest : public LyingFunctionTest {};

TEST_P(GrammarLieTest, EndsAloneAndItsCallsWithAnError) {
  FunctionClient liar(backbone_, *turns_, hostile(GetParam()));
  FunctionClient sibling(backbone_, *turns_, options());
  ASSERT_TRUE(liar.wait_until_ready() && sibling.wait_until_ready());
  Request request = test::greedy_request(1, {3, 1, 4, 1, 5}, 20);
  request.sampling.ignore_eos = false;
  request.sampling.grammar =
      test::letter_grammar("a[c-z]{4}", test::letter_vocabulary(options().vocab_size));
  ASSERT_TRUE(sibling.loop().submit(request));
  ASSERT_TRUE(liar.loop().submit(request));
  EXPECT_EQ(liar.wait_for_answer(1).reason, FinishReason::kError);
  EXPECT_EQ(sibling.wait_for_answer(1).tokens, expected(request));
  EXPECT_EQ(liar.loop().unfinished_requests(), 0);
}

INSTANTIATE_TEST_SUITE_P(Lies, GrammarLieTest,
                         testing::Values("outside_of_grammar", "stops_inside_of_grammar",
                                         "ends_inside_of_grammar"),
                         [](const auto& lie) { return lie.param; });

TEST_F(HostileFunctionTest, CannotChangeTheMemoryThatItReads) {
  const TempDirectory poet;
  const ModelConfig config = *parse_model_config(open_backbone(backbone_)->config);
  write_random_adapter(poet.path(), config, 4, 1);
  AdapterStore sealed(config, {DType::kF32, 8}, AdapterPlace::kSealed);
  ProcessEngineLoop::Options made = hostile("memory");
  made.adapter = (*sealed.load("poet", poet.path()))->content;
  FunctionClient client(backbone_, *turns_, made);
  ASSERT_TRUE(client.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  Request request = test::greedy_request(1, {3, 1, 4}, 2);
  request.adapter = made.adapter->index;
  ASSERT_TRUE(client.loop().submit(request));
  // None of 45 attacks: nine on each of five memories.
  EXPECT_EQ(client.wait_for_answer(1).tokens, (std::vector<TokenId>{0, 45}));
  // Their bytes are what they were.
  ThreadPool pool(1);
  const auto device = make_cpu_device({&pool, 0, {}});
  EXPECT_TRUE(verify_backbone(backbone_, *open_backbone(backbone_), **device));
}

// A function takes memory, tasks or descriptors without end, as far as its limits let it.
class GreedyResourceTest : public LyingFunctionTest {};

TEST_P(GreedyResourceTest, EndsAloneAndStartsAgainAfterAPause) {
  if (kSanitized && std::string(GetParam()) == "takes_memory") {
    GTEST_SKIP() << "sanitizers reserve terabytes of addresses";
  }
  ProcessEngineLoop::Options greedy = hostile(GetParam());
  greedy.first_pause = std::chrono::milliseconds(150);
  greedy.longest_pause = std::chrono::hours(1);  // so that no process counts as a long one
  greedy.sandbox.max_tasks = 32;
  constexpr TokenId kMemoryMiB = 64;
  if (!kSanitized) greedy.sandbox.memory_bytes = std::uint64_t{kMemoryMiB} << 20;
  const auto layers = probe_sandbox({SLUICE_FUNCTION_CHILD}, greedy.sandbox);
  ASSERT_TRUE(layers) << layers.error().message;
  const std::map<std::string, TokenId> limits = {
      {"takes_memory", kMemoryMiB},
      {"takes_tasks", layers->active(Layer::kTaskLimit) ? 32 : 1000},  // never two each time
      {"takes_descriptors", 64}};

  FunctionClient client(backbone_, *turns_, greedy);
  FunctionClient sibling(backbone_, *turns_, options());
  ASSERT_TRUE(client.wait_until_ready() && sibling.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  Duration pause = greedy.first_pause;
  for (RequestId id = 1; id <= 2; ++id, pause *= 2) {
    const pid_t process = *client.loop().ready_process();
    const TimePoint before_death = clock_.now();
    const Request request = test::greedy_request(id, {3, 1, 4, 1, 5}, 20);
    ASSERT_TRUE(sibling.loop().submit(request));
    ASSERT_TRUE(client.loop().submit(request));
    const auto answer = client.wait_for_answer(id);
    EXPECT_EQ(answer.reason, FinishReason::kError);
    for (const TokenId taken : answer.tokens) EXPECT_LE(taken, limits.at(GetParam()));
    EXPECT_EQ(sibling.wait_for_answer(id).tokens, expected(request));
    ASSERT_TRUE(client.wait_for([&] {
      const auto next = client.loop().ready_process();
      return next && *next != process;
    }));
    EXPECT_GE(clock_.now() - before_death, pause);
  }
}

INSTANTIATE_TEST_SUITE_P(Resources, GreedyResourceTest,
                         testing::Values("takes_memory", "takes_tasks", "takes_descriptors"),
                         [](const auto& resource) { return resource.param; });

// A process that ignores its KV limit, and one that shows every limit and takes memory all the
// same.
class KvLimitLieTest : public LyingFunctionTest {};

TEST_P(KvLimitLieTest, EndsAloneAndItsMemoryIsFree) {
  if (kSanitized && GetParam() == "hides_memory") {
    GTEST_SKIP() << "a sanitizer's memory is its own";
  }
  ProcessEngineLoop::Options liar = hostile(GetParam());
  liar.kv_block_bytes = 4096;
  liar.start.kv_least = 4 * liar.kv_block_bytes;
  liar.memory_beside_kv = kSanitized ? 0 : std::int64_t{32} << 20;
  liar.kv_limit_time = std::chrono::milliseconds(300);
  FunctionClient client(backbone_, *turns_, liar);
  FunctionClient sibling(backbone_, *turns_, options());
  ASSERT_TRUE(client.wait_until_ready() && sibling.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  const pid_t process = *client.loop().ready_process();
  client.loop().limit_kv(8 * liar.kv_block_bytes);
  ASSERT_TRUE(client.wait_for([&] {
    const auto now = client.loop().ready_process();
    return now && *now != process;
  }));
  EXPECT_NE(kill(process, 0), 0);
  EXPECT_EQ(client.loop().kv().limit, liar.start.kv_least);
  const Request request = test::greedy_request(1, {3, 1, 4, 1, 5}, 20);
  ASSERT_TRUE(sibling.loop().submit(request));
  EXPECT_EQ(sibling.wait_for_answer(1).tokens, expected(request));
}

INSTANTIATE_TEST_SUITE_P(Lies, KvLimitLieTest, testing::Values("ignores_limit", "hides_memory"),
                         [](const auto& lie) { return lie.param; });

// The attacks on memory and the lies again, by an ordinary user: this program begins anew as one.
TEST_F(HostileFunctionTest, NorCanThatOfAnOrdinaryUser) {
  if (geteuid() != 0) GTEST_SKIP() << "the other cases ran as an ordinary user";
  constexpr uid_t kOrdinary = 65534;
  constexpr int kCannotRun = 77;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const pid_t child = fork();
  if (child == 0) {
    if (setgroups(0, nullptr) != 0 || setresgid(kOrdinary, kOrdinary, kOrdinary) != 0 ||
        setresuid(kOrdinary, kOrdinary, kOrdinary) != 0) {
      _exit(kCannotRun);
    }
    const bool reads = access(program.c_str(), X_OK) == 0 &&
                       access(SLUICE_LYING_FUNCTION, X_OK) == 0 &&
                       access("tests/golden/models/qwen3-tied/case.json", R_OK) == 0;
    if (!reads) _exit(kCannotRun);
    unsetenv("GTEST_OUTPUT");
    execl(program.c_str(), program.c_str(), "--gtest_brief=1",
          "--gtest_filter=HostileFunctionTest.CannotChange*:Lies/*:Resources/*", nullptr);
    _exit(kCannotRun);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotRun) {
    GTEST_SKIP() << "uid 65534 may not read " << program << " or the tests' files";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace sluice
