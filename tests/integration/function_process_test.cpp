// Functions in processes of their own: the bits of an engine in this process, the sandbox as /proc
// shows it, and deaths that end only their own calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "adapter/adapter_store.h"
#include "backbone/backbone.h"
#include "function/probe_sandbox.h"
#include "function/process_engine_loop.h"
#include "function/warm_workers.h"
#include "tests/golden/golden_case.h"
#include "tests/support/adapter_files.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/function_fixture.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using test::FunctionClient;
using testing::HasSubstr;
using FunctionProcessTest = test::FunctionFixture;
constexpr Duration kShort = std::chrono::milliseconds(100);

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_F(FunctionProcessTest, AnswersAsAnEngineHereInsideOfTheSandbox) {
  const Request request = test::greedy_request(1, {1, 2, 3, 4, 5, 6, 7}, 12);
  FunctionClient first(backbone_, *turns_, options());
  FunctionClient second(backbone_, *turns_, options());
  ASSERT_TRUE(first.wait_until_ready() && second.wait_until_ready());
  ASSERT_FALSE(first.loop().failure()) << first.loop().failure()->message;
  ASSERT_TRUE(first.loop().submit(request));
  ASSERT_TRUE(second.loop().submit(request));
  EXPECT_EQ(first.wait_for_answer(1).tokens, expected(request));
  EXPECT_EQ(second.wait_for_answer(1).tokens, expected(request));

  struct stat memory{};
  ASSERT_EQ(fstat(backbone_.memory.front().get(), &memory), 0);
  for (FunctionClient* client : {&first, &second}) {
    const std::string folder = "/proc/" + std::to_string(*client->loop().ready_process());
    const std::string status = read_text(folder + "/status");
    EXPECT_THAT(status, HasSubstr("Seccomp:\t2"));
    EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
    const std::string maps = read_text(folder + "/maps");
    if (maps.empty()) continue;  // an ordinary user may not look into it
    EXPECT_THAT(maps, HasSubstr(" " + std::to_string(memory.st_ino) + " "));
    EXPECT_THAT(maps, HasSubstr("r--s 00000000"));
  }
}

// 500 functions fit in 4 GB if each has less than 8 MiB. Large pages alone would take 6 MiB.
TEST_F(FunctionProcessTest, ASmallModelTakesLittleMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  FunctionClient client(backbone_, *turns_, options());
  ASSERT_TRUE(client.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  for (RequestId id = 1; id <= 3; ++id) {
    ASSERT_TRUE(client.loop().submit(test::greedy_request(id, {1, 2, 3, 4, 5, 6, 7}, 12)));
    EXPECT_EQ(client.wait_for_answer(id).tokens.size(), 12U);
  }
  EXPECT_GT(client.loop().use().own_bytes, 0);
  EXPECT_LT(client.loop().use().own_bytes, 5 << 20);
}

bool same_bits(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token &&
         std::bit_cast<std::uint32_t>(a.logprob) == std::bit_cast<std::uint32_t>(b.logprob);
}

// Two keys with one adapter, two choices each, and log-probabilities: the bits of an engine here.
void expect_bits(FunctionClient& client, const test::Results& expected, RequestId id) {
  for (std::int32_t choice = 0; choice < 2; ++choice) {
    const auto answer = client.wait_for_answer(id, choice);
    const test::ChoiceResult& wanted = expected.at({id, choice});
    EXPECT_EQ(answer.tokens, wanted.tokens);
    EXPECT_GE(wanted.logprobs.size(), 4 * wanted.tokens.size());
    EXPECT_TRUE(std::ranges::equal(answer.logprobs, wanted.logprobs, same_bits));
  }
}

struct Weights {
  const char* model;
  std::optional<DType> dtype;
};

class FunctionWeightsTest : public test::FunctionFixture,
                            public testing::WithParamInterface<Weights> {};

TEST_P(FunctionWeightsTest, TwoKeysWithAnAdapterGetTheBitsOfAnEngineHere) {
  const TempDirectory model;
  const TempDirectory poet;
  write_golden_checkpoint(read_golden_case("tests/golden/models", GetParam().model), model.path());
  EngineOptions with_dtype = engine_options();
  with_dtype.dtype = GetParam().dtype;
  ThreadPool pool(1);
  const auto device = make_cpu_device({&pool, 0, {}});
  const Backbone backbone = *read_only(*make_backbone(model.path(), with_dtype, **device, pool));
  const ModelConfig config = *parse_model_config(open_backbone(backbone)->config);
  write_random_adapter(poet.path(), config, 4, 1);
  EngineOptions with_adapter = with_dtype;
  with_adapter.adapters.sources = {{"poet", poet.path()}};

  std::vector<float> first_logprobs;
  for (const RequestId base : {0, 10}) {  // the adapter, then the base model
    test::EngineFixture engine(model.path(), with_adapter, 1);
    const SharedAdapters plain = engine.loaded().adapters;
    AdapterStore sealed(config, plain->format(), AdapterPlace::kSealed);
    const auto loaded = sealed.load("poet", poet.path());
    ASSERT_TRUE(loaded) << loaded.error().message;
    const SharedContent content = base == 0 ? (*loaded)->content : nullptr;
    std::vector<Request> requests;
    for (const RequestId id : {base + 1, base + 2}) {
      Request request = test::greedy_request(id, {}, 20);
      for (TokenId token = 1; token <= 20; ++token) request.prompt.push_back(token);
      request.sampling.temperature = 0.8F;
      request.sampling.seed = id - base;
      request.sampling.n = 2;
      request.sampling.logprobs = 3;
      request.adapter = content ? plain->find("poet")->content->index : -1;
      engine.add(request);
      request.adapter = content ? content->index : -1;
      requests.push_back(std::move(request));
    }
    const test::Results expected = engine.run_to_end();
    first_logprobs.push_back(expected.at({base + 1, 0}).logprobs.at(0).logprob);
    for (const int threads : {1, 2}) {
      ProcessEngineLoop::Options of_model = options();
      of_model.vocab_size = config.vocab_size;
      of_model.eos_ids = config.eos_tokens;
      of_model.start.threads = threads;
      of_model.adapter = content;
      FunctionClient alice(backbone, *turns_, of_model);
      FunctionClient bob(backbone, *turns_, of_model);
      alice.loop().set_tenant("alice");
      bob.loop().set_tenant("bob");
      for (FunctionClient* client : {&alice, &bob}) {
        ASSERT_TRUE(client->wait_until_ready());
        ASSERT_FALSE(client->loop().failure()) << client->loop().failure()->message;
      }
      ASSERT_TRUE(alice.loop().submit(requests[0]));
      ASSERT_TRUE(bob.loop().submit(requests[1]));
      expect_bits(alice, expected, requests[0].id);
      expect_bits(bob, expected, requests[1].id);
    }
  }
  EXPECT_NE(first_logprobs[0], first_logprobs[1]);
}

INSTANTIATE_TEST_SUITE_P(
    Models, FunctionWeightsTest,
    testing::Values(Weights{"mistral-window", std::nullopt}, Weights{"qwen3-tied", DType::kF8E4M3},
                    Weights{"qwen3-tied", DType::kI8}, Weights{"qwen3-tied", DType::kI4}),
    [](const auto& one) {
      return std::string(one.param.dtype ? dtype_name(*one.param.dtype) : "window");
    });

// The inodes of the memory that a process has open or mapped; empty if an ordinary user may not
// look.
std::set<ino_t> inodes_of(pid_t process) {
  std::set<ino_t> inodes;
  const std::string folder = "/proc/" + std::to_string(process);
  std::error_code refused;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd", refused)) {
    struct stat status{};
    if (stat(entry.path().c_str(), &status) == 0) inodes.insert(status.st_ino);
  }
  std::istringstream maps(read_text(folder + "/maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:sluice-adapter") == std::string::npos) continue;
    EXPECT_THAT(line, HasSubstr(" r--s "));
    std::istringstream fields(line);
    std::string skipped;
    ino_t inode = 0;
    fields >> skipped >> skipped >> skipped >> skipped >> inode;
    inodes.insert(inode);
  }
  return inodes;
}

TEST_F(FunctionProcessTest, EachComputesItsAdapterInPlaceAndHasNoOther) {
  const TempDirectory poet;
  const TempDirectory pirate;
  EngineOptions with_adapters = engine_options();
  with_adapters.adapters.sources = {{"poet", poet.path()}, {"pirate", pirate.path()}};
  const ModelConfig config = *parse_model_config(open_backbone(backbone_)->config);
  write_random_adapter(poet.path(), config, 4, 1);
  write_random_adapter(pirate.path(), config, 2, 2);
  test::EngineFixture engine(model_.path(), with_adapters, 1);
  const SharedAdapters plain = engine.loaded().adapters;
  AdapterStore sealed(config, plain->format(), AdapterPlace::kSealed);

  struct Case {
    std::string name;
    SharedContent content;
    std::unique_ptr<FunctionClient> client;
    ino_t inode = 0;
  };
  std::vector<Case> cases;
  for (const AdapterSettings::Source& source : with_adapters.adapters.sources) {
    const auto loaded = sealed.load(source.name, source.text);
    ASSERT_TRUE(loaded) << loaded.error().message;
    ProcessEngineLoop::Options with_adapter = options();
    with_adapter.adapter = (*loaded)->content;
    struct stat memory{};
    ASSERT_EQ(fstat(with_adapter.adapter->memory.get(), &memory), 0);
    cases.push_back({source.name, with_adapter.adapter,
                     std::make_unique<FunctionClient>(backbone_, *turns_, with_adapter),
                     memory.st_ino});
  }
  cases.push_back(
      {"", nullptr, std::make_unique<FunctionClient>(backbone_, *turns_, options()), 0});

  std::set<std::vector<TokenId>> answers;
  RequestId id = 0;
  for (Case& one : cases) {
    ASSERT_TRUE(one.client->wait_until_ready());
    ASSERT_FALSE(one.client->loop().failure()) << one.client->loop().failure()->message;
    Request request = test::greedy_request(++id, {3, 1, 4, 1, 5, 9, 2, 6}, 12);
    request.adapter = one.content ? one.content->index : -1;
    ASSERT_TRUE(one.client->loop().submit(request));
    if (one.content) request.adapter = plain->find(one.name)->content->index;
    engine.add(request);
    const auto tokens = engine.run_to_end()[{id, 0}].tokens;
    EXPECT_EQ(one.client->wait_for_answer(id).tokens, tokens) << one.name;
    answers.insert(tokens);
    const auto inodes = inodes_of(*one.client->loop().ready_process());
    if (inodes.empty()) continue;
    for (const Case& other : cases) {
      if (other.inode == 0) continue;
      EXPECT_EQ(inodes.contains(other.inode), &other == &one);
    }
  }
  EXPECT_EQ(answers.size(), cases.size());
}

TEST_F(FunctionProcessTest, AWarmWorkerIsGivenAwayOnceAndComputesAsAnyOther) {
  const TempDirectory poet;
  const ModelConfig config = *parse_model_config(open_backbone(backbone_)->config);
  write_random_adapter(poet.path(), config, 4, 1);
  EngineOptions with_adapter = engine_options();
  with_adapter.adapters.sources = {{"poet", poet.path()}};
  with_adapter.adapters.max_rank = 8;  // larger than the adapter's
  test::EngineFixture engine(model_.path(), with_adapter, 1);
  const AdapterFormat format = engine.loaded().adapters->format();
  AdapterStore sealed(config, format, AdapterPlace::kSealed);
  const SharedContent content = (*sealed.load("poet", poet.path()))->content;

  WarmWorkers workers(1, [&](Duration pause, std::function<void()> wake) {
    ProcessEngineLoop::Options warm = options();
    warm.start_after = pause;
    warm.start.lora_rank = format.max_rank;
    warm.start.touch = true;
    auto made = std::make_unique<ProcessEngineLoop>(std::move(warm), backbone_, *turns_, clock_,
                                                    std::move(wake));
    made->start();
    return made;
  });
  EXPECT_EQ(workers.take(), nullptr);  // not started
  const Status started = workers.start();
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_EQ(workers.count_ready(), 1);
  std::unique_ptr<ProcessEngineLoop> taken = workers.take();
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(workers.take(), nullptr);  // the next one has only begun to start
  const pid_t process = *taken->ready_process();

  FunctionClient client(std::move(taken), content);
  Request request = test::greedy_request(1, {3, 1, 4, 1, 5, 9, 2, 6}, 12);
  request.adapter = content->index;
  ASSERT_TRUE(client.loop().submit(request));
  request.adapter = engine.loaded().adapters->find("poet")->content->index;
  engine.add(request);
  const auto tokens = engine.run_to_end()[{1, 0}].tokens;
  EXPECT_EQ(client.wait_for_answer(1).tokens, tokens);
  EXPECT_EQ(*client.loop().ready_process(), process);

  // The process after it is of the same adapter.
  ASSERT_EQ(kill(process, SIGKILL), 0);
  ASSERT_TRUE(client.wait_for([&] {
    const auto next = client.loop().ready_process();
    return next && *next != process;
  }));
  request.id = 2;
  request.adapter = content->index;
  ASSERT_TRUE(client.loop().submit(request));
  EXPECT_EQ(client.wait_for_answer(2).tokens, tokens);

  // The worker that came in its place computes the base model.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (workers.count_ready() == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  FunctionClient base(workers.take(), nullptr);
  const Request plain = test::greedy_request(3, {2, 7, 1, 8}, 5);
  ASSERT_TRUE(base.loop().submit(plain));
  EXPECT_EQ(base.wait_for_answer(3).tokens, expected(plain));
  workers.clear();
  EXPECT_EQ(workers.take(), nullptr);
}

TEST_F(FunctionProcessTest, ALimitOfKvMemoryHoldsAtRunTimeAndInTheNextProcess) {
  FunctionClient client(backbone_, *turns_, options());
  ASSERT_TRUE(client.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  const auto ask = [&](RequestId id) {
    // Nineteen tokens, and a block has sixteen.
    const Request request = test::greedy_request(id, {1, 2, 3, 4, 5, 6, 7}, 12);
    EXPECT_TRUE(client.loop().submit(request));
    return client.wait_for_answer(id);
  };
  const auto all = ask(1).tokens;
  EXPECT_EQ(all, expected(test::greedy_request(1, {1, 2, 3, 4, 5, 6, 7}, 12)));
  client.loop().limit_kv(1);  // room for one block
  const auto refused = ask(2).refusal;
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kResourceExhausted);
  const pid_t process = *client.loop().ready_process();
  ASSERT_EQ(kill(process, SIGKILL), 0);
  ASSERT_TRUE(client.wait_for([&] {
    const auto next = client.loop().ready_process();
    return next && *next != process;
  }));
  EXPECT_TRUE(ask(3).refusal);
  client.loop().limit_kv(0);
  EXPECT_EQ(ask(4).tokens, all);
}

// KV memory that moves: an idle process shows each limit, requests have to fit the least, and a
// process that dies holds nothing and leaves the least to the next one.
TEST_F(FunctionProcessTest, AProcessShowsItsLimitsAndGivesMemoryBackWithItsDeath) {
  test::EngineFixture probe(model_.path(), engine_options(), 1);
  const auto block = static_cast<std::int64_t>(probe.engine().kv_block_bytes());
  ProcessEngineLoop::Options made = options();
  made.kv_block_bytes = block;
  made.start.kv_least = 3 * block;
  made.start.kv_bytes = 8 * block;
  made.memory_beside_kv = kSanitized ? 0 : std::int64_t{1} << 30;
  FunctionClient client(backbone_, *turns_, made);
  ASSERT_TRUE(client.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  EXPECT_EQ(client.loop().kv().limit, 3 * block);
  EXPECT_EQ(client.loop().kv().held, 3 * block);
  const auto ask = [&](RequestId id, std::int32_t tokens) {
    EXPECT_TRUE(client.loop().submit(test::greedy_request(id, {1, 2, 3, 4, 5, 6, 7}, tokens)));
    return client.wait_for_answer(id);
  };
  EXPECT_TRUE(ask(1, 40).refusal);  // three blocks, and it has two beside the null block
  const auto tokens = ask(2, 12).tokens;
  EXPECT_EQ(tokens, expected(test::greedy_request(2, {1, 2, 3, 4, 5, 6, 7}, 12)));
  for (const std::int64_t blocks : {8, 4, 6, 3}) {
    client.loop().limit_kv(blocks * block);
    EXPECT_EQ(client.loop().kv().limit, blocks * block);
    ASSERT_TRUE(client.wait_for([&] { return client.loop().kv().held <= blocks * block; }));
  }
  EXPECT_EQ(ask(3, 12).tokens, tokens);
  client.loop().limit_kv(8 * block);
  const pid_t process = *client.loop().ready_process();
  ASSERT_EQ(kill(process, SIGKILL), 0);
  ASSERT_TRUE(client.wait_for([&] {
    const auto next = client.loop().ready_process();
    return next && *next != process;
  }));
  EXPECT_EQ(client.loop().kv().limit, 3 * block);
  EXPECT_LE(client.loop().kv().held, 3 * block);
  EXPECT_EQ(ask(4, 12).tokens, tokens);
}

TEST_F(FunctionProcessTest, WarmWorkersTellWhyNoFunctionCanRun) {
  WarmWorkers workers(0, [&](Duration, std::function<void()> wake) {
    ProcessEngineLoop::Options strict = options();
    strict.best_effort = false;
    strict.sandbox.without = {Layer::kTaskLimit};
    auto made = std::make_unique<ProcessEngineLoop>(std::move(strict), backbone_, *turns_, clock_,
                                                    std::move(wake));
    made->start();
    return made;
  });
  const Status started = workers.start();
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("task limit"));
}

TEST_F(FunctionProcessTest, ADeathEndsItsCallsAloneAndTheNextCallIsAnswered) {
  FunctionClient victim(backbone_, *turns_, options());
  FunctionClient sibling(backbone_, *turns_, options());
  ASSERT_TRUE(victim.wait_until_ready() && sibling.wait_until_ready());
  ASSERT_FALSE(victim.loop().failure()) << victim.loop().failure()->message;
  const pid_t killed = *victim.loop().ready_process();
  // Stopped first, so that the call is still running when the process dies.
  ASSERT_EQ(kill(killed, SIGSTOP), 0);
  const Request request = test::greedy_request(1, {3, 1, 4, 1, 5}, 20);
  ASSERT_TRUE(victim.loop().submit(request));
  ASSERT_TRUE(sibling.loop().submit(request));
  ASSERT_EQ(kill(killed, SIGKILL), 0);
  EXPECT_EQ(victim.wait_for_answer(1).reason, FinishReason::kError);
  EXPECT_EQ(sibling.wait_for_answer(1).tokens, expected(request));

  const Request next = test::greedy_request(2, {2, 7, 1, 8}, 5);
  ASSERT_TRUE(victim.loop().submit(next));
  EXPECT_EQ(victim.wait_for_answer(2).tokens, expected(next));
  EXPECT_NE(*victim.loop().ready_process(), killed);
  EXPECT_EQ(victim.loop().unfinished_requests(), 0);
}

TEST_F(FunctionProcessTest, SilenceEndsTheProcess) {
  ProcessEngineLoop::Options impatient = options();
  impatient.hang_limit = kShort;
  FunctionClient client(backbone_, *turns_, impatient);
  ASSERT_TRUE(client.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  ASSERT_EQ(kill(*client.loop().ready_process(), SIGSTOP), 0);
  ASSERT_TRUE(client.loop().submit(test::greedy_request(1, {1, 2}, 3)));
  EXPECT_EQ(client.wait_for_answer(1).reason, FinishReason::kError);
}

TEST_F(FunctionProcessTest, WaitingForATurnIsNoSilence) {
  ProcessEngineLoop::Options impatient = options();
  impatient.hang_limit = kShort;
  FunctionClient client(backbone_, *turns_, impatient);
  ASSERT_TRUE(client.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  const pid_t process = *client.loop().ready_process();
  const Request request = test::greedy_request(1, {1, 2}, 3);
  {
    // Another function has the only turn; as it has no process, no limit holds.
    const auto other = *turns_->add("other");
    const auto grant = *map_grant(other->pages().grant_fd());
    const auto ask = *map_request(other->pages().request_fd());
    ask->word.store(turn_word(0, true));
    const std::uint64_t one = 1;
    ASSERT_EQ(write(other->pages().bell_fd(), &one, sizeof(one)), std::int64_t{sizeof(one)});
    while (grant->turn.load() != turn_word(1, true)) std::this_thread::yield();
    ASSERT_TRUE(client.loop().submit(request));
    std::this_thread::sleep_for(4 * kShort);
  }
  EXPECT_EQ(client.wait_for_answer(1).tokens, expected(request));
  EXPECT_EQ(*client.loop().ready_process(), process);
}

TEST_F(FunctionProcessTest, NoProcessIsLeftAfterTheStop) {
  pid_t process = 0;
  {
    FunctionClient client(backbone_, *turns_, options());
    ASSERT_TRUE(client.wait_until_ready());
    ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
    process = *client.loop().ready_process();
  }
  EXPECT_NE(kill(process, 0), 0);
}

TEST(ProbeSandbox, ReportsEveryLayerAndTheEndOfAProcess) {
  SandboxOptions options;
  // Sanitizers reserve terabytes of addresses.
  if (kSanitized) options.memory_bytes = std::uint64_t{1} << 46;
  const auto report = probe_sandbox({SLUICE_FUNCTION_CHILD}, options);
  ASSERT_TRUE(report) << report.error().message;
  for (std::size_t i = 0; i < kLayerCount; ++i) {
    EXPECT_NE(report->find(static_cast<Layer>(i)), nullptr) << layer_name(static_cast<Layer>(i));
  }
  EXPECT_TRUE(report->active(Layer::kSystemCalls));
  const auto ended = probe_sandbox({"/bin/true"}, options);
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("ended while it built its sandbox"));
}

TEST_F(FunctionProcessTest, AMissingLayerIsNamedAndRefused) {
  ProcessEngineLoop::Options strict = options();
  strict.best_effort = false;
  strict.sandbox.without = {Layer::kTaskLimit};
  FunctionClient client(backbone_, *turns_, strict);
  ASSERT_TRUE(
      client.wait_for([&] { return client.loop().failure() || client.loop().ready_process(); }));
  ASSERT_TRUE(client.loop().failure());
  EXPECT_THAT(client.loop().failure()->message, HasSubstr("task limit"));
}

}  // namespace
}  // namespace sluice
