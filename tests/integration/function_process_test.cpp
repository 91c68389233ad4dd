// Functions in processes of their own: the bits of an engine in this process, the sandbox as /proc
// shows it, and deaths that end only their own calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "adapter/adapter_store.h"
#include "backbone/backbone.h"
#include "function/probe_sandbox.h"
#include "function/process_engine_loop.h"
#include "tests/golden/golden_case.h"
#include "tests/support/adapter_files.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using testing::HasSubstr;
constexpr Duration kShort = std::chrono::milliseconds(100);

// One function and what it has answered.
class Client {
 public:
  Client(const Backbone& backbone, ProcessEngineLoop::Options options)
      : loop_(std::move(options), backbone, clock_, [this] { woke(); }) {
    loop_.start();
  }
  ~Client() { loop_.stop(); }

  ProcessEngineLoop& loop() { return loop_; }

  // The choice's end, with all its tokens.
  struct Answer {
    std::vector<TokenId> tokens;
    FinishReason reason = FinishReason::kNone;
  };

  // Waits until `done` holds, and takes all outputs meanwhile.
  template <class Done>
  bool wait_for(const Done& done) {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);;) {
      OutputBatch batch;
      loop_.take(batch);
      for (const OutputEvent& event : batch.events) {
        Answer& answer = answers_[event.request];
        const auto tokens = batch.tokens_of(event);
        answer.tokens.insert(answer.tokens.end(), tokens.begin(), tokens.end());
        answer.reason = event.finish_reason;
      }
      if (done()) return true;
      std::unique_lock lock(mutex_);
      if (!news_.wait_until(lock, end, [&] { return woken_; })) return false;
      woken_ = false;
    }
  }
  bool wait_until_ready() {
    return wait_for([&] { return loop_.ready_process() || loop_.failure(); });
  }
  Answer wait_for_answer(RequestId id) {
    EXPECT_TRUE(wait_for([&] { return answers_[id].reason != FinishReason::kNone; }));
    return answers_[id];
  }

 private:
  void woke() {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    news_.notify_all();
  }

  const SystemClock clock_;
  std::mutex mutex_;
  std::condition_variable news_;
  bool woken_ = false;
  std::map<RequestId, Answer> answers_;
  ProcessEngineLoop loop_;
};

class FunctionProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", "qwen3-tied"), model_.path());
    ThreadPool pool(1);
    const auto device = make_cpu_device({&pool, 0, {}});
    backbone_ = *read_only(*make_backbone(model_.path(), engine_options(), **device, pool));
  }

  static EngineOptions engine_options() {
    EngineOptions options;
    options.max_num_seqs = 2;
    options.token_budget = 16;
    options.max_model_len = 64;
    options.kv_cache_memory = 1 << 20;
    return options;
  }

  ProcessEngineLoop::Options options() const {
    ProcessEngineLoop::Options options;
    options.command = {SLUICE_FUNCTION_CHILD};
    options.best_effort = true;
    // Sanitizers reserve terabytes of addresses, which RLIMIT_DATA counts.
    if (kSanitized) options.sandbox.memory_bytes = std::uint64_t{1} << 46;
    options.start.kv_bytes = 1 << 20;
    options.start.max_num_seqs = 2;
    options.start.token_budget = 16;
    options.start.block_size = 16;
    options.start.threads = 1;
    options.start.max_requests = 8;
    options.start.scheduler = "stall-free";
    options.vocab_size = parse_model_config(open_backbone(backbone_)->config)->vocab_size;
    return options;
  }

  std::vector<TokenId> expected(Request request) const {
    test::EngineFixture engine(model_.path(), engine_options(), 1);
    const RequestId id = request.id;
    engine.add(std::move(request));
    return engine.run_to_end()[{id, 0}].tokens;
  }

  TempDirectory model_;
  Backbone backbone_;
};

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_F(FunctionProcessTest, AnswersAsAnEngineHereInsideOfTheSandbox) {
  const Request request = test::greedy_request(1, {1, 2, 3, 4, 5, 6, 7}, 12);
  Client first(backbone_, options());
  Client second(backbone_, options());
  ASSERT_TRUE(first.wait_until_ready() && second.wait_until_ready());
  ASSERT_FALSE(first.loop().failure()) << first.loop().failure()->message;
  ASSERT_TRUE(first.loop().submit(request));
  ASSERT_TRUE(second.loop().submit(request));
  EXPECT_EQ(first.wait_for_answer(1).tokens, expected(request));
  EXPECT_EQ(second.wait_for_answer(1).tokens, expected(request));

  struct stat memory{};
  ASSERT_EQ(fstat(backbone_.memory.get(), &memory), 0);
  for (Client* client : {&first, &second}) {
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
    std::unique_ptr<Client> client;
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
                     std::make_unique<Client>(backbone_, with_adapter), memory.st_ino});
  }
  cases.push_back({"", nullptr, std::make_unique<Client>(backbone_, options()), 0});

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

TEST_F(FunctionProcessTest, ADeathEndsItsCallsAloneAndTheNextCallIsAnswered) {
  Client victim(backbone_, options());
  Client sibling(backbone_, options());
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
  Client client(backbone_, impatient);
  ASSERT_TRUE(client.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  ASSERT_EQ(kill(*client.loop().ready_process(), SIGSTOP), 0);
  ASSERT_TRUE(client.loop().submit(test::greedy_request(1, {1, 2}, 3)));
  EXPECT_EQ(client.wait_for_answer(1).reason, FinishReason::kError);
}

TEST_F(FunctionProcessTest, NoProcessIsLeftAfterTheStop) {
  pid_t process = 0;
  {
    Client client(backbone_, options());
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
  Client client(backbone_, strict);
  ASSERT_TRUE(
      client.wait_for([&] { return client.loop().failure() || client.loop().ready_process(); }));
  ASSERT_TRUE(client.loop().failure());
  EXPECT_THAT(client.loop().failure()->message, HasSubstr("task limit"));
}

}  // namespace
}  // namespace sluice
