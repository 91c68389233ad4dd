#include "gateway/gateway_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(GatewayState, ATenantsStateHasItsFunctionsAndNoMachine) {
  GatewayState state;
  state.state = "ready";
  state.uptime = seconds(5);
  state.currency = "$";
  state.functions_total = 2;
  FunctionView view;
  view.phase = FunctionPhase::kReady;
  view.running = 3;
  view.calls = 7;
  view.ttft = {{milliseconds(2), milliseconds(9)}};
  view.adapter_bytes = 100;
  state.functions = {{"ft:demo:a:\"poet\"", "a", "demo", view, 0.25}, {"demo", "a", "demo", {}, 0}};
  const nlohmann::json json = parse_json(gateway_state_json(state));
  ASSERT_FALSE(json.is_discarded());
  EXPECT_FALSE(json.contains("machine"));
  EXPECT_EQ(json["functions"][0]["name"], "ft:demo:a:\"poet\"");
  EXPECT_EQ(json["functions"][0]["state"], "ready");
  EXPECT_EQ(json["functions"][0]["running"], 3);
  EXPECT_EQ(json["functions"][0]["cost"], 0.25);
  EXPECT_EQ(json["functions"][0]["adapter_bytes"], 100);
  EXPECT_EQ(json["functions"][0]["ttft_ms"]["p99"], 9);
  EXPECT_EQ(json["functions"][1]["state"], "absent");
  EXPECT_FALSE(json["functions"][1].contains("ttft_ms"));
}

TEST(GatewayState, AnAdminsStateHasTheMachine) {
  GatewayState state;
  GatewayState::Machine machine;
  machine.counts.instances = 2;
  machine.counts.count(GatewayRefusal::kQueue);
  machine.max_instances = 8;
  machine.memory_bytes = 1000;
  machine.backbones = {
      {"demo", {true, false, 600, 2, 50}}, {"b", {false, true, 0, 0, 0}}, {"c", {}}};
  machine.agents = {{"one",
                     "open",
                     std::chrono::milliseconds(2500),
                     4,
                     500,
                     200,
                     {{"demo", "loaded", 2, 7}, {"b", "absent", 0, 0}},
                     {"poet", "a \"b\""}},
                    {"two", "gone", {}, 0, 0, 0, {}, {}}};
  state.machine = machine;
  const nlohmann::json json = parse_json(gateway_state_json(state));
  ASSERT_FALSE(json.is_discarded());
  const nlohmann::json shown = json["machine"];
  EXPECT_EQ(shown["instances"], 2);
  EXPECT_EQ(shown["max_instances"], 8);
  EXPECT_EQ(shown["refused"]["queue"], 1);
  EXPECT_EQ(shown["backbones"][0]["state"], "loaded");
  EXPECT_EQ(shown["backbones"][0]["worker_bytes"], 50);
  EXPECT_EQ(shown["backbones"][1]["state"], "loading");
  EXPECT_EQ(shown["backbones"][2]["state"], "absent");
  const nlohmann::json agent = shown["agents"][0];
  EXPECT_EQ(agent["state"], "open");
  EXPECT_EQ(agent["lease_s"], 2.5);
  EXPECT_EQ(agent["places"], 4);
  EXPECT_EQ(agent["free_bytes"], 200);
  EXPECT_EQ(agent["backbones"][0]["workers"], 2);
  EXPECT_EQ(agent["backbones"][0]["adapters"], 7);
  EXPECT_EQ(agent["backbones"][1]["state"], "absent");
  EXPECT_EQ(agent["functions"], nlohmann::json({"poet", "a \"b\""}));
  EXPECT_EQ(shown["agents"][1]["name"], "two");
  EXPECT_TRUE(shown["agents"][1]["functions"].empty());
}

}  // namespace
}  // namespace sluice
