#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/work_pace.h"
#include "chat_template/chat_template.h"

namespace sluice {
namespace {

bool reads_parts(std::string_view source) {
  const auto parsed = ChatTemplate::parse(source, "t.jinja");
  EXPECT_TRUE(parsed) << source;
  return parsed && parsed->reads_content_parts();
}

TEST(ContentAnalysis, FindsLoopsOverContent) {
  for (const char* source : {
           "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}",
           "{% for m in messages %}{% for p in m['content'] %}{% endfor %}{% endfor %}",
           "{% for m in messages %}{% for p in m.get('content') %}{% endfor %}{% endfor %}",
           "{% for m in messages %}{% for p in m.content | selectattr('type', 'equalto', 'text') %}"
           "{% endfor %}{% endfor %}",
           "{% set m = messages[0] %}{% set c = m.content or [] %}{% for p in c[1:] %}{% endfor %}",
           "{% macro show(content) %}{% if content is string %}{{ content }}{% else %}"
           "{% for p in content %}{{ p.text }}{% endfor %}{% endif %}{% endmacro %}"
           "{{ show(messages[0].content) }}",
           "{% with c = messages[0]['content'] %}{% for p in c %}{% endfor %}{% endwith %}",
       }) {
    EXPECT_TRUE(reads_parts(source)) << source;
  }
}

TEST(ContentAnalysis, OtherLoopsDoNotCount) {
  for (const char* source : {
           "{% for m in messages %}{{ m.content }}{% endfor %}",
           "{% for m in messages %}{% for c in m.tool_calls %}{{ c.content }}{% endfor %}"
           "{% endfor %}",
           "{% for line in messages[0].content.split('\\n') %}{{ line }}{% endfor %}",
           "{% set c = messages[0].content.split(',') %}{% for p in c %}{% endfor %}",
           "{% macro show(content) %}{{ content }}{% endmacro %}",
       }) {
    EXPECT_FALSE(reads_parts(source)) << source;
  }
}

TEST(ContentAnalysis, FindsQuestionsForNone) {
  const auto asks = [](std::string_view source) {
    return ChatTemplate::parse(source, "t.jinja").value().asks_for_no_content();
  };
  for (const char* source : {
           "{% for m in messages %}{% if m['content'] is none %}{% endif %}{% endfor %}",
           "{% for m in messages %}{{ m.role if m.content is not none }}{% endfor %}",
           "{% for m in messages if m.content != none %}{% endfor %}",
           "{% set c = messages[0].content %}{{ [c == None] }}",
           "{% macro show(content) %}{% if true %}{% elif content is none %}{% endif %}{% endmacro "
           "%}",
       }) {
    EXPECT_TRUE(asks(source)) << source;
  }
  for (const char* source : {
           "{% for m in messages %}{% if m.tool_calls is none %}{{ m.content }}{% endif %}{% "
           "endfor %}",
           "{% if messages[0].content == '' %}{% endif %}{{ messages[0].content is string }}",
           "{% if messages[0].content.x is none %}{% endif %}{% set content = none %}",
       }) {
    EXPECT_FALSE(asks(source)) << source;
  }
}

TEST(ContentAnalysis, VariablesSetFromOneAnotherTakeNoSquareOfTheTemplate) {
  const auto chain = [](int variables) {
    std::string source;
    for (int i = 0; i < variables; ++i) {
      const std::string n = std::to_string(i);
      source += "{% set a" + n + "=a" + std::to_string(i + 1) + " %}";
    }
    return source + "{% set a" + std::to_string(variables) +
           "=messages[0].content %}{% for part in a0 %}{% endfor %}";
  };
  EXPECT_TRUE(reads_parts(chain(3)));
  const ThreadCpuClock clock;  // other processes may use the cores
  const TimePoint start = clock.now();
  reads_parts(chain(20000));
  EXPECT_LT(clock.now() - start, std::chrono::seconds(10));
}

TEST(ContentAnalysis, FindsTools) {
  const auto reads_tools = [](std::string_view source) {
    return ChatTemplate::parse(source, "t.jinja").value().reads_tools();
  };
  EXPECT_TRUE(reads_tools("{% if tools %}{{ tools | tojson }}{% endif %}"));
  EXPECT_TRUE(reads_tools("{% for tool in tools or [] %}{{ tool }}{% endfor %}"));
  EXPECT_FALSE(reads_tools("{{ messages[0].tools }}{{ messages[0]['tools'] }} tools"));
}

}  // namespace
}  // namespace sluice
