#include "front/text_sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerJson = R"({"model": {"type": "BPE", "merges": ["a b"],
    "vocab": {"a": 0, "b": 1, "ab": 2}}})";
constexpr const char* kConfigJson = R"({"eos_token": "b", "chat_template": "{{ eos_token }}!"})";

class TextSections : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sluice_text_sections_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    write("tokenizer.json", kTokenizerJson);
    write("tokenizer_config.json", kConfigJson);
  }
  void TearDown() override { fs::remove_all(directory_); }

  void write(const char* name, const std::string& text) {
    std::ofstream(fs::path(directory_) / name) << text;
  }
  std::string file() const { return directory_ + "/snapshot"; }

  static Snapshot open(const SnapshotChoice& choice, const std::string& digest = "1") {
    auto snapshot = Snapshot::open(choice, {.config = "c", .tokenizer = digest}, nullptr);
    EXPECT_TRUE(snapshot) << snapshot.error().message;
    return *std::move(snapshot);
  }

  // A file with both sections.
  void save() {
    Snapshot snapshot = open({SnapshotMode::kCollect});
    const auto tokenizer = load_tokenizer(directory_, snapshot);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->source, TokenizerSource::kFiles);
    ASSERT_TRUE(load_chat_templates(directory_, snapshot));
    snapshot.collect();
    ASSERT_TRUE(snapshot.write(file(), OldSections::kDrop, [](auto, auto) {}));
  }

  std::string directory_;
};

TEST_F(TextSections, WithBothSectionsNoJsonIsParsed) {
  save();
  // Nothing could be made of these files.
  write("tokenizer.json", "no JSON");
  write("tokenizer_config.json", "no JSON");
  Snapshot snapshot = open({SnapshotMode::kFile, file()});
  const auto tokenizer = load_tokenizer(directory_, snapshot);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->source, TokenizerSource::kSnapshot);
  EXPECT_THAT(*tokenizer->tokenizer.encode("abb"), testing::ElementsAre(2, 1));
  EXPECT_EQ(tokenizer->tokenizer.eos_id(), 1);
  const auto templates = load_chat_templates(directory_, snapshot);
  ASSERT_TRUE(templates) << templates.error().message;
  EXPECT_TRUE(templates->choose(ToolsGiven::kNo));
  EXPECT_THAT(templates->special_tokens(), testing::ElementsAre(testing::Pair("eos_token", "b")));
}

TEST_F(TextSections, OtherFilesAreReadAgain) {
  save();
  write("tokenizer_config.json", R"({"eos_token": "a"})");
  Snapshot snapshot = open({SnapshotMode::kFile, file()}, "2");
  const auto tokenizer = load_tokenizer(directory_, snapshot);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->source, TokenizerSource::kFiles);
  EXPECT_EQ(tokenizer->tokenizer.eos_id(), 0);
  EXPECT_EQ(load_chat_templates(directory_, snapshot).error().code, ErrorCode::kNotFound);
}

TEST_F(TextSections, ASnapshotIsNotAskedForATokenizerThatIsNotThere) {
  save();
  fs::remove(fs::path(directory_) / "tokenizer.json");
  Snapshot snapshot = open({SnapshotMode::kFile, file()});
  EXPECT_EQ(load_tokenizer(directory_, snapshot).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(snapshot.outcomes().empty());
}

TEST_F(TextSections, SectionsThatDoNotFitAreMadeNatively) {
  Snapshot collect = open({SnapshotMode::kCollect});
  const std::vector<std::byte> nonsense(100);
  const SnapshotKey key = {{"tokenizer files", "1"}};
  collect.offer(kTokenizerSection, key, [&] { return nonsense; });
  collect.offer(kChatTemplatesSection, key, [&] { return nonsense; });
  collect.collect();
  ASSERT_TRUE(collect.write(file(), OldSections::kDrop, [](auto, auto) {}));
  Snapshot snapshot = open({SnapshotMode::kFile, file()});
  const auto tokenizer = load_tokenizer(directory_, snapshot);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->source, TokenizerSource::kFiles);
  EXPECT_TRUE(load_chat_templates(directory_, snapshot));
  ASSERT_EQ(snapshot.outcomes().size(), 2u);
  EXPECT_THAT(snapshot.outcomes()[0].reason, testing::HasSubstr("tokenizer image"));
  EXPECT_THAT(snapshot.outcomes()[1].reason, testing::HasSubstr("chat templates"));
}

}  // namespace
}  // namespace sluice
