// Our own small cases (expectations from jinja2, see tools/compare_templates.py), errors, limits.
#include "chat_template/chat_template.h"
#include "base/file.h"
#include "base/json.h"
#include "base/work_pace.h"
#include "tests/support/sanitized.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice {
namespace {

using nlohmann::ordered_json;

// Friday, 2024-07-26 13:05:09; the cases were made with the same time.
const std::chrono::local_seconds kNow =
    std::chrono::local_days(std::chrono::year(2024) / std::chrono::July / 26) +
    std::chrono::hours(13) + std::chrono::minutes(5) + std::chrono::seconds(9);

Result<std::string> render(std::string_view source, std::string_view context = "{}",
                           const RenderLimits& limits = {}) {
  ASSIGN_OR_RETURN(const ChatTemplate parsed, ChatTemplate::parse(source, "t.jinja"));
  ASSIGN_OR_RETURN(const ChatContext variables, ChatContext::from_json(context, kNow));
  return parsed.render(variables, limits);
}

std::string error_of(std::string_view source, std::string_view context = "{}",
                     const RenderLimits& limits = {}) {
  const Result<std::string> text = render(source, context, limits);
  return text ? "no error: " + *text : text.error().message;
}

// jinja2 prints "Type: message"; what a template raises itself has no type here.
void expect_same_error(const std::string& expected, const Error& error) {
  const std::string type = expected.substr(0, expected.find(": "));
  if (type == "TemplateSyntaxError" || type == "TemplateAssertionError" || type == "SyntaxError") {
    return;
  }
  const bool raised = type == "TemplateError";
  const std::string wanted = raised ? expected.substr(type.size() + 2) : type;
  EXPECT_NE(error.message.find(": " + wanted), std::string::npos)
      << error.message << "\nexpected " << expected;
}

TEST(ChatTemplateCases, AllEqualJinja2) {
  const auto file = read_file("src/chat_template/testdata/cases.json", 1 << 26);
  ASSERT_TRUE(file) << "run from the root of the repository";
  const ordered_json cases = parse_ordered_json(*file);
  ASSERT_GE(cases.size(), 300U);
  for (const auto& item : cases) {
    const auto source = item.at("template").get<std::string>();
    SCOPED_TRACE(source);
    const std::string context = item.contains("context") ? dump_json(item.at("context")) : "{}";
    const Result<std::string> text = render(source, context);
    if (item.contains("error")) {
      ASSERT_FALSE(text) << "rendered: " << *text;
      expect_same_error(item.at("error").get<std::string>(), text.error());
    } else {
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_EQ(*text, item.at("text").get<std::string>());
    }
  }
}

TEST(ChatTemplateErrors, NameTemplateAndLine) {
  EXPECT_EQ(error_of("a\nb\n{{ raise_exception('no system role') }}"),
            "chat template t.jinja, line 3: no system role");
  EXPECT_EQ(error_of("a\n{{ x.y }}"),
            "chat template t.jinja, line 2: UndefinedError: 'x' is undefined");
  EXPECT_EQ(error_of("{% if x %}\n{{ 1 +* 2 }}{% endif %}"),
            "chat template t.jinja, line 2: unexpected '*'");
  EXPECT_EQ(error_of("{% macro m() %}\n{{ 1/0 }}\n{% endmacro %}\n\n{{ m() }}"),
            "chat template t.jinja, line 2: ZeroDivisionError: division by zero");
  EXPECT_EQ(error_of("{% for x in y %}"),
            "chat template t.jinja, line 1: Unexpected end of template. Jinja was looking for the "
            "following tags: 'endfor' or 'else'. The innermost block that needs to be closed is "
            "'for'.");
}

TEST(ChatTemplateErrors, RefusedTagsSayWhy) {
  EXPECT_NE(error_of("{% include 'x' %}").find("'include' is not supported"), std::string::npos);
  EXPECT_NE(error_of("{% extends 'x' %}").find("'extends' is not supported"), std::string::npos);
}

TEST(ChatTemplateErrors, InvalidText) {
  EXPECT_NE(error_of("\xff").find("not valid UTF-8"), std::string::npos);
  EXPECT_NE(error_of(std::string(2 << 20, 'x')).find("1048576"), std::string::npos);
  EXPECT_NE(error_of("x", "{\"a\": \"\xff\"}").find("context: not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("x", "[1]").find("must be a JSON object"), std::string::npos);
}

struct Hostile {
  const char* name;
  const char* source;
  const char* limit;
};

class ChatTemplateLimits : public ::testing::TestWithParam<Hostile> {};

TEST_P(ChatTemplateLimits, EndsWithAnErrorSoon) {
  const ThreadCpuClock clock;  // other processes may use the cores
  const TimePoint start = clock.now();
  RenderLimits limits;
  if (kSanitized) limits.max_steps /= 8;
  const std::string error = error_of(GetParam().source, "{}", limits);
  EXPECT_NE(error.find(GetParam().limit), std::string::npos) << error;
  EXPECT_EQ(error.find("chat template t.jinja, line "), 0U) << error;
  EXPECT_LT(clock.now() - start, std::chrono::seconds(30));
}

INSTANTIATE_TEST_SUITE_P(
    Hostile, ChatTemplateLimits,
    ::testing::Values(
        Hostile{"nested_loops",
                "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                "limit of"},
        Hostile{"huge_range", "{% for a in range(10**9) %}{% endfor %}", "Range too big"},
        Hostile{"doubling",
                "{% set ns = namespace(s='xx') %}{% for a in range(99) %}"
                "{% set ns.s = ns.s + ns.s %}{% endfor %}",
                "limit of memory"},
        Hostile{"repeat", "{{ 'x' * 10**12 }}", "limit of memory"},
        Hostile{"list_repeat", "{{ [1] * 10**12 }}", "limit of memory"},
        Hostile{"replace", "{{ ('x' * 100000).replace('x', 'y' * 100000) }}", "limit of memory"},
        Hostile{"center", "{{ 'x'|center(10**12) }}", "limit of memory"},
        Hostile{"indent", "{{ 'x'|indent(10**12, true) }}", "limit of memory"},
        Hostile{"output",
                "{% set s = 'x' * 1000000 %}{% for a in range(99999) %}{{ s }}{% endfor %}",
                "limit of"},
        Hostile{"macro_recursion", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                "limit of nested calls"},
        Hostile{"loop_recursion", "{% for a in [1] recursive %}{{ loop([a]) }}{% endfor %}",
                "limit of nested calls"},
        Hostile{"nested_value",
                "{% set ns = namespace(s=[]) %}{% for a in range(9999) %}"
                "{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
                "limit of nesting"},
        Hostile{"nested_json",
                "{% set ns = namespace(s=[]) %}{% for a in range(9999) %}"
                "{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s|tojson }}",
                "limit of nesting"},
        Hostile{"nested_key",
                "{% set ns = namespace(s=()) %}{% for i in range(2) %}{% for a in range(99999) %}"
                "{% set ns.s = (ns.s,) %}{% endfor %}{% endfor %}{{ {ns.s: 1} }}",
                "unhashable"},
        Hostile{"cycle", "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}",
                "limit of nesting"},
        Hostile{"lazy_chain",
                "{% set ns = namespace(s=[1]) %}{% for a in range(9999) %}"
                "{% set ns.s = ns.s|map('string') %}{% endfor %}{{ ns.s|list }}",
                "limit of nested calls"},
        Hostile{"sort", "{{ (range(99999)|list * 1000)|sort|length }}", "limit of"},
        Hostile{"contains",
                "{% set l = range(99999)|list %}{% for a in range(99999) %}"
                "{% if 'x' in l %}{% endif %}{% endfor %}",
                "limit of steps"},
        Hostile{"scan",
                "{% set s = 'x' * 10000000 %}{% for a in range(99999) %}"
                "{% if 'y' in s %}{% endif %}{% endfor %}",
                "limit of steps"},
        Hostile{"format_width", "{{ '%999999999d' % 1 }}", "too big"},
        Hostile{"power", "{{ 10 ** 100 }}", "OverflowError"},
        Hostile{"large_number_in_text", "{{ '1e20'|int(7) }}", "OverflowError"},
        Hostile{"large_integer_in_text", "{{ '9223372036854775808'|int }}", "OverflowError"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ChatTemplateLimits, AreTheCallers) {
  RenderLimits limits;
  limits.max_output_bytes = 3;
  EXPECT_NE(error_of("abcd", "{}", limits).find("limit of output"), std::string::npos);
  EXPECT_EQ(*render("abc", "{}", limits), "abc");
  limits = {};
  limits.max_steps = 100;
  EXPECT_NE(error_of("{% for i in range(200) %}{% endfor %}", "{}", limits).find("limit of steps"),
            std::string::npos);
}

TEST(ChatTemplateLimits, DeepTextIsRefusedWhenParsed) {
  for (const std::string_view part : {"(", "[", "not ", "-", "{1:", "x if x else ", "a("}) {
    std::string source = "{{ ";
    for (int i = 0; i < 50000; ++i) source += part;
    EXPECT_NE(error_of(source).find("line 1: "), std::string::npos) << part;
  }
  for (const std::string_view part : {"+1", "|list", ".a", "[0]", "()", " and 1"}) {
    std::string source = "{{ 1";
    for (int i = 0; i < 50000; ++i) source += part;
    EXPECT_NE(error_of(source + " }}").find("nested deeper"), std::string::npos) << part;
  }
  std::string source;
  for (int i = 0; i < 10000; ++i) source += "{% if 1 %}";
  EXPECT_NE(error_of(source).find("nested deeper"), std::string::npos);
}

TEST(ChatTemplateTime, ComesFromTheContext) {
  EXPECT_EQ(*render("{{ strftime_now('%d %b %Y %H:%M') }}"), "26 Jul 2024 13:05");
}

TEST(ChatTemplateStop, EndsRenderingWithTheChecksError) {
  const auto parsed = ChatTemplate::parse(
      "{% for i in range(10000) %}{% for j in range(100) %}{{ j }}{% endfor %}{% endfor %}", "t");
  ASSERT_TRUE(parsed);
  const auto context = ChatContext::from_json("{}", kNow);
  ASSERT_TRUE(context);
  int asked = 0;
  const StopCheck stop = [&]() -> Status {
    if (++asked < 3) return {};
    return Error{ErrorCode::kDeadlineExceeded, "the time is over"};
  };
  const auto text = parsed->render(*context, {}, &stop);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(text.error().message, "the time is over");
  EXPECT_LT(asked, 10);
}

TEST(ChatTemplateStop, EndsLoopsInsideOneFilter) {
  const auto parsed = ChatTemplate::parse("{{ range(100000) | join(',') | length }}", "t");
  ASSERT_TRUE(parsed);
  const auto context = ChatContext::from_json("{}", kNow);
  const StopCheck stop = []() -> Status { return Error{ErrorCode::kCancelled, "left"}; };
  const auto text = parsed->render(*context, {}, &stop);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "left");
}

TEST(ChatTemplateStop, EndsReadingOfTheMessages) {
  std::string messages = "[";
  for (int i = 0; i < 50'000; ++i) messages += R"({"role":"user","content":"x"},)";
  messages.back() = ']';
  const StopCheck stop = []() -> Status { return Error{ErrorCode::kCancelled, "left"}; };
  ChatInput input;
  input.messages_json = messages;
  input.stop = &stop;
  const auto context = ChatContext::from_chat(input);
  ASSERT_FALSE(context);
  EXPECT_EQ(context.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(context.error().message, "left");
}

}  // namespace
}  // namespace sluice
