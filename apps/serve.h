// `sluice serve MODEL`: the OpenAI-compatible server. It listens, loads the model on the engine's
// thread, and serves until SIGTERM or SIGINT, which drain it. A second signal ends it at once.
// Threads: the event loop runs on the caller's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/engine_arguments.h"
#include "apps/lend_session.h"
#include "apps/load_served_engine.h"

namespace sluice {

// As given; absent = not given.
struct ServeArguments {
  std::string config;  // a file of options; empty: none
  std::string model;
  std::string revision;
  std::string api_key;  // empty: none
  std::string host = "127.0.0.1";
  std::optional<std::string> port;
  std::string uds;            // a socket's path; empty: host and port
  std::string ssl_certfile;   // empty: no TLS
  std::string ssl_keyfile;    // empty: in the same file
  std::string chat_template;  // a file; empty: the checkpoint's
  std::optional<std::string> served_model_name;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> cors_origins;
  std::string api_key_file;
  std::string adapter_dir;
  std::optional<std::string> max_connections;
  std::optional<std::string> max_queue;
  std::optional<std::string> max_body_size;
  std::optional<std::string> header_timeout;
  std::optional<std::string> body_timeout;
  std::optional<std::string> idle_timeout;
  std::optional<std::string> write_timeout;
  std::optional<std::string> drain_timeout;
  std::optional<std::string> workers;
  bool strict_fields = false;
  AnswerParsers parsers;
  WarmArguments warm;
  std::optional<std::string> pin_limit;
  bool verify = false;
  std::optional<std::string> stream_keep_alive;
  std::string access_log = "stderr";
  std::string metrics_namespace = "sluice";
  std::string isolation = "none";
  std::optional<std::string> sandbox;
  std::optional<std::string> max_functions;
  std::optional<std::string> function_idle;
  std::optional<std::string> warm_workers;
  std::optional<std::string> turns;
  LendArguments lend;
  EngineOptionTexts engine;
};

// Returns the exit code.
int run_serve(const ServeArguments& arguments);

}  // namespace sluice
