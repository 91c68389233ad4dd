#include "apps/model_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ModelPlaceTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    const fs::path model = root_ / "hub" / "models--Qwen--Qwen2.5-0.5B";
    fs::create_directories(model / "refs" / "refs");
    fs::create_directories(model / "snapshots" / "abc123");
    fs::create_directories(model / "snapshots" / "def456");
    std::ofstream(model / "refs" / "main") << "abc123";
    std::ofstream(model / "refs" / "refs" / "pr-1") << "def456\n";
    std::ofstream(model / "refs" / "broken") << "../../..";
    for (const char* name : kVariables) unsetenv(name);
    setenv("HF_HOME", root_.c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : kVariables) unsetenv(name);
    fs::remove_all(root_);
  }

  std::string snapshot(const char* commit) const {
    return (root_ / "hub" / "models--Qwen--Qwen2.5-0.5B" / "snapshots" / commit).string();
  }

  static constexpr const char* kVariables[] = {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"};
  const fs::path root_ =
      fs::path(testing::TempDir()) / ("model_place_test_" + std::to_string(getpid()));
};

TEST_F(ModelPlaceTest, ARepositoryIsFoundInTheCache) {
  const auto place = find_model("Qwen/Qwen2.5-0.5B", "");
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->directory, snapshot("abc123"));
  EXPECT_EQ(place->repository, "Qwen/Qwen2.5-0.5B");
  EXPECT_EQ(find_model("Qwen/Qwen2.5-0.5B", "refs/pr-1")->directory, snapshot("def456"));
  EXPECT_EQ(find_model("Qwen/Qwen2.5-0.5B", "def456")->directory, snapshot("def456"));
}

TEST_F(ModelPlaceTest, TheVariablesNameTheCache) {
  EXPECT_EQ(hugging_face_cache(), (root_ / "hub").string());
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(hugging_face_cache(), (root_ / "hub").string());
  unsetenv("HF_HOME");
  EXPECT_EQ(hugging_face_cache(), "/x/huggingface/hub");
  setenv("HF_HUB_CACHE", "/y", 1);
  EXPECT_EQ(hugging_face_cache(), "/y");
}

TEST_F(ModelPlaceTest, AMissingModelNamesTheDownload) {
  const auto missing = find_model("Qwen/Qwen3-8B", "");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("hf download Qwen/Qwen3-8B"));
  EXPECT_THAT(missing.error().message, HasSubstr((root_ / "hub").string()));
  EXPECT_THAT(find_model("Qwen/Qwen2.5-0.5B", "v2").error().message,
              HasSubstr("hf download Qwen/Qwen2.5-0.5B --revision v2"));
}

TEST_F(ModelPlaceTest, DirectoriesAndPathsStayAsTheyAre) {
  EXPECT_EQ(find_model("models/demo", "")->directory, "models/demo");
  EXPECT_FALSE(find_model("models/demo", "")->repository);
  EXPECT_THAT(find_model("models/demo", "main").error().message, HasSubstr("is a directory"));
  EXPECT_EQ(find_model("model.gguf", "")->directory, "model.gguf");
  EXPECT_THAT(find_model("model.gguf", "main").error().message, HasSubstr("is a file"));
  for (const char* path : {"/no/such", "./no-such", "../x", "a/b/c", "no-such/"}) {
    const auto place = find_model(path, "");
    ASSERT_TRUE(place) << path;
    EXPECT_EQ(place->directory, path);
  }
}

TEST_F(ModelPlaceTest, NothingLeadsOutOfTheCache) {
  EXPECT_FALSE(find_model("Qwen/Qwen2.5-0.5B", "broken"));
  EXPECT_THAT(find_model("Qwen/Qwen2.5-0.5B", "../../x").error().message,
              HasSubstr("--revision must be a branch"));
}

}  // namespace
}  // namespace sluice
