#include "serverless/model_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serverless/functions_file.h"

namespace sluice {
namespace {

using testing::ElementsAre;

// Tenants 0 (a) and 1 (b); functions 0: demo of a, 1: poet of a, 2: poet of b, 3: other of b.
FunctionsFile small_file() {
  FunctionsFile file;
  file.backbones = {{"demo", "m", {}}, {"org/other", "n", {}}};
  file.tenants = {{"a", {}, {}}, {"b", {}, {}}};
  const auto add = [&](const char* name, int tenant, int backbone, const char* adapter) {
    FunctionSpec function;
    function.name = name;
    function.tenant = tenant;
    function.backbone = backbone;
    function.adapter = adapter;
    file.functions.push_back(function);
  };
  add("demo", 0, 0, "");
  add("poet", 0, 0, "d");
  add("poet", 1, 1, "e");
  add("org/other", 1, 1, "");
  file.aliases = {{"gpt-4o", "poet"}, {"base", "demo"}};
  return file;
}

TEST(ModelNamesTest, ResolvesWithinTheTenant) {
  const ModelNames names(small_file());
  EXPECT_EQ(*names.resolve(0, "demo"), 0);
  EXPECT_EQ(*names.resolve(0, "poet"), 1);
  EXPECT_EQ(*names.resolve(1, "poet"), 2);
  EXPECT_EQ(*names.resolve(1, "org/other"), 3);
  EXPECT_EQ(*names.resolve(0, "ft:demo:a:poet"), 1);
  EXPECT_EQ(*names.resolve(1, "ft:org/other:b:poet"), 2);
  EXPECT_EQ(*names.resolve(0, "gpt-4o"), 1);
  EXPECT_EQ(*names.resolve(1, "gpt-4o"), 2);
  EXPECT_EQ(*names.resolve(0, "base"), 0);
  EXPECT_THAT(names.functions_of(0), ElementsAre(0, 1));
  EXPECT_THAT(names.functions_of(1), ElementsAre(3, 2));
  EXPECT_TRUE(names.functions_of(7).empty());
  EXPECT_EQ(names.full_name(2), "ft:org/other:b:poet");
  EXPECT_EQ(names.full_name(3), "org/other");
}

TEST(ModelNamesTest, AnotherTenantsModelIsLikeNone) {
  const ModelNames names(small_file());
  for (const char* name :
       {"org/other", "ft:org/other:b:poet", "ft:demo:b:poet", "ft:other:a:poet", "ft:demo:a:demo",
        "ft::a:poet", "ft:demo:a:", "ft:", "nothing", "", "Poet", "poet ", "ft:demo:a:poet:x"}) {
    const auto found = names.resolve(0, name);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(found.error().message, "there is no model '" + std::string(name) + "' for this key");
  }
  EXPECT_FALSE(names.resolve(1, "base"));  // an alias of a model that only tenant 0 has
}

}  // namespace
}  // namespace sluice
