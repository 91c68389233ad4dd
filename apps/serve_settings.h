// The options of `sluice serve`, parsed and checked before anything is loaded.
// Values: plain; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/isolated_model.h"
#include "apps/serve.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "http/http_server.h"
#include "lending/kv_division.h"
#include "server/origin_policy.h"
#include "server/threaded_engine_loop.h"

namespace sluice {

struct ServeSettings {
  std::string model_name;
  std::uint16_t port = 8000;
  http::HttpLimits limits;
  OriginPolicy origins;
  ThreadedEngineLoop::Options queue;
  Duration drain_timeout = std::chrono::seconds(30);
  Duration stream_keep_alive = std::chrono::seconds(15);
  int workers = 2;
  EngineOptions engine;
  WarmOptions warm;
  std::optional<FunctionSettings> functions;  // --isolation process
  std::optional<LendSettings> lend;           // --lend
};

// Over the functions of --isolation process.
KvDivision::Options kv_division(const LendSettings& lend, std::int32_t max_functions);

Result<ServeSettings> parse_serve_settings(const ServeArguments& arguments);

}  // namespace sluice
