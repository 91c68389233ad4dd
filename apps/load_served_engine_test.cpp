#include "apps/load_served_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "front/prompt_builder.h"
#include "kv/block_hash.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr std::int32_t kBlock = 16;

// The demo model with a template that names the date and the hour.
class WarmDateTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& entry : std::filesystem::directory_iterator("models/demo")) {
      std::filesystem::copy(entry.path(), model_.file(entry.path().filename().string()));
    }
    model_.write(
        "chat_template.jinja",
        "{{ 'Today is ' + strftime_now('%A, %Y-%m-%d, %H') + ' h. ' }}{% for m in messages %}"
        "{{ m['role'] + ': ' + m['content'] + ' ' }}{% endfor %}");
    std::string system;
    for (int i = 0; i < 30; ++i) system += "You are a helpful cat. ";
    messages_ = R"([{"role":"system","content":")" + system + R"("}])";
    ServedEngineOptions served;
    served.warm.chats = {*parse_warm_chat(messages_, "cat.json")};
    served.local_time = [this] { return now_; };
    EngineOptions options;
    options.threads = 1;
    options.max_num_seqs = 2;
    auto loaded = served_.load(model_.path(), "demo", options, clock_, timeline_, served);
    ASSERT_TRUE(loaded) << loaded.error().message;
    engine_ = *std::move(loaded);
  }

  // As the server does when it is idle. Returns the number of requests of the operator's own.
  int idle() {
    for (int requests = 0;; ++requests) {
      auto work = served_.when_idle();
      EXPECT_TRUE(work) << work.error().message;
      if (!work || !work->request) {
        EXPECT_TRUE(work && work->again) << "the date must be looked at again";
        return requests;
      }
      EXPECT_TRUE(engine_->add_request(*std::move(work->request)));
      while (engine_->has_work()) EXPECT_TRUE(engine_->step());
    }
  }

  // The cached tokens of a tenant's turn behind the system prompt.
  std::int32_t ask(const std::string& turn) {
    std::string messages = messages_;
    messages.pop_back();
    messages += R"(,{"role":"user","content":")" + turn + R"("}])";
    PromptWorker worker(served_.model());
    auto prompt = worker.from_chat({.messages_json = messages}, AddSpecialTokens::kNo,
                                   tenant_salt("alice", ""));
    EXPECT_TRUE(prompt);
    Request request;
    request.id = next_id_++;
    request.prompt = prompt->ids;
    request.block_hashes = prompt->block_hashes;
    request.block_hash_root = prompt->block_hash_root;
    request.sampling.max_tokens = 1;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    EXPECT_TRUE(engine_->add_request(std::move(request)));
    std::int32_t cached = -1;
    while (engine_->has_work()) {
      auto outputs = engine_->step();
      EXPECT_TRUE(outputs);
      for (const ChoiceOutput& output : *outputs) cached = output.cached_prompt_tokens;
    }
    return cached;
  }

  TempDirectory model_;
  SystemClock clock_;
  StartupTimeline timeline_{clock_};
  std::chrono::local_seconds now_ =
      std::chrono::local_days(std::chrono::year(2026) / 11 / 22) + std::chrono::hours(22);
  std::string messages_;
  ServedEngine served_;
  std::unique_ptr<Engine> engine_;
  RequestId next_id_ = 1;
};

TEST_F(WarmDateTest, AServerThatRunsOnComputesThePromptOfTheNewHour) {
  EXPECT_EQ(idle(), 1);
  EXPECT_EQ(idle(), 0);
  const std::int32_t cached = ask("a cat?");
  EXPECT_GE(cached, 8 * kBlock);
  now_ += std::chrono::minutes(30);
  EXPECT_EQ(idle(), 0) << "the same hour";

  for (const std::string when : {"the same day", "the next day"}) {
    now_ += std::chrono::hours(1);
    EXPECT_LE(ask(when + "?"), 2 * kBlock) << "the text differs from the hour on";
    testing::internal::CaptureStderr();
    EXPECT_EQ(idle(), 1) << when;
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_THAT(told, HasSubstr("cat.json: its text is another one now"));
    EXPECT_THAT(told, HasSubstr("warm prompts: 1 of 1 in memory"));
    EXPECT_GE(ask(when + ", and now?"), 8 * kBlock);
    EXPECT_EQ(idle(), 0);
  }
}

}  // namespace
}  // namespace sluice
