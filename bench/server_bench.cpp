// The server's cost, measured from outside on `sluice serve` as a child process:
//   server_bench [--sluice PATH] [--demo DIR] [--model DIR] [--only dispatch|overhead|idle]
//                [--rounds N] [--threads N] [--json FILE]
// dispatch: 64 streams of the demo model: a request's last byte to the engine's inbox, a token's
//   step to the socket; the server's own histograms over the measured seconds.
// overhead: 16 streams of --model (a 1B shape: tools/make_checkpoint llama-1b DIR) against the same
//   requests given straight to an engine in this process, in turns.
// idle: resident memory that idle connections add.
// docs/serving.md says how to read it.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>  // tidy: allow(heavy-header) a program of its own
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apps/load_served_engine.h"
#include "apps/option_values.h"
#include "base/clock.h"
#include "base/memory_size.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "bench/server_process.h"
#include "bench/stream_load.h"
#include "http/open_files.h"

namespace sluice::bench {
namespace {

constexpr int kDispatchStreams = 64;
constexpr Duration kDispatchWarmUp = std::chrono::seconds(2);
constexpr Duration kDispatchTime = std::chrono::seconds(8);
constexpr int kOverheadStreams = 16;
constexpr int kPromptTokens = 32;
constexpr int kIdleConnections = 2000;
constexpr const char* kKvMemory = "512MiB";  // the same for served and offline engine

struct Options {
  std::string sluice = "build/sluice";
  std::string demo = "models/demo";
  std::string model;
  std::string only;
  std::string json;
  int rounds = 3;
  int threads = available_cpus();
  int output_tokens = 48;
};

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  double goal = 0;  // at most; 0: none
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Result<ServerProcess> start_server(const Options& options, const std::string& model) {
  return ServerProcess::start(
      options.sluice, model,
      {"--served-model-name", "bench", "--access-log", "/dev/null", "--threads",
       std::to_string(options.threads), "--kv-cache-memory", kKvMemory, "--max-connections",
       std::to_string(2 * kIdleConnections)});
}

// ---------------------------------------------------------------- dispatch

struct Dispatch {
  double in_p50 = 0, in_p99 = 0, out_p50 = 0, out_p99 = 0;  // microseconds
  double tokens_per_s = 0;
  double step_p50 = 0;
};

Result<Dispatch> dispatch_round(const ServerProcess& server, StreamLoad& load) {
  const SystemClock clock;
  RETURN_IF_ERROR(load.run_for(kDispatchWarmUp));
  ASSIGN_OR_RETURN(const std::string before, server.metrics());
  const TimePoint start = clock.now();
  RETURN_IF_ERROR(load.run_for(kDispatchTime));
  const double seconds = to_milliseconds(clock.now() - start) / 1e3;
  ASSIGN_OR_RETURN(const std::string after, server.metrics());
  ASSIGN_OR_RETURN(const Histogram in,
                   histogram_since(before, after, "sluice:request_dispatch_seconds"));
  ASSIGN_OR_RETURN(const Histogram out,
                   histogram_since(before, after, "sluice:token_delivery_seconds"));
  ASSIGN_OR_RETURN(const Histogram steps,
                   histogram_since(before, after, "sluice:step_duration_seconds"));
  if (in.count() == 0 || out.count() == 0) return internal_error("nothing was served");
  Dispatch round;
  round.in_p50 = *in.quantile(0.5) * 1e6;
  round.in_p99 = *in.quantile(0.99) * 1e6;
  round.out_p50 = *out.quantile(0.5) * 1e6;
  round.out_p99 = *out.quantile(0.99) * 1e6;
  round.step_p50 = *steps.quantile(0.5) * 1e6;
  round.tokens_per_s = static_cast<double>(out.count()) / seconds;
  fmt::print(
      "  {} requests, in {:.0f} / {:.0f} us; {} tokens, out {:.0f} / {:.0f} us; step {:.0f}\n",
      in.count(), round.in_p50, round.in_p99, out.count(), round.out_p50, round.out_p99,
      round.step_p50);
  return round;
}

// Chats of one turn; lengths differ, so that requests come all the time and not in herds.
StreamRequest next_chat(SplitMix64& rng, int& number) {
  const std::int64_t tokens = 48 + static_cast<std::int64_t>(rng.below(33));
  return {"/v1/chat/completions",
          fmt::format(
              R"({{"model":"bench","stream":true,"stream_options":{{"include_usage":true}},)"
              R"("max_tokens":{0},"min_tokens":{0},"temperature":0,"messages":)"
              R"([{{"role":"user","content":"Tell me number {1} of your stories, please."}}]}})",
              tokens, number++),
          tokens};
}

Status measure_dispatch(const Options& options, std::vector<Figure>& figures) {
  fmt::print("dispatch: {} streams of {}, p50 / p99\n", kDispatchStreams, options.demo);
  ASSIGN_OR_RETURN(const ServerProcess server, start_server(options, options.demo));
  SplitMix64 rng(7);
  int number = 1;
  ASSIGN_OR_RETURN(StreamLoad load, StreamLoad::connect(server.port(), kDispatchStreams,
                                                        [&] { return next_chat(rng, number); }));
  std::vector<Dispatch> rounds;
  for (int i = 0; i < options.rounds; ++i) {
    ASSIGN_OR_RETURN(const Dispatch round, dispatch_round(server, load));
    rounds.push_back(round);
  }
  const auto add = [&](const char* name, double Dispatch::* field, const char* unit, double goal) {
    std::vector<double> values;
    for (const Dispatch& round : rounds) values.push_back(round.*field);
    figures.push_back({name, median(values), unit, goal});
  };
  add("request to inbox, p50", &Dispatch::in_p50, "us", 200);
  add("request to inbox, p99", &Dispatch::in_p99, "us", 2000);
  add("token to socket, p50", &Dispatch::out_p50, "us", 200);
  add("token to socket, p99", &Dispatch::out_p99, "us", 2000);
  add("step of the engine, p50", &Dispatch::step_p50, "us", 0);
  add("tokens streamed", &Dispatch::tokens_per_s, "/s", 0);
  return {};
}

// ---------------------------------------------------------------- overhead

// Prompts that no prefix cache has seen.
std::vector<TokenId> next_prompt(SplitMix64& rng, std::int32_t vocab_size) {
  std::vector<TokenId> prompt(kPromptTokens);
  for (TokenId& id : prompt) {
    id = static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(vocab_size)));
  }
  return prompt;
}

StreamRequest next_completion(const std::vector<TokenId>& prompt, int output_tokens) {
  return {
      "/v1/completions",
      fmt::format(R"({{"model":"bench","stream":true,"stream_options":{{"include_usage":true}},)"
                  R"("max_tokens":{},"ignore_eos":true,"temperature":0,"prompt":[{}]}})",
                  output_tokens, fmt::join(prompt, ",")),
      output_tokens};
}

// Tokens per second of all requests, from the first one's arrival to the last one's end.
Result<double> run_offline(Engine& engine, const Clock& clock, SplitMix64& rng, RequestId& next_id,
                           int output_tokens) {
  std::int64_t tokens = 0;
  const TimePoint start = clock.now();
  for (int i = 0; i < kOverheadStreams; ++i) {
    Request request;
    request.id = next_id++;
    request.prompt = next_prompt(rng, engine.limits().vocab_size);
    request.arrival = clock.now();
    request.sampling.max_tokens = output_tokens;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    RETURN_IF_ERROR(engine.add_request(std::move(request)));
  }
  while (engine.has_work()) {
    ASSIGN_OR_RETURN(const auto outputs, engine.step());
    for (const ChoiceOutput& output : outputs) {
      tokens += static_cast<std::int64_t>(output.tokens.size());
    }
  }
  if (tokens != std::int64_t{kOverheadStreams} * output_tokens) {
    return internal_error("the engine lost tokens");
  }
  return static_cast<double>(tokens) / (to_milliseconds(clock.now() - start) / 1e3);
}

Result<double> run_served(StreamLoad& load, const Clock& clock) {
  const std::int64_t before = load.tokens();
  const TimePoint start = clock.now();
  RETURN_IF_ERROR(load.run_once());
  return static_cast<double>(load.tokens() - before) / (to_milliseconds(clock.now() - start) / 1e3);
}

Status measure_overhead(const Options& options, std::vector<Figure>& figures) {
  fmt::print("overhead: {} streams of {}, {} + {} tokens; offline and served, tokens/s\n",
             kOverheadStreams, options.model, kPromptTokens, options.output_tokens);
  const SystemClock clock;
  StartupTimeline timeline(clock);
  EngineOptions engine_options;
  engine_options.threads = options.threads;
  ASSIGN_OR_RETURN(engine_options.kv_cache_memory, parse_memory_size("KV", kKvMemory));
  ServedEngine offline;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   offline.load(options.model, "offline", engine_options, clock, timeline));
  ASSIGN_OR_RETURN(const ServerProcess server, start_server(options, options.model));
  SplitMix64 rng(11);
  RequestId next_id = 1;
  ASSIGN_OR_RETURN(StreamLoad load, StreamLoad::connect(server.port(), kOverheadStreams, [&] {
                     return next_completion(next_prompt(rng, engine->limits().vocab_size),
                                            options.output_tokens);
                   }));
  std::vector<double> offline_rates;
  std::vector<double> served_rates;
  std::vector<double> losses;
  for (int i = -1; i < options.rounds; ++i) {
    ASSIGN_OR_RETURN(const double one,
                     run_offline(*engine, clock, rng, next_id, options.output_tokens));
    ASSIGN_OR_RETURN(const double other, run_served(load, clock));
    const double loss = 100 * (1 - other / one);
    fmt::print("  {:.2f} and {:.2f}: {:.2f} % lost{}\n", one, other, loss,
               i < 0 ? " (warm-up, not counted)" : "");
    std::fflush(stdout);
    if (i < 0) continue;
    offline_rates.push_back(one);
    served_rates.push_back(other);
    losses.push_back(loss);
  }
  figures.push_back({"offline throughput", median(offline_rates), "tokens/s", 0});
  figures.push_back({"served throughput", median(served_rates), "tokens/s", 0});
  figures.push_back({"throughput lost by serving", median(losses), "%", 3});
  return {};
}

// ---------------------------------------------------------------- idle connections

struct Sockets {
  std::vector<int> open;
  Sockets() = default;
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() {
    for (const int socket : open) close(socket);
  }
};

// One call that passes a worker, so that the connection has had all of its buffers.
Status call_once(int socket) {
  const std::string body = R"({"model":"bench","prompt":"Once upon a time"})";
  RETURN_IF_ERROR(send_all(
      socket,
      fmt::format("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body)));
  std::string answer;
  char buffer[4096];
  while (!answer.ends_with("}")) {
    const ssize_t count = recv(socket, buffer, sizeof(buffer), 0);
    if (count <= 0) return unavailable("the server has closed an idle connection");
    answer.append(buffer, static_cast<std::size_t>(count));
  }
  return answer.starts_with("HTTP/1.1 200") ? Status()
                                            : unavailable("/tokenize answered: " + answer);
}

Status measure_idle(const Options& options, std::vector<Figure>& figures) {
  fmt::print("idle: {} connections\n", kIdleConnections);
  if (http::raise_open_files_limit() < kIdleConnections + 100) {
    return unavailable("this process may not open that many files");
  }
  ASSIGN_OR_RETURN(const ServerProcess server, start_server(options, options.demo));
  Sockets sockets;
  ASSIGN_OR_RETURN(const int first, connect_to(server.port()));
  sockets.open.push_back(first);
  for (int i = 0; i < 200; ++i) RETURN_IF_ERROR(call_once(first));
  std::vector<double> megabytes;
  ASSIGN_OR_RETURN(std::int64_t before, server.resident_bytes());
  for (const bool used : {false, true}) {
    for (int i = 0; !used && i < kIdleConnections; ++i) {
      ASSIGN_OR_RETURN(const int socket, connect_to(server.port()));
      sockets.open.push_back(socket);
    }
    // The last one's answer shows that all have been accepted.
    const std::size_t from = used ? 1 : sockets.open.size() - 1;
    for (std::size_t i = from; i < sockets.open.size(); ++i) {
      RETURN_IF_ERROR(call_once(sockets.open[i]));
    }
    ASSIGN_OR_RETURN(const std::int64_t after, server.resident_bytes());
    megabytes.push_back(static_cast<double>(after - before) / 1e6 * 1000 / kIdleConnections);
  }
  figures.push_back({"1,000 connections, unused", megabytes[0], "MB", 10});
  figures.push_back({"1,000 connections, after a call", megabytes[1], "MB", 10});
  return {};
}

// ---------------------------------------------------------------- all

void print_table(const std::vector<Figure>& figures) {
  fmt::print("\n| figure | measured | goal |\n|---|---|---|\n");
  for (const Figure& figure : figures) {
    fmt::print("| {} | {:.4g} {} | {} |\n", figure.name, figure.value, figure.unit,
               figure.goal > 0 ? fmt::format("at most {:g} {}", figure.goal, figure.unit) : "");
  }
}

Status write_json(const std::string& path, const std::vector<Figure>& figures) {
  std::string text = "[";
  for (const Figure& figure : figures) {
    text +=
        fmt::format("{}\n  {{\"name\": \"{}\", \"value\": {:.6g}, \"unit\": \"{}\", \"goal\": {}}}",
                    text.size() > 1 ? "," : "", figure.name, figure.value, figure.unit,
                    figure.goal > 0 ? fmt::format("{:g}", figure.goal) : "null");
  }
  std::ofstream out(path);
  out << text << "\n]\n";
  return out ? Status() : unavailable(path + " cannot be written");
}

Status run(const Options& options) {
  std::vector<Figure> figures;
  const auto wanted = [&](const char* name) {
    return options.only.empty() || options.only == name;
  };
  if (wanted("idle")) RETURN_IF_ERROR(measure_idle(options, figures));
  if (wanted("dispatch")) RETURN_IF_ERROR(measure_dispatch(options, figures));
  if (wanted("overhead")) {
    if (options.model.empty()) {
      return invalid_argument("overhead needs --model; or leave it out with --only");
    }
    RETURN_IF_ERROR(measure_overhead(options, figures));
  }
  print_table(figures);
  return options.json.empty() ? Status() : write_json(options.json, figures);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("Measures `sluice serve`.");
  app.add_option("--sluice", options.sluice, "the binary to measure")->capture_default_str();
  app.add_option("--demo", options.demo, "for dispatch and idle")->capture_default_str();
  app.add_option("--model", options.model, "for overhead");
  app.add_option("--only", options.only)->check(CLI::IsMember({"dispatch", "overhead", "idle"}));
  app.add_option("--rounds", options.rounds, "of which the median counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "of the engines")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--output-tokens", options.output_tokens, "of the overhead's requests")
      ->check(CLI::Range(1, 2000))
      ->capture_default_str();
  app.add_option("--json", options.json, "where to write the figures as JSON");
  CLI11_PARSE(app, argc, argv);
  const auto status = sluice::bench::run(options);
  if (status) return 0;
  fmt::print(stderr, "server_bench: {}\n", status.error().message);
  return 1;
}
