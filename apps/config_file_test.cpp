#include "apps/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::string& text) {
  const auto entries = parse_config(text, "c.yaml");
  return entries ? "" : entries.error().message;
}

TEST(ConfigFile, NamesAndTexts) {
  const auto entries = parse_config(
      "# a server\nmodel: models/demo\nmax_num_seqs: 0x10\nenable-prefix-caching: true\n"
      "adapter: [a=x, 'b=y: z']\nkv-cache-memory: \"1GiB\"\n",
      "c.yaml");
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 5U);
  EXPECT_EQ((*entries)[0].name, "model");
  EXPECT_EQ((*entries)[1].name, "max-num-seqs");
  EXPECT_THAT((*entries)[1].values, ElementsAre("0x10")) << "as written";
  EXPECT_EQ((*entries)[1].where, "c.yaml:3");
  EXPECT_THAT((*entries)[2].values, ElementsAre("true"));
  EXPECT_THAT((*entries)[3].values, ElementsAre("a=x", "b=y: z"));
  EXPECT_THAT((*entries)[4].values, ElementsAre("1GiB"));
  EXPECT_TRUE(parse_config("# nothing\n", "c.yaml")->empty());
}

TEST(ConfigFile, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(error_of("- a\n"), "c.yaml: must be a map from option names to values");
  EXPECT_EQ(error_of("port: 1\nport: 2\n"), "c.yaml:2: port is given twice");
  EXPECT_EQ(error_of("max-num-seqs: 1\nmax_num_seqs: 1\n"),
            "c.yaml:2: max-num-seqs is given twice");
  EXPECT_EQ(error_of("a: 1\nport:\n"), "c.yaml:2: port needs a value or a list of values");
  EXPECT_EQ(error_of("port: {a: 1}\n"), "c.yaml:1: port needs a value or a list of values");
  EXPECT_EQ(error_of("adapter: [[a]]\n"),
            "c.yaml:1: adapter has a list with something else than single values in it");
  EXPECT_EQ(error_of("? [a]\n: 1\n"), "c.yaml:1: an option's name must be a text");
  EXPECT_THAT(error_of("a: 1\nb: [1\n"), HasSubstr("c.yaml:3: not YAML: "));
  EXPECT_THAT(error_of("a: \"\\q\"\n"), HasSubstr("c.yaml:1: not YAML: "));
  EXPECT_THAT(error_of("a: *b\n"), HasSubstr("c.yaml:1: not YAML: "));
  const auto missing = read_config_file("/nonexistent/c.yaml");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/c.yaml"));
}

TEST(ConfigFile, HostileTextEndsSoon) {
  EXPECT_NE(error_of(std::string(100'000, '[')), "");
  EXPECT_NE(error_of("a: " + std::string(100'000, '{')), "");
  std::string bomb = "l0: &l0 [x, x]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string last = std::to_string(i - 1);
    bomb += "l" + std::to_string(i) + ": &l" + std::to_string(i) + " [*l" + last + ", *l" + last +
            "]\n";
  }
  EXPECT_THAT(error_of(bomb), HasSubstr("c.yaml:2: l1 has a list"));
}

}  // namespace
}  // namespace sluice
