#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// One F32 vector of `name` with the 4 bytes of `data`.
std::string one_tensor(const std::string& name, std::string_view data) {
  return safetensors_bytes(
      R"({")" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", data);
}

void write_sharded(const TempDirectory& directory) {
  directory.write("model-1.safetensors", one_tensor("b", "bbbb"));
  directory.write("model-2.safetensors", one_tensor("a", "aaaa"));
  directory.write("model.safetensors.index.json",
                  R"({"metadata":{"total_size":8},
                      "weight_map":{"b":"model-1.safetensors","a":"model-2.safetensors"}})");
}

std::string open_error(const TempDirectory& directory) {
  auto checkpoint = Checkpoint::open(directory.path());
  return checkpoint ? "no error" : checkpoint.error().message;
}

TEST(Checkpoint, OpensASingleFile) {
  const TempDirectory directory;
  directory.write("model.safetensors", one_tensor("w", "wwww"));
  auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->tensors().size(), 1U);
  EXPECT_EQ(checkpoint->data(checkpoint->tensors()[0])[0], std::byte{'w'});
  EXPECT_EQ(checkpoint->tensors()[0].bytes, 4U);
  EXPECT_GE(checkpoint->files()[0].fd(), 0);
}

TEST(Checkpoint, OpensShards) {
  const TempDirectory directory;
  write_sharded(directory);
  auto opened = Checkpoint::open(directory.path());
  ASSERT_TRUE(opened) << opened.error().message;
  const Checkpoint checkpoint = std::move(*opened);
  ASSERT_EQ(checkpoint.files().size(), 2U);
  ASSERT_EQ(checkpoint.tensors().size(), 2U);
  for (const char* name : {"a", "b"}) {
    const TensorInfo* tensor = checkpoint.find(name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(checkpoint.data(*tensor)[0], static_cast<std::byte>(name[0]));
  }
  EXPECT_EQ(checkpoint.find("c"), nullptr);
  EXPECT_THAT(checkpoint.file_of(*checkpoint.find("a")).path(), HasSubstr("model-2.safetensors"));
}

TEST(Checkpoint, NamesOfAModelWithoutItsHeadGetTheirPrefix) {
  const TempDirectory directory;
  directory.write("model-1.safetensors", one_tensor("embed_tokens.weight", "eeee"));
  directory.write("model-2.safetensors", one_tensor("norm.weight", "nnnn"));
  directory.write("model.safetensors.index.json",
                  R"({"weight_map":{"embed_tokens.weight":"model-1.safetensors",
                                    "norm.weight":"model-2.safetensors"}})");
  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight"}) {
    ASSERT_NE(checkpoint->find(name), nullptr) << name;
  }
  EXPECT_EQ(checkpoint->data(*checkpoint->find("model.norm.weight"))[0], std::byte{'n'});
}

TEST(Checkpoint, ShowsOnlyWhatTheIndexLists) {
  const TempDirectory directory;
  write_sharded(directory);
  directory.write("model.safetensors.index.json", R"({"weight_map":{"b":"model-1.safetensors"}})");
  auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->find("a"), nullptr);
}

TEST(Checkpoint, NamesMissingShardsAndTensors) {
  const TempDirectory directory;
  write_sharded(directory);
  directory.write("model-2.safetensors", one_tensor("other", "oooo"));
  EXPECT_THAT(open_error(directory), HasSubstr("model-2.safetensors: tensor \"a\" is missing"));
  std::filesystem::remove(directory.file("model-1.safetensors"));
  EXPECT_THAT(open_error(directory), HasSubstr("model-1.safetensors: is missing"));
  directory.write("model-1.safetensors", "junk");
  EXPECT_THAT(open_error(directory), HasSubstr("model-1.safetensors: 4 bytes are too short"));
}

TEST(Checkpoint, RefusesShardNamesThatArePaths) {
  const TempDirectory directory;
  for (const char* name :
       {"../model.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "", "x.bin",
        ".safetensors", "..\\\\x.safetensors", "x\\u0000.safetensors"}) {
    directory.write("model.safetensors.index.json",
                    std::string(R"({"weight_map":{"w":")") + name + R"("}})");
    EXPECT_THAT(open_error(directory), HasSubstr("is not a plain file name")) << name;
  }
}

TEST(Checkpoint, RefusesBrokenIndexes) {
  const std::string deep(1000, '[');
  const TempDirectory directory;
  for (const auto& [text, message] :
       {std::pair(deep.c_str(), "nested deeper than 64 levels"),
        std::pair("nonsense", "not valid JSON"), std::pair("[]", "expected an object"),
        std::pair("{}", "weight_map: expected an object"),
        std::pair(R"({"weight_map":[]})", "weight_map: expected an object"),
        std::pair(R"({"weight_map":{}})", "weight_map: is empty"),
        std::pair(R"({"weight_map":{"w":1}})", "\"w\": expected a file name")}) {
    directory.write("model.safetensors.index.json", text);
    EXPECT_THAT(open_error(directory), HasSubstr(message));
    EXPECT_THAT(open_error(directory), HasSubstr("model.safetensors.index.json"));
  }
}

TEST(Checkpoint, SaysWhatToDoWithOtherDirectories) {
  const TempDirectory directory;
  EXPECT_THAT(open_error(directory), HasSubstr("neither model.safetensors nor"));
  directory.write("pytorch_model.bin", "");
  EXPECT_THAT(open_error(directory), HasSubstr("pytorch_model.bin: pickled weights"));
  EXPECT_THAT(open_error(directory), HasSubstr("save_pretrained"));
}

TEST(Checkpoint, ADirectoryForAFileIsRefused) {
  const TempDirectory directory;
  std::filesystem::create_directory(directory.file("model.safetensors"));
  EXPECT_THAT(open_error(directory), HasSubstr("is a directory"));
}

TEST(SafetensorsIndex, ReadsWhatPythonWrites) {
  const auto entries = parse_safetensors_index(
      "\xEF\xBB\xBF{\"metadata\": {\"total_size\": 1000000000000000019884624838656}, "
      "\"weight_map\": {\"a\": \"x.safetensors\"}}");
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ(entries->front().first, "a");
}

}  // namespace
}  // namespace sluice
