// REST bodies between a gateway and its agents. Each line is a body, which goes to every parser. An
// accepted message survives its text, and no message breaks the book or renews a lease in vain.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "agents/agent_book.h"
#include "base/check.h"

namespace {

using namespace sluice;

void give_join(std::string_view line, TimePoint now, AgentBook& book) {
  const auto join = parse_agent_join(line);
  if (!join) return;
  CHECK(join->cores > 0 && join->memory_bytes > 0 && join->max_functions > 0);
  const std::string written = agent_json(*join);
  const auto again = parse_agent_join(written);
  CHECK(again && agent_json(*again) == written);
  const AgentBook::Joined joined = book.join(now, *join);
  const auto answer = parse_agent_answer(agent_answer_json(joined.answer));
  CHECK(answer && answer->fault == joined.answer.fault && answer->epoch == joined.answer.epoch);
}

void give_report(std::string_view line, TimePoint now, AgentBook& book) {
  const auto report = parse_agent_report(line);
  if (!report) return;
  CHECK(report->free_bytes >= 0 && report->sequence > 0);
  const std::string written = agent_json(*report);
  const auto again = parse_agent_report(written);
  CHECK(again && agent_json(*again) == written);
  const AgentAnswer answer = book.check_next(report->agent, report->epoch, report->sequence);
  if (answer.fault != AgentFault::kNone) return;
  book.accept(now, report->agent, report->sequence);
  CHECK(book.check_next(report->agent, report->epoch, report->sequence).fault ==
        AgentFault::kRepeated);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  AgentBook book(std::chrono::seconds(5), 1);
  book.set_backbones({{"demo", "/m", "d1", 16}});
  TimePoint now{std::chrono::seconds(1)};
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    give_join(line, now, book);
    give_report(line, now, book);
    if (const auto call = parse_agent_call(line)) {
      static_cast<void>(book.check(now, call->agent, call->epoch));
    }
    static_cast<void>(parse_agent_answer(line));
    if (const auto backbones = parse_gateway_backbones(line)) {
      CHECK(*parse_gateway_backbones(gateway_backbones_json(*backbones)) == *backbones);
    }
    now = now + std::chrono::milliseconds(700);
    static_cast<void>(book.advance(now));
    CHECK(book.size() <= AgentBook::kMaxAgents);
  }
  return 0;
}
