#include "agents/agent_frames.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string command_text(const AgentCommand& command) { return text_of(*encode_command(command)); }

AgentCommand start_command() {
  AgentCommand command;
  command.kind = AgentCommandKind::kStart;
  command.instance = 3;
  command.time = TimePoint{Duration(17)};
  command.backbone = "demo";
  command.adapter = "abc";
  command.tenant = "t";
  return command;
}

AgentCommand frame_command(ToFunction frame) {
  AgentCommand command;
  command.kind = AgentCommandKind::kFrame;
  command.instance = 4;
  command.frame = std::move(frame);
  return command;
}

TEST(AgentFrames, CommandsSurviveAnyCutOfTheStream) {
  const std::string stream = command_text(start_command()) +
                             command_text(frame_command(CancelFrame{9})) + command_text({});
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    AgentCommandReader reader;
    std::vector<AgentCommand> read;
    const auto take = [&](AgentCommand command) -> Status {
      read.push_back(std::move(command));
      return {};
    };
    ASSERT_TRUE(reader.put(std::string_view(stream).substr(0, cut), take));
    ASSERT_TRUE(reader.put(std::string_view(stream).substr(cut), take));
    ASSERT_EQ(read.size(), 3U) << cut;
    EXPECT_EQ(read[0].backbone, "demo");
    EXPECT_EQ(read[0].adapter, "abc");
    EXPECT_EQ(read[0].tenant, "t");
    EXPECT_EQ(read[0].time, TimePoint{Duration(17)});
    EXPECT_EQ(std::get<CancelFrame>(*read[1].frame).request, 9U);
    EXPECT_EQ(read[2].kind, AgentCommandKind::kPing);
  }
}

AgentCommand plan_command() {
  AgentCommand command;
  command.kind = AgentCommandKind::kPlan;
  command.epoch = 12;
  command.plan = {{"demo", 2, {}}, {"other", 0, {"d1", "d2"}}};
  return command;
}

TEST(AgentFrames, APlanSurvivesItsBytes) {
  AgentCommandReader reader;
  std::vector<AgentCommand> read;
  ASSERT_TRUE(reader.put(command_text(plan_command()), [&](AgentCommand command) -> Status {
    read.push_back(std::move(command));
    return {};
  }));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].kind, AgentCommandKind::kPlan);
  EXPECT_EQ(read[0].epoch, 12U);
  EXPECT_EQ(read[0].plan, plan_command().plan);
}

TEST(AgentFrames, APlanWithAWrongNumberIsAnError) {
  const auto take = [](AgentCommand) -> Status { return {}; };
  const std::string right = command_text(plan_command());
  // The head has 24 bytes; the epoch, the number of backbones, and the first one follow.
  for (const std::size_t at : {24 + 8 + 3, 24 + 8, 24 + 12 + 4 + 4 + 3, 24 + 12 + 4 + 4 + 4 + 3}) {
    std::string wrong = right;
    wrong[at] = static_cast<char>(0x7f);
    AgentCommandReader reader;
    EXPECT_FALSE(reader.put(wrong, take)) << at;
  }
}

TEST(AgentFrames, ABrokenStreamIsAnError) {
  const auto take = [](AgentCommand) -> Status { return {}; };
  const std::string right = command_text(start_command());
  for (std::size_t i = 0; i < 8; ++i) {
    std::string wrong = right;
    wrong[i] = static_cast<char>(0xff);
    AgentCommandReader reader;
    const bool accepted = static_cast<bool>(reader.put(wrong, take));
    // A larger length only waits for more.
    EXPECT_TRUE(!accepted || i < 3) << i;
  }
  AgentCommandReader reader;
  EXPECT_FALSE(reader.put(std::string(4, '\0'), take));
}

TEST(AgentFrames, OutputsSurviveAndCutOnesAreRefused) {
  StateFrame state;
  state.state = EngineState::kReady;
  OutputBatch batch;
  batch.refused.push_back({5, invalid_argument("why")});
  const std::string body = text_of(*encode_output({1, Duration(10), state})) +
                           text_of(*encode_output({2, Duration(20), batch}));
  const auto outputs = decode_outputs(body);
  ASSERT_TRUE(outputs) << outputs.error().message;
  ASSERT_EQ(outputs->size(), 2U);
  EXPECT_EQ((*outputs)[0].instance, 1U);
  EXPECT_EQ(std::get<StateFrame>((*outputs)[0].frame).state, EngineState::kReady);
  EXPECT_EQ((*outputs)[1].turn_time, Duration(20));
  EXPECT_EQ(std::get<OutputBatch>((*outputs)[1].frame).refused.front().request, 5U);
  int whole = 0;
  for (std::size_t cut = 1; cut < body.size(); ++cut) {
    whole += decode_outputs(std::string_view(body).substr(0, cut)) ? 1 : 0;
  }
  EXPECT_EQ(whole, 1);  // between the two
  EXPECT_FALSE(decode_outputs(text_of(*encode_output({1, Duration(-1), state}))));
}

TEST(AgentFrames, TimesAreMovedBetweenClocks) {
  Request request;
  request.arrival = TimePoint{Duration(100)};
  request.deadline = TimePoint{Duration(200)};
  shift_times(Duration(-40), request);
  EXPECT_EQ(request.arrival, TimePoint{Duration(60)});
  EXPECT_EQ(*request.deadline, TimePoint{Duration(160)});
  OutputBatch batch;
  OutputEvent event;
  event.time = TimePoint{Duration(50)};
  batch.events.push_back(event);
  shift_times(Duration(7), batch);
  EXPECT_EQ(batch.events[0].time, TimePoint{Duration(57)});
  EXPECT_EQ(batch.events[0].first_scheduled, TimePoint{});  // it never ran
  batch.events[0].time = TimePoint{Duration::min()};
  shift_times(Duration(-7), batch);
  EXPECT_EQ(batch.events[0].time, TimePoint{Duration::min()});
}

}  // namespace
}  // namespace sluice
