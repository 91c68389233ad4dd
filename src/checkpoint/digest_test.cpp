#include "checkpoint/digest.h"

#include <gtest/gtest.h>

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

TEST(ContentDigest, SeesEveryByteAndReadsAFileOnce) {
  const TempDirectory directory;
  const std::string data(3 << 20, 'x');
  directory.write("model.safetensors", model_bytes(data));
  FileDigestCache cache;
  auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint);
  const auto first = content_digest(*checkpoint, cache);
  ASSERT_TRUE(first);
  EXPECT_EQ(*content_digest(*checkpoint, cache), *first);
  EXPECT_EQ(cache.files_read(), 1U);

  std::string other = data;
  other[12345] = 'y';
  std::filesystem::remove(directory.file("model.safetensors"));
  directory.write("model.safetensors", model_bytes(other));
  auto changed = Checkpoint::open(directory.path());
  ASSERT_TRUE(changed);
  EXPECT_NE(*content_digest(*changed, cache), *first);
  EXPECT_EQ(cache.files_read(), 2U);
}

TEST(ContentDigest, AFileThatShrinksIsAnError) {
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
