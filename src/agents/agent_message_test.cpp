#include "agents/agent_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

using testing::HasSubstr;

AgentReport report() {
  AgentReport report;
  report.agent = "a";
  report.epoch = 7;
  report.sequence = 3;
  report.free_bytes = 5;
  report.draining = true;
  report.backbones = {{"demo", BackboneLoad::kLoading, 0, 0},
                      {"other", BackboneLoad::kLoaded, 2, 50}};
  report.adapters = {{"demo", "d7", std::chrono::microseconds(1500)}};
  report.instances = {{1, 100}, {2, 0}};
  return report;
}

TEST(AgentMessage, MessagesSurviveTheirJson) {
  AgentJoin join;
  join.agent = "a";
  join.key = "k3";
  join.earlier_joins = {"k1", "k2"};
  join.cores = 2;
  join.turn_cores = 1;
  join.memory_bytes = 3;
  join.max_functions = 4;
  join.backbones = {{"demo", "d1"}};
  const auto joined = parse_agent_join(agent_json(join));
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->agent, "a");
  EXPECT_EQ(joined->earlier_joins, join.earlier_joins);
  EXPECT_EQ(joined->max_functions, 4);
  EXPECT_EQ(joined->backbones, join.backbones);
  const auto reported = parse_agent_report(agent_json(report()));
  ASSERT_TRUE(reported) << reported.error().message;
  EXPECT_EQ(reported->sequence, 3U);
  EXPECT_TRUE(reported->draining);
  EXPECT_EQ(reported->instances[0].own_bytes, 100);
  EXPECT_EQ(reported->backbones, report().backbones);
  EXPECT_EQ(reported->adapters, report().adapters);
  const auto call = parse_agent_call(agent_json(AgentCall{"a", 9}));
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->epoch, 9U);
  const std::vector<GatewayBackbone> backbones = {{"demo", "/m", "d", 16}};
  EXPECT_EQ(*parse_gateway_backbones(gateway_backbones_json(backbones)), backbones);
}

TEST(AgentMessage, AnswersSurviveTheirJson) {
  AgentAnswer answer;
  answer.epoch = 5;
  answer.expiry = std::chrono::seconds(2);
  const auto read = parse_agent_answer(agent_answer_json(answer));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->epoch, 5U);
  EXPECT_EQ(read->expiry, answer.expiry);
  for (const AgentFault fault :
       {AgentFault::kBadRequest, AgentFault::kWrongToken, AgentFault::kUnknownAgent,
        AgentFault::kUnknownName, AgentFault::kStaleEpoch, AgentFault::kRepeated,
        AgentFault::kNotReady}) {
    const auto refused = parse_agent_answer(agent_answer_json(agent_fault(fault, "why")));
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->fault, fault);
    EXPECT_EQ(refused->message, "why");
    EXPECT_GE(agent_fault_status(fault), 400);
  }
  for (const char* text : {"", "[]", "{}", R"({"epoch":-1,"expiry_ms":1})", R"({"error":{}})",
                           R"({"error":{"code":"odd"}})", R"({"epoch":1,"expiry_ms":"x"})"}) {
    EXPECT_FALSE(parse_agent_answer(text)) << text;
  }
}

struct Wrong {
  const char* from;
  const char* to;
  const char* field;
};

TEST(AgentMessage, WrongFieldsAreNamed) {
  const std::string right = agent_json(report());
  for (const Wrong& wrong :
       {Wrong{"\"epoch\":7", "\"epoch\":-7", "epoch"}, Wrong{"\"epoch\":7", "\"epoch\":0", "epoch"},
        Wrong{"\"epoch\":7", "\"epoch\":\"7\"", "epoch"},
        Wrong{"\"epoch\":7", "\"epoch\":99999999999999999999", "epoch"},
        Wrong{"\"sequence\":3", "\"sequence\":0", "sequence"},
        Wrong{"\"sequence\":3,", "", "sequence"},
        Wrong{"\"free_bytes\":5", "\"free_bytes\":-5", "free_bytes"},
        Wrong{"\"free_bytes\":5", "\"free_bytes\":1e300", "free_bytes"},
        Wrong{"\"id\":1", "\"id\":-1", "instances[0].id"},
        Wrong{"\"own_bytes\":100", "\"own_bytes\":-100", "instances[0].own_bytes"},
        Wrong{"\"draining\":true", "\"draining\":1", "draining"},
        Wrong{"\"draining\":true", "\"odd\":true", "odd"},
        Wrong{"\"agent\":\"a\"", "\"agent\":null", "agent"}}) {
    std::string text = right;
    const std::size_t place = text.find(wrong.from);
    ASSERT_NE(place, std::string::npos) << wrong.from;
    text.replace(place, std::string(wrong.from).size(), wrong.to);
    const auto read = parse_agent_report(text);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, HasSubstr(wrong.field)) << text;
  }
  for (const char* text : {"", "{", "[]", "7", "{}"}) EXPECT_FALSE(parse_agent_report(text));
  EXPECT_FALSE(parse_agent_report(std::string(1000, '[')));
}

}  // namespace
}  // namespace sluice
