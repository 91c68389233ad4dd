#include <gtest/gtest.h>

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
