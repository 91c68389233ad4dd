// Real templates: each parses, and each golden case (rendered by jinja2) is equal.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/json.h"
#include "chat_template/chat_template.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::chrono::local_days kGoldenDay{std::chrono::year(2024) / std::chrono::July / 26};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class GoldenTemplates : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("SLUICE_SHARED_DATA");
    if (shared == nullptr || !fs::exists(fs::path(shared) / "templates")) {
      GTEST_SKIP() << "SLUICE_SHARED_DATA is not set or has no templates/: nothing was compared";
    }
    root_ = fs::path(shared) / "templates";
  }

  fs::path root_;
};

TEST_F(GoldenTemplates, EveryTemplateParses) {
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    if (entry.path().extension() != ".jinja") continue;
    const auto parsed = ChatTemplate::parse(read(entry.path()), entry.path().filename().string());
    EXPECT_TRUE(parsed) << parsed.error().message;
    ++count;
  }
  EXPECT_GE(count, 80);
}

// "TemplateError: x" of jinja2 is "chat template NAME, line N: x" here; other errors keep their
// type.
void expect_error(const std::string& expected, const Result<std::string>& actual) {
  ASSERT_FALSE(actual) << "rendered: " << *actual;
  EXPECT_EQ(actual.error().code, ErrorCode::kInvalidArgument);
  constexpr std::string_view kRaised = "TemplateError: ";
  const std::string_view message = std::string_view(expected).starts_with(kRaised)
                                       ? std::string_view(expected).substr(kRaised.size())
                                       : std::string_view(expected);
  EXPECT_TRUE(actual.error().message.ends_with(": " + std::string(message)))
      << actual.error().message << "\nexpected: " << message;
  EXPECT_NE(actual.error().message.find(", line "), std::string::npos) << actual.error().message;
}

TEST_F(GoldenTemplates, EveryCaseIsEqual) {
  const ordered_json golden = parse_ordered_json(read(root_ / "golden_rendered.json"));
  int errors = 0;
  for (const auto& item : golden.at("cases")) {
    const auto file = item.at("template").get<std::string>();
    const auto context_name = item.at("context").get<std::string>();
    SCOPED_TRACE(file + " " + context_name);
    ordered_json variables = golden.at("base");
    variables.update(golden.at("contexts").at(context_name));
    const auto parsed = ChatTemplate::parse(read(root_ / file), file);
    ASSERT_TRUE(parsed) << parsed.error().message;
    const auto context = ChatContext::from_json(dump_json(variables), kGoldenDay);
    ASSERT_TRUE(context) << context.error().message;
    const Result<std::string> text = parsed->render(*context);
    if (item.contains("error")) {
      expect_error(item.at("error").get<std::string>(), text);
      ++errors;
    } else {
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_EQ(*text, item.at("expected").get<std::string>());
    }
  }
  EXPECT_GE(golden.at("cases").size(), 252U);
  EXPECT_GE(errors, 11);
}

}  // namespace
}  // namespace sluice
