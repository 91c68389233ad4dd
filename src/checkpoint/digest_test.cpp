#include "checkpoint/digest.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>

#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

std::string model_bytes(std::string_view data) {
  return safetensors_bytes(R"({"w":{"dtype":"U8","shape":[)" + std::to_string(data.size()) +
                               R"(],"data_offsets":[0,)" + std::to_string(data.size()) + "]}}",
                           data);
}

Sha256Digest model_digest_of(const TempDirectory& directory) {
  auto checkpoint = Checkpoint::open(directory.path());
  EXPECT_TRUE(checkpoint);
  auto digest = model_digest(*checkpoint);
  EXPECT_TRUE(digest);
  return *digest;
}

TEST(ModelDigest, DependsOnConfigWeightsAndNames) {
  const TempDirectory directory;
  const std::string data(200'000, 'x');
  directory.write("model.safetensors", model_bytes(data));
  directory.write("config.json", "{}");
  const auto original = model_digest_of(directory);
  EXPECT_EQ(model_digest_of(directory), original);

  directory.write("config.json", "{ }");
  EXPECT_NE(model_digest_of(directory), original);
  directory.write("config.json", "{}");
  EXPECT_EQ(model_digest_of(directory), original);

  for (const std::size_t changed : {std::size_t{0}, data.size() - 1}) {
    std::string other = data;
    other[changed] = 'y';
    directory.write("model.safetensors", model_bytes(other));
    EXPECT_NE(model_digest_of(directory), original) << changed;
  }
  directory.write("model.safetensors", model_bytes(data + "x"));
  EXPECT_NE(model_digest_of(directory), original);
}

TEST(ModelDigest, WorksWithoutConfigAndWithTinyFiles) {
  const TempDirectory directory;
  directory.write("model.safetensors", model_bytes("abc"));
  const auto without = model_digest_of(directory);
  directory.write("config.json", "");
  EXPECT_NE(model_digest_of(directory), without);
}

TEST(ContentDigest, SeesEveryByteOfItsOwnPartAlone) {
  const TempDirectory directory;
  const std::string data(3 << 20, 'x');
  directory.write("model.safetensors", model_bytes(data));
  directory.write("config.json", "{}");
  directory.write("tokenizer.json", "{}");
  const auto digests = [&] {
    FileDigests files;
    const auto checkpoint = Checkpoint::open(directory.path());
    EXPECT_TRUE(checkpoint);
    return std::array{config_digest(directory.path(), files).value(),
                      tokenizer_digest(directory.path(), files).value(),
                      weights_digest(*checkpoint, files).value()};
  };
  const auto first = digests();
  EXPECT_EQ(digests(), first);
  const auto expect_change = [&](std::size_t part) {
    const auto changed = digests();
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(changed[i] != first[i], i == part) << i << " of a change of " << part;
    }
  };
  directory.write("config.json", "{ }");
  expect_change(0);
  directory.write("config.json", "{}");
  directory.write("merges.txt", "");
  expect_change(1);
  std::filesystem::remove(directory.file("merges.txt"));
  std::string other = data;
  other[12345] = 'y';
  directory.write("model.safetensors", model_bytes(other));
  expect_change(2);
}

TEST(ModelDigest, AFileThatShrinksIsAnError) {
  const TempDirectory directory;
  directory.write("model.safetensors", model_bytes(std::string(3 << 20, 'x')));
  auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint);
  std::filesystem::resize_file(directory.file("model.safetensors"), 1000);
  const auto digest = model_digest(*checkpoint);
  ASSERT_FALSE(digest);
  EXPECT_EQ(digest.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace sluice
