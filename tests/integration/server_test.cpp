// The whole server in one process: sockets, API, workers, engine thread. Tests of answers use the
// demo model; tests of timing use a fake executor with a gate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/load_served_engine.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "http/test_client.h"
#include "server/api_service.h"
#include "server/threaded_engine_loop.h"
#include "tests/support/adapter_files.h"
#include "tests/support/fake_engine.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr const char* kDemo = "models/demo";
constexpr seconds kPatience{60};

constexpr std::int32_t kFakeBudget = 64;

struct Options {
  bool fake = true;
  int good_steps = 1 << 30;
  std::int32_t max_requests = 1024;
  const char* keys = nullptr;
  bool hold_load = false;  // until release_load()
  http::HttpLimits limits;
  AdapterSettings adapters;
  std::string adapter_folder;
  WorkPace::Options load_pace;
};

// The whole stack on a free port.
class RunningServer {
 public:
  explicit RunningServer(const Options& options)
      : options_(options), engine_({options.max_requests}, clock_, [this] {
          loop_.post([this] { service_->engine_woke(); });
        }) {
    model_.vocab_size = 3072;  // as the demo model has
    if (options.keys != nullptr) keys_ = *ApiKeys::parse(options.keys, "keys");
    ApiService::Options service;
    service.model_name = "demo";
    service.version = "test";
    service.adapter_folder = options.adapter_folder;
    service.load_pace = options.load_pace;
    service_.emplace(service, keys_ ? &*keys_ : nullptr, loop_, engine_, clock_, *log_, metrics_);
    auto http = http::HttpServer::listen(loop_, "127.0.0.1", 0, options.limits, *service_, clock_);
    CHECK(http.has_value());
    http_ = *std::move(http);
    engine_.start([this] { return load(); });
    thread_ = std::thread([this] { loop_.run(); });
    if (!options.hold_load) await_state("ready");
  }
  ~RunningServer() {
    gate.open();
    release_load();
    loop_.stop();
    thread_.join();
    engine_.stop();
  }

  std::uint16_t port() const { return http_->port(); }
  void release_load() {
    if (!released_) load_.set_value();
    released_ = true;
  }
  // Runs on the loop and waits.
  void on_loop(const std::function<void()>& task) {
    std::promise<void> done;
    loop_.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  void drain() {
    on_loop([this] {
      service_->drain();
      http_->drain();
    });
  }
  void cancel_all() {
    on_loop([this] { service_->cancel_all(); });
  }
  bool cancel_all_if_active() {
    bool active = false;
    on_loop([&] {
      active = service_->active() > 0;
      if (active) service_->cancel_all();
    });
    return active;
  }
  std::int32_t connections() {
    std::int32_t open = 0;
    on_loop([&] { open = http_->stats().open_connections; });
    return open;
  }

  http::TestAnswer get(const std::string& path, const std::string& headers = {}) {
    http::TestClient client(port());
    CHECK(client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n"));
    auto answer = client.answer();
    CHECK(answer.has_value());
    return *answer;
  }
  static std::string post(const std::string& path, const json& body,
                          const std::string& headers = {}) {
    const std::string text = dump_json(body);
    return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
           "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
  }
  http::TestAnswer complete(const json& body, const std::string& headers = {}) {
    http::TestClient client(port());
    CHECK(client.send(post("/v1/completions", body, headers)));
    auto answer = client.answer();
    CHECK(answer.has_value());
    return *answer;
  }
  json status() { return parse_json(get("/status").body); }
  // The engine answers between two steps, so this lets steps run until it has answered.
  json status_at_gate() {
    http::TestClient client(port());
    CHECK(client.send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    while (!client.readable_now()) {
      std::this_thread::sleep_for(milliseconds(100));
      gate.let(1);
      std::this_thread::sleep_for(milliseconds(100));
    }
    return parse_json(client.answer()->body);
  }
  bool await_unfinished(std::int32_t requests) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (engine_.unfinished_requests() != requests) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  // Waits for the wanted status; false when it does not come in time.
  bool await_status(const std::function<bool(const json&)>& wanted) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      if (wanted(status())) return true;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return false;
  }
  bool await_state(std::string_view state) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      if (parse_json(get("/ready").body).at("state") == state) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }

  Gate gate;

 private:
  Result<std::unique_ptr<Engine>> load() {
    if (options_.hold_load) load_.get_future().wait();
    std::unique_ptr<Engine> engine;
    const ServedModel* model = nullptr;
    if (options_.fake) {
      engine = fake_engine();
      EngineFacts facts;
      facts.limits = engine->limits();
      facts.block_size = 16;
      facts.kv_identity.block_size = 16;
      if (!options_.adapter_folder.empty()) {
        facts.adapters = std::make_shared<AdapterStore>(*load_model_config(kDemo),
                                                        AdapterFormat{DType::kF32, 8});
      }
      ASSIGN_OR_RETURN(fake_model_, load_served_model(kDemo, "demo", 1, std::move(facts)));
      model = &*fake_model_;
    } else {
      EngineOptions engine_options;
      engine_options.threads = 1;
      engine_options.adapters = options_.adapters;
      StartupTimeline timeline(clock_);
      ASSIGN_OR_RETURN(engine, served_.load(kDemo, "demo", engine_options, clock_, timeline));
      model = &served_.model();
    }
    loop_.post([this, model] { service_->set_model(*model, {}); });
    return engine;
  }

  std::unique_ptr<Engine> fake_engine() {
    return make_fake_engine(model_, clock_,
                            {.block_size = 16,
                             .num_blocks = 1024,
                             .max_num_seqs = 16,
                             .max_model_len = 2048,
                             .token_budget = kFakeBudget,
                             .good_steps = options_.good_steps,
                             .gate = &gate});
  }

  const Options options_;
  const SystemClock clock_;
  FakeModel model_;
  ServedEngine served_;
  std::optional<ServedModel> fake_model_;
  std::optional<ApiKeys> keys_;
  std::unique_ptr<AccessLog> log_ = *AccessLog::open("off");
  ServerMetrics metrics_{{}};
  http::EventLoop loop_;
  ThreadedEngineLoop engine_;
  std::optional<ApiService> service_;
  std::unique_ptr<http::HttpServer> http_;
  std::promise<void> load_;
  bool released_ = false;
  std::thread thread_;
};

json long_stream(int prompt_tokens, int max_tokens) {
  return {{"model", "demo"},          {"prompt", std::vector<int>(std::size_t(prompt_tokens), 7)},
          {"max_tokens", max_tokens}, {"ignore_eos", true},
          {"stream", true},           {"temperature", 0}};
}

struct Streamed {
  std::string text;
  std::string finish_reason;
  std::string error;
  bool done = false;
};

Streamed parse_stream(std::string_view body) {
  Streamed streamed;
  while (!body.empty()) {
    const std::size_t end = body.find("\n\n");
    if (end == std::string_view::npos) break;
    const std::string_view data = body.substr(6, end - 6);
    body.remove_prefix(end + 2);
    if (data == "[DONE]") {
      streamed.done = true;
      continue;
    }
    const json event = parse_json(data);
    if (event.contains("error")) {
      streamed.error = event["error"]["message"];
      continue;
    }
    for (const json& choice : event["choices"]) {
      streamed.text += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) streamed.finish_reason = choice["finish_reason"];
    }
  }
  return streamed;
}

TEST(Server, ManyStreamsEqualTheirSingleRuns) {
  constexpr int kStreams = rounds(200);
  Options options;
  options.fake = false;
  RunningServer server(options);
  std::vector<json> bodies;
  std::vector<std::string> single;
  for (int i = 0; i < kStreams; ++i) {
    json body = {{"model", "demo"},
                 {"prompt", "Day " + std::to_string(i * 7919 % 1000) + ": the little boat"},
                 {"max_tokens", 6 + i % 11},
                 {"temperature", i % 2 == 0 ? 0.0 : 0.9},
                 {"seed", i}};
    const auto answer = server.complete(body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    single.push_back(parse_json(answer.body)["choices"][0]["text"]);
    body["stream"] = true;
    bodies.push_back(std::move(body));
  }
  std::vector<http::TestClient> clients;
  for (const json& body : bodies) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send(RunningServer::post("/v1/completions", body)));
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const auto answer = clients[i].answer();
    ASSERT_TRUE(answer) << i;
    const Streamed streamed = parse_stream(answer->body);
    EXPECT_EQ(streamed.text, single[i]) << bodies[i];
    EXPECT_TRUE(streamed.done) << i;
  }
}

TEST(Server, ADisconnectFreesBlocksWithinOneStep) {
  RunningServer server({});
  for (const bool in_prefill : {true, false}) {
    SCOPED_TRACE(in_prefill);
    server.gate.close();
    http::TestClient client(server.port());
    // Sixteen steps of prefill.
    ASSERT_TRUE(client.send(RunningServer::post(
        "/v1/completions", long_stream(in_prefill ? 16 * kFakeBudget : 8, 1000))));
    ASSERT_TRUE(server.await_unfinished(1));
    server.gate.let(3);
    if (!in_prefill) {
      ASSERT_TRUE(client.wait_for("data: "));
    }
    const json status = server.status_at_gate();
    ASSERT_EQ(status["requests"].size(), 1U);
    EXPECT_EQ(status["requests"][0]["state"], in_prefill ? "prefill" : "decode");
    ASSERT_GT(status["kv"]["used"], 0);
    client.reset();
    // Once the cancellation is in the engine's inbox, the one step at the gate must free the
    // blocks: the gate lets no other step run.
    while (server.connections() > 0) std::this_thread::sleep_for(milliseconds(1));
    server.on_loop([] {});
    server.gate.let(1);
    ASSERT_TRUE(server.await_status([](const json& s) {
      return s["requests"].empty() && s["kv"]["used"] == 0 && s["running"] == 0;
    }));
    server.gate.open();
  }
}

// Otherwise frequent requests for the status would keep the loop from serving streams.
TEST(Server, StatusRequestsWithinOneStepShareOneAnswer) {
  RunningServer server({});
  server.gate.close();
  http::TestClient client(server.port());
  ASSERT_TRUE(client.send(RunningServer::post("/v1/completions", long_stream(8, 1000))));
  ASSERT_TRUE(server.await_unfinished(1));
  std::vector<http::TestClient> watchers;
  for (int i = 0; i < 3; ++i) watchers.emplace_back(server.port());
  // On a busy machine one request may be read too late for the step; then all are sent again.
  bool one_answer = false;
  for (int attempt = 0; attempt < 20 && !one_answer; ++attempt) {
    for (auto& watcher : watchers) {
      ASSERT_TRUE(watcher.send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }
    std::vector<std::string> bodies;
    for (auto& watcher : watchers) {
      while (!watcher.readable_now()) {
        std::this_thread::sleep_for(milliseconds(20));
        server.gate.let(1);
        std::this_thread::sleep_for(milliseconds(20));
      }
      bodies.push_back(watcher.answer()->body);
    }
    EXPECT_EQ(parse_json(bodies[0])["requests"].size(), 1U);
    one_answer = bodies[0] == bodies[1] && bodies[0] == bodies[2];  // with one uptime
  }
  EXPECT_TRUE(one_answer);
}

TEST(Server, AFullQueueIs429AndAFreedPlaceIsUsed) {
  Options options;
  options.max_requests = 2;
  RunningServer server(options);
  server.gate.close();
  std::vector<http::TestClient> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send(RunningServer::post("/v1/completions", long_stream(8, 4))));
  }
  ASSERT_TRUE(server.await_unfinished(2));
  const auto refused = server.complete({{"model", "demo"}, {"prompt", "x"}});
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: 1"));
  EXPECT_THAT(refused.body, HasSubstr("rate_limit_exceeded"));
  server.gate.open();
  for (auto& client : clients) EXPECT_TRUE(parse_stream(client.answer()->body).done);
  EXPECT_EQ(server.complete({{"model", "demo"}, {"prompt", "x"}, {"max_tokens", 1}}).status, 200);
}

TEST(Server, ACallLargerThanTheQueueGetsNoRetryAfter) {
  Options options;
  options.max_requests = 2;
  RunningServer server(options);
  json body = {{"model", "demo"}, {"prompt", {"a", "b", "c"}}, {"max_tokens", 1}};
  const auto refused = server.complete(body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(parse_json(refused.body)["error"]["param"], "prompt");
  EXPECT_THAT(refused.body, HasSubstr("got 3 prompts; this server holds 2 requests"));
  body["prompt"] = {"a", "b"};
  EXPECT_EQ(server.complete(body).status, 200);
}

// Bodies count against the limit while they are read, not while their answers are generated.
// Otherwise a few large bodies with long answers would block all other calls.
TEST(Server, BodiesOfRunningCallsTakeNoRoomFromOthers) {
  Options options;
  options.limits.total_body_bytes = 4096;
  options.limits.fair_body_bytes = 0;
  RunningServer server(options);
  server.gate.close();
  std::vector<http::TestClient> clients;
  for (int i = 0; i < 3; ++i) {
    const std::string body = dump_json(long_stream(8, 4)) + std::string(3000, ' ');
    clients.emplace_back(server.port());
    ASSERT_TRUE(
        clients.back().send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n" + body));
    ASSERT_TRUE(server.await_unfinished(i + 1));
  }
  server.gate.open();
  for (auto& client : clients) EXPECT_TRUE(parse_stream(client.answer()->body).done);
}

TEST(Server, AnEngineFailureEndsStreamsWithAnErrorAndNewCallsWith503) {
  Options options;
  options.good_steps = 5;
  RunningServer server(options);
  http::TestClient client(server.port());
  ASSERT_TRUE(client.send(RunningServer::post("/v1/completions", long_stream(8, 1000))));
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  const Streamed streamed = parse_stream(answer->body);
  EXPECT_THAT(streamed.error, HasSubstr("the device caught fire"));
  EXPECT_FALSE(streamed.done);
  const auto refused = server.complete({{"model", "demo"}, {"prompt", "x"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("the device caught fire"));
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.get("/ready").status, 503);
  EXPECT_EQ(server.status().at("state"), "failed");
}

TEST(Server, AnEngineFailureBeforeTheFirstTokenIs503) {
  Options options;
  options.good_steps = 0;
  RunningServer server(options);
  const auto answer = server.complete(long_stream(8, 10));
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("the device caught fire"));
}

TEST(Server, AnswersWhileLoading) {
  Options options;
  options.hold_load = true;
  RunningServer server(options);
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.get("/ready").status, 503);
  EXPECT_EQ(server.status().at("state"), "loading");
  EXPECT_EQ(server.get("/metrics").status, 200);
  const auto refused = server.complete({{"model", "demo"}, {"prompt", "x"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: 1"));
  EXPECT_THAT(refused.body, HasSubstr("the model is loading"));
  server.release_load();
  EXPECT_TRUE(server.await_state("ready"));
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.complete({{"model", "demo"}, {"prompt", "x"}}).status, 200);
}

TEST(Server, DrainLetsStreamsFinishAndRefusesNewCalls) {
  RunningServer server({});
  server.gate.close();
  http::TestClient client(server.port());
  ASSERT_TRUE(client.send(RunningServer::post("/v1/completions", long_stream(8, 20))));
  server.gate.let(2);
  ASSERT_TRUE(client.wait_for("data: "));
  server.drain();
  EXPECT_FALSE(http::TestClient(server.port()).connected());
  server.gate.open();
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_TRUE(parse_stream(answer->body).done);
  EXPECT_TRUE(client.closed());
  while (server.connections() > 0) std::this_thread::sleep_for(milliseconds(1));
}

TEST(Server, AStreamCutByADrainGetsAnErrorEvent) {
  RunningServer server({});
  server.gate.close();
  http::TestClient client(server.port());
  ASSERT_TRUE(client.send(RunningServer::post("/v1/completions", long_stream(8, 1000))));
  server.gate.let(2);
  ASSERT_TRUE(client.wait_for("data: "));
  server.drain();
  server.cancel_all();
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(parse_stream(answer->body).error, "the server is shutting down");
  EXPECT_FALSE(parse_stream(answer->body).done);
}

TEST(Server, CallsThatADrainFindsInTheWorkersAre503) {
  RunningServer server({});
  server.gate.close();
  http::TestClient client(server.port());
  // So long that a worker is still busy with it.
  const std::string body = dump_json(long_stream(8, 10)) + std::string(7 << 20, ' ');
  ASSERT_TRUE(client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body));
  while (!server.cancel_all_if_active()) std::this_thread::yield();
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_THAT(answer->body, HasSubstr("the server is shutting down"));
}

TEST(Server, ASlowReaderIsCutOffAndOthersAreUnaffected) {
  RunningServer server({});
  http::TestClient slow(server.port(), /*receive_buffer=*/4096);
  json body = long_stream(8, 2000);
  body["n"] = 15;  // about ten megabytes in all
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  ASSERT_TRUE(slow.send(RunningServer::post("/v1/completions", body)));
  const auto quick = server.complete(long_stream(8, 100));
  EXPECT_TRUE(parse_stream(quick.body).done);
  ASSERT_TRUE(server.await_status(
      [](const json& s) { return s["requests"].empty() && s["kv"]["used"] == 0; }));
  const auto rest = slow.rest();
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->find("[DONE]"), std::string::npos);
}

TEST(Server, KeysModelsAndPaths) {
  Options options;
  options.keys = "alice sk-alice-1\nbob sk-bob-001\n";
  RunningServer server(options);
  const std::string alice = "Authorization: Bearer sk-alice-1\r\n";
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/status").status, 401);
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer wrong-key\r\n").status, 401);
  EXPECT_EQ(server.get("/v1/models", alice).status, 200);
  EXPECT_EQ(server.get("/v1/models/demo", alice).status, 200);
  EXPECT_EQ(server.get("/v1/models/other", alice).status, 404);
  EXPECT_EQ(server.get("/nothing").status, 404);
  const auto wrong_method = server.get("/v1/completions", alice);
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_THAT(wrong_method.head, HasSubstr("Allow: POST"));
  const auto unknown = server.complete({{"model", "gpt-9"}, {"prompt", "x"}}, alice);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("model_not_found"));
  const auto kept = server.get("/health", "X-Request-Id: abc-1\r\n");
  EXPECT_THAT(kept.head, HasSubstr("X-Request-Id: abc-1"));
}

TEST(Server, CachedTokensAreCountedAndTenantsDoNotShareThem) {
  Options options;
  options.keys = "alice sk-alice-1\nbob sk-bob-001\nbob sk-bob-002\n";
  RunningServer server(options);
  const auto cached = [&](const std::string& key, const json& more = json::object()) {
    json body = {{"model", "demo"},
                 {"prompt", std::vector<int>(100, 9)},
                 {"max_tokens", 1},
                 {"temperature", 0}};
    body.update(more);
    const auto answer = server.complete(body, "Authorization: Bearer " + key + "\r\n");
    return parse_json(answer.body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached("sk-alice-1"), 0);
  EXPECT_EQ(cached("sk-alice-1"), 96);
  EXPECT_EQ(cached("sk-bob-001"), 0);
  EXPECT_EQ(cached("sk-bob-002"), 96);  // the same tenant
  EXPECT_EQ(cached("sk-alice-1", {{"cache_salt", "s"}}), 0);
  EXPECT_EQ(cached("sk-alice-1", {{"cache_salt", "s"}}), 96);
}

// A server of the demo model with the adapter "first", and a folder of adapters to load.
class AdapterServer {
 public:
  AdapterServer() {
    const ModelConfig config = *load_model_config(kDemo);
    for (const auto& [name, seed] : {std::pair("one", 1), {"same", 1}, {"two", 2}}) {
      write_random_adapter(folder_.file(name), config, 4, static_cast<std::uint64_t>(seed), 0.2F);
    }
    write_random_adapter(outside_.file("secret"), config, 4, 3);
    std::filesystem::create_directory_symlink(outside_.file("secret"), folder_.file("link"));
    Options options;
    options.fake = false;
    options.keys = "alice sk-alice-1\nops sk-ops-0001 role=admin\n";
    options.adapters = {.sources = {{"first", folder_.file("one")}}, .at_run_time = true};
    options.adapter_folder = folder_.path();
    server_.emplace(options);
  }

  http::TestAnswer call(const std::string& path, const json& body, const std::string& key) {
    http::TestClient client(server_->port());
    CHECK(client.send(RunningServer::post(path, body, key)));
    return *client.answer();
  }
  http::TestAnswer load(const std::string& name, const std::string& path, bool in_place = false) {
    return call("/v1/load_lora_adapter",
                {{"lora_name", name}, {"lora_path", path}, {"load_inplace", in_place}}, kOps);
  }
  http::TestAnswer unload(const std::string& name) {
    return call("/v1/unload_lora_adapter", {{"lora_name", name}}, kOps);
  }
  http::TestAnswer get(const std::string& path) { return server_->get(path, kAlice); }
  http::TestAnswer complete(const std::string& model) {
    return server_->complete({{"model", model},
                              {"prompt", std::vector<int>(100, 9)},
                              {"max_tokens", 12},
                              {"temperature", 0}},
                             kAlice);
  }
  struct Answer {
    std::string text;
    int cached_tokens = 0;
  };
  Answer answer(const std::string& model) {
    const auto full = complete(model);
    EXPECT_EQ(full.status, 200) << full.body;
    const json body = parse_json(full.body);
    EXPECT_EQ(body["model"], model);
    return {body["choices"][0]["text"], body["usage"]["prompt_tokens_details"]["cached_tokens"]};
  }

  const std::string kAlice = "Authorization: Bearer sk-alice-1\r\n";
  const std::string kOps = "Authorization: Bearer sk-ops-0001\r\n";

 private:
  const TempDirectory folder_;
  const TempDirectory outside_;
  std::optional<RunningServer> server_;
};

// Content, not names, decides what the prefix cache shares.
TEST(Server, AdaptersAreLoadedReplacedAndUnloadedWhileItRuns) {
  AdapterServer server;
  const auto base = server.answer("demo");
  const auto first = server.answer("first");
  EXPECT_NE(first.text, base.text);
  EXPECT_EQ(first.cached_tokens, 0);
  const auto added = server.load("second", "two");
  EXPECT_EQ(added.status, 200) << added.body;
  EXPECT_EQ(added.body, "Success: LoRA adapter 'second' added successfully.");
  const auto second = server.answer("second");
  EXPECT_NE(second.text, first.text);
  EXPECT_EQ(second.cached_tokens, 0);
  EXPECT_EQ(server.load("second", "same").status, 400);  // is loaded already
  EXPECT_EQ(server.load("second", "same", true).status, 200);
  const auto replaced = server.answer("second");
  EXPECT_EQ(replaced.text, first.text);
  EXPECT_EQ(replaced.cached_tokens, 96);  // blocks of "first", which has the same content
  EXPECT_EQ(server.unload("second").status, 200);
  EXPECT_EQ(server.unload("second").status, 404);
  const auto gone = server.complete("second");
  EXPECT_EQ(gone.status, 404);
  EXPECT_THAT(gone.body, HasSubstr("'demo', 'first'"));
  const std::string metrics = server.get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("adapter_loads_total"));
  EXPECT_THAT(metrics, HasSubstr("sluice:adapter_requests_total{adapter=\"second\"} 2"));
}

TEST(Server, AdaptersAreModelsAndOnlyAdminsLoadThem) {
  AdapterServer server;
  EXPECT_EQ(server.load("second", "same").status, 200);
  const json models = parse_json(server.get("/v1/models").body)["data"];
  ASSERT_EQ(models.size(), 3U);
  EXPECT_FALSE(models[0].contains("parent"));
  EXPECT_EQ(models[2]["id"], "second");
  EXPECT_EQ(models[2]["parent"], "demo");
  EXPECT_EQ(models[2]["root"], "same");
  EXPECT_EQ(server.get("/v1/models/first").status, 200);
  EXPECT_EQ(
      server
          .call("/v1/load_lora_adapter", {{"lora_name", "x"}, {"lora_path", "two"}}, server.kAlice)
          .status,
      403);
  for (const std::string path : {"link", "../", "/etc", "none", ""}) {
    EXPECT_EQ(server.load("third", path).status, 400) << path;
  }
  EXPECT_EQ(server.load("demo", "two").status, 400);
}

// A pace at which a load beside a request takes years.
TEST(Server, ALoadRestsBesideARequestAndEndsWithTheServer) {
  const TempDirectory folder;
  write_random_adapter(folder.file("one"), *load_model_config(kDemo), 4, 1);
  Options options;
  options.keys = "ops sk-ops-0001 role=admin\n";
  options.adapter_folder = folder.path();
  options.load_pace = {.piece = Duration{0}, .rests = 1'000'000'000};
  RunningServer server(options);
  const std::string key = "Authorization: Bearer sk-ops-0001\r\n";
  const auto load = [&](const char* name) {
    return RunningServer::post("/v1/load_lora_adapter", {{"lora_name", name}, {"lora_path", "one"}},
                               key);
  };
  http::TestClient alone(server.port());
  ASSERT_TRUE(alone.send(load("alone")));
  EXPECT_EQ(alone.answer()->status, 200);

  server.gate.close();
  http::TestClient running(server.port());
  ASSERT_TRUE(running.send(RunningServer::post("/v1/completions", long_stream(8, 100), key)));
  ASSERT_TRUE(server.await_unfinished(1));
  http::TestClient resting(server.port());
  http::TestClient waiting(server.port());
  http::TestClient gone(server.port());
  ASSERT_TRUE(resting.send(load("resting")) && waiting.send(load("waiting")));
  ASSERT_TRUE(gone.send(load("gone")));
  gone.reset();
  // The workers are free meanwhile, more than there are.
  for (int i = 0; i < 4; ++i) {
    http::TestClient client(server.port());
    ASSERT_TRUE(client.send(RunningServer::post("/tokenize", {{"prompt", "a"}}, key)));
    EXPECT_EQ(client.answer()->status, 200);
  }
  EXPECT_FALSE(resting.readable_now());
  EXPECT_EQ(parse_json(server.get("/v1/models", key).body)["data"].size(), 2U);
  server.cancel_all();
  EXPECT_EQ(resting.answer()->status, 503);
  EXPECT_EQ(waiting.answer()->status, 503);
}

TEST(Server, AClientThatLeavesBeforeItsTurnCostsNothing) {
  Options options;
  options.max_requests = 4;
  RunningServer server(options);
  server.gate.close();
  for (int round = 0; round < 20; ++round) {
    http::TestClient client(server.port());
    ASSERT_TRUE(client.send(RunningServer::post("/v1/completions", long_stream(8, 1000))));
    client.reset();
  }
  while (server.connections() > 0) std::this_thread::sleep_for(milliseconds(1));
  server.gate.open();
  ASSERT_TRUE(server.await_status(
      [](const json& s) { return s["requests"].empty() && s["kv"]["used"] == 0; }));
  EXPECT_EQ(server.complete({{"model", "demo"}, {"prompt", "x"}, {"max_tokens", 1}}).status, 200);
}

TEST(Server, StopsWhileCallsRun) {
  RunningServer server({});
  server.gate.close();
  http::TestClient client(server.port());
  ASSERT_TRUE(client.send(RunningServer::post("/v1/completions", long_stream(8, 1000))));
  server.gate.let(2);
  ASSERT_TRUE(client.wait_for("data: "));
}

}  // namespace
}  // namespace sluice
