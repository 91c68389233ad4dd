// The gateway's page and its routes: GET / and /chat, GET /gateway/state, POST /gateway/actions.
// Threads: the event loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "apps/gateway_host.h"
#include "gateway/function_loops.h"
#include "gateway/function_models.h"
#include "gateway/gateway_state.h"
#include "gateway/usage_book.h"
#include "server/own_route.h"
#include "serverless/functions_file.h"

namespace sluice {

// The parts of a gateway that its page shows and changes. REQUIRES: they outlive the routes.
struct GatewayParts {
  const FunctionsFile& file;
  const std::vector<std::int32_t>& numbers;  // of the file's functions; empty: it still loads
  const FunctionModels& models;
  FunctionLoops& functions;
  const UsageBook& book;
  const PriceList& prices;
  const InstanceHost& host;
  std::int32_t max_instances = 0;
  std::function<const AgentHub*()> agents;  // null: there are none
  std::function<std::string_view()> state;
  std::function<Duration()> uptime;
  std::function<Status()> reload;
};

std::vector<OwnRoute> admin_routes(const GatewayParts& parts);

}  // namespace sluice
