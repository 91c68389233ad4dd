// Snapshots as a user sees them: a start with any file, whole or bad, gives the same tokens, and
// what does not fit is told in one line with the word "snapshot".
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "snapshot/snapshot_file.h"
#include "snapshot/snapshot_writer.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/subprocess.h"

namespace sluice {
namespace {

using nlohmann::json;
using test::ProcessResult;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ProcessResult run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SLUICE_BINARY);
  return test::run_process(arguments);
}

std::string content_of(const std::string& path) {
  return read_file(path, std::uint64_t{1} << 30).value_or("");
}

// The lines of stderr that speak of snapshots; the timeline has a span of that name.
std::vector<std::string> snapshot_lines(const std::string& err) {
  std::vector<std::string> lines;
  std::istringstream in(err);
  for (std::string line; std::getline(in, line);) {
    const bool timeline = line.find("start ") == 0;
    if (!timeline && line.find("snapshot") != std::string::npos) lines.push_back(line);
  }
  return lines;
}

// A copy of a snapshot in which one section has other contents, with right hashes.
class ChangedSnapshot {
 public:
  template <class Change>
  ChangedSnapshot(const std::string& path, const std::string& kind, const Change& change) {
    auto file = SnapshotFile::open(path);
    if (!file) return;
    for (const SnapshotSection& section : file->table().sections) {
      auto bytes = file->copy(section).value();
      if (section.kind == kind) change(bytes);
      contents_.push_back(std::move(bytes));
      sections_.push_back({section.kind, section.version, section.key, {}});
    }
    for (std::size_t i = 0; i < sections_.size(); ++i) sections_[i].bytes = contents_[i];
  }
  Status write(const std::string& path, bool for_this_user_only = false) const {
    SnapshotWriteOptions options;
    options.for_this_user_only = for_this_user_only;
    return write_snapshot(path, sections_, options);
  }

 private:
  std::vector<std::vector<std::byte>> contents_;
  std::vector<NewSection> sections_;
};

void flip_first(std::vector<std::byte>& bytes) { bytes[0] ^= std::byte(1); }
void cut_in_half(std::vector<std::byte>& bytes) { bytes.resize(bytes.size() / 2); }

class SnapshotCliTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
    write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-gqa-tied-f32"),
                            model_.path());
    expected_ = tokens(generate({"--snapshot", "off"}));
    ASSERT_EQ(expected_.size(), 8U);
  }

  // Options of a small start, and those given; each once.
  static std::vector<std::string> small(const std::vector<std::string>& options = {}) {
    const std::pair<std::string, std::string> defaults[] = {{"--threads", "1"},
                                                            {"--max-num-seqs", "4"}};
    std::vector<std::string> all;
    for (const auto& [option, value] : defaults) {
      if (std::ranges::find(options, option) != options.end()) continue;
      all.push_back(option);
      all.push_back(value);
    }
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }
  ProcessResult generate(const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"generate",      model_.path(), "--prompt-ids", "1,2,3",
                                          "--temperature", "0",           "--max-tokens", "8",
                                          "--json",        "--ignore-eos"};
    for (const std::string& option : small(options)) arguments.push_back(option);
    return run(arguments);
  }
  ProcessResult save(const std::vector<std::string>& options = {}) const {
    std::vector<std::string> arguments = {"snapshot", "save", model_.path(), "-o", file_};
    for (const std::string& option : small(options)) arguments.push_back(option);
    return run(arguments);
  }
  static std::vector<int> tokens(const ProcessResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (result.exit_code != 0) return {};
    return parse_json(result.out)["output_tokens"].get<std::vector<int>>();
  }
  // One start with the file: right tokens, and one line that says `what`.
  void expect_told(const std::string& what, std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"--snapshot", file_});
    const ProcessResult result = generate(options);
    EXPECT_EQ(tokens(result), expected_) << what;
    const auto lines = snapshot_lines(result.err);
    ASSERT_EQ(lines.size(), 1U) << what << "\n" << result.err;
    EXPECT_THAT(lines[0], HasSubstr(what));
  }

  TempDirectory cache_;
  TempDirectory model_;
  TempDirectory folder_;
  std::string file_ = folder_.file("f.snapshot");
  std::vector<int> expected_;
};

// A start from files names a span "tokenizer JSON", a start from a snapshot "tokenizer".
TEST_F(SnapshotCliTest, SecondStartParsesNoTokenizerJson) {
  const auto chat = [&](const std::string& snapshot) {
    return run({"generate", "models/demo", "--chat", "What is a queue?", "--temperature", "0",
                "--max-tokens", "4", "--json", "--threads", "1", "--snapshot", snapshot});
  };
  const ProcessResult off = chat("off");
  const auto expected = tokens(off);
  EXPECT_THAT(off.err, HasSubstr("tokenizer JSON"));
  const ProcessResult first = chat("auto");
  EXPECT_EQ(tokens(first), expected);
  EXPECT_THAT(first.err, HasSubstr("tokenizer JSON"));
  const ProcessResult second = chat("auto");
  EXPECT_EQ(tokens(second), expected);
  EXPECT_THAT(second.err, AllOf(HasSubstr("tokenizer "), Not(HasSubstr("JSON"))));

  const ProcessResult saved = run({"snapshot", "save", "models/demo", "-o", file_});
  EXPECT_THAT(saved.out, HasSubstr("tokenizer, chat-templates"));
  const ProcessResult named = chat(file_);
  EXPECT_EQ(tokens(named), expected);
  EXPECT_THAT(named.err, Not(HasSubstr("JSON")));
}

TEST_F(SnapshotCliTest, SavesInspectsAndVerifies) {
  const ProcessResult saved = save();
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_THAT(saved.out, HasSubstr("saved rope, graphs, canary, model in"));

  const ProcessResult text = run({"snapshot", "inspect", file_});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("graphs (version 2)"), HasSubstr("max-num-seqs: 4")));
  const json inspected = parse_json(run({"snapshot", "inspect", file_, "--json"}).out);
  ASSERT_EQ(inspected["sections"].size(), 4U);
  EXPECT_EQ(inspected["sections"][0]["kind"], "rope");
  EXPECT_EQ(inspected["sections"][2]["kind"], "canary");
  EXPECT_EQ(inspected["sections"][3]["kind"], "model");
  EXPECT_EQ(inspected["bytes"], std::filesystem::file_size(file_));
  EXPECT_EQ(inspected["sections"][1]["depends_on"]["max-num-seqs"], "4");

  std::vector<std::string> arguments = {"snapshot", "verify", file_, model_.path(), "--json"};
  for (const std::string& option : small()) arguments.push_back(option);
  const ProcessResult verified = run(arguments);
  ASSERT_EQ(verified.exit_code, 0) << verified.err;
  const json result = parse_json(verified.out);
  EXPECT_TRUE(result["equal"]);
  EXPECT_EQ(result["with"]["tokens"], result["without"]["tokens"]);
  EXPECT_EQ(result["with"]["logits"], result["without"]["logits"]);
  EXPECT_EQ(result["with"]["logit_rows"], 16) << "the prompt twice, without graphs and with";
  ASSERT_EQ(result["sections"].size(), 3U);
  for (const json& section : result["sections"]) EXPECT_EQ(section["made"], "restored");
  EXPECT_EQ(result["sections"][2]["placed"], "layout");
  arguments.insert(arguments.end(), {"--restore", "relocate"});
  const json relocated = parse_json(run(arguments).out);
  EXPECT_TRUE(relocated["equal"]);
  EXPECT_EQ(relocated["sections"][2]["placed"], "relocate");

  const ProcessResult used = generate({"--snapshot", file_});
  EXPECT_EQ(tokens(used), expected_);
  EXPECT_THAT(snapshot_lines(used.err), IsEmpty());
}

TEST_F(SnapshotCliTest, AutoKeepsAndRestoresAndOffDoesNeither) {
  const std::string folder = cache_.file("sluice/snapshots");
  EXPECT_FALSE(std::filesystem::exists(folder)) << "off keeps nothing";
  for (int start = 0; start < 3; ++start) {
    const ProcessResult result = generate({});
    EXPECT_EQ(tokens(result), expected_);
    EXPECT_THAT(snapshot_lines(result.err), IsEmpty());
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files += entry.path().extension() == ".snapshot" ? 1 : 0;
    struct stat info{};
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U) << entry.path();
  }
  EXPECT_EQ(files, 1);
}

TEST_F(SnapshotCliTest, SectionsForOtherOptionsAreAdded) {
  ASSERT_EQ(save().exit_code, 0);
  ASSERT_EQ(save({"--add", "--dtype", "bf16"}).exit_code, 0);
  const auto file = SnapshotFile::open(file_);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->table().sections.size(), 6U) << "graphs and canary twice, rope and model once";
  EXPECT_THAT(snapshot_lines(generate({"--snapshot", file_}).err), IsEmpty());
  EXPECT_THAT(snapshot_lines(generate({"--snapshot", file_, "--dtype", "bf16"}).err), IsEmpty());
}

TEST_F(SnapshotCliTest, AStartThatTheFileIsNotForIsNative) {
  ASSERT_EQ(save().exit_code, 0);
  expect_told("was made for max-num-seqs '4', this start has '5'", {"--max-num-seqs", "5"});
  const ProcessResult bf16 = generate({"--snapshot", file_, "--dtype", "bf16"});
  EXPECT_THAT(snapshot_lines(bf16.err),
              testing::ElementsAre(HasSubstr("section 'graphs' was made for dtype 'f32")));
  // Graphs do not depend on the number of threads.
  const ProcessResult threads = generate({"--snapshot", file_, "--threads", "2"});
  EXPECT_EQ(tokens(threads), expected_);
  EXPECT_THAT(snapshot_lines(threads.err), IsEmpty());
  // Another model: the same shape with another configuration.
  std::string config = content_of(model_.file("config.json"));
  model_.write("config.json", config + "\n");
  const ProcessResult other = generate({"--snapshot", file_});
  EXPECT_EQ(tokens(other), expected_);
  EXPECT_THAT(snapshot_lines(other.err),
              testing::UnorderedElementsAre(HasSubstr("'graphs' was made for config.json '"),
                                            HasSubstr("'rope' was made for config.json '")));
}

TEST_F(SnapshotCliTest, BadFilesAreToldAndTheTokensAreRight) {
  ASSERT_EQ(save({"--add"}).exit_code, 0);
  const std::string whole = content_of(file_);
  const auto write = [&](const std::string& bytes) { folder_.write("f.snapshot", bytes); };
  const auto flipped = [&](std::size_t at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x20);
    return bytes;
  };
  const auto file = SnapshotFile::open(file_);
  ASSERT_TRUE(file);
  const auto blob = static_cast<std::size_t>(file->table().blobs[0].offset);
  const auto graphs = static_cast<std::size_t>(file->table().blobs[1].offset);
  write(whole.substr(0, 30));
  expect_told("is truncated");
  write(whole.substr(0, blob));
  expect_told("it is truncated or damaged");
  write(whole.substr(0, whole.size() - 1));
  expect_told("it is truncated or damaged");
  write("");
  expect_told("is not a snapshot");
  write(flipped(0));
  expect_told("is not a snapshot");
  write(flipped(8));
  expect_told("has format");
  write(flipped(20));
  expect_told("the header is damaged");
  write(flipped(100));
  expect_told("the table is damaged");
  write(flipped(blob + 10));
  expect_told("section 'rope' is damaged");
  write(flipped(graphs + 10));
  expect_told("section 'graphs' is damaged");
  write(flipped(whole.size() - 1));
  expect_told("section 'model' is damaged");
  write(whole);
  const ProcessResult good = generate({"--snapshot", file_});
  EXPECT_THAT(snapshot_lines(good.err), IsEmpty());
}

TEST_F(SnapshotCliTest, DamageInASectionForAnotherStartIsToldToo) {
  ASSERT_EQ(save({"--dtype", "bf16"}).exit_code, 0);
  ASSERT_EQ(save({"--add"}).exit_code, 0);
  const auto file = SnapshotFile::open(file_);
  ASSERT_TRUE(file);
  std::string bytes = content_of(file_);
  std::size_t blob = 0;
  for (const SnapshotSection& section : file->table().sections) {
    if (section.kind == "graphs") blob = section.blob;  // the last one is the old one
  }
  const std::size_t unused = file->table().blobs[blob].offset;
  bytes[unused + 50] = static_cast<char>(bytes[unused + 50] ^ 1);
  folder_.write("f.snapshot", bytes);
  expect_told("section 'graphs' is damaged");
  EXPECT_EQ(run({"snapshot", "inspect", file_}).exit_code, 1);
  EXPECT_EQ(run({"snapshot", "verify", file_, model_.path()}).exit_code, 1);
}

// Each section that a start reads: half of it, and all of it with a flipped bit.
TEST_F(SnapshotCliTest, EachSectionCutOrFlippedIsToldAndMadeNatively) {
  folder_.write("chat.json", R"([{"role":"system","content":"You are a helpful and quick cat."}])");
  const auto run_demo = [](std::vector<std::string> arguments) {
    for (const char* option : {"--threads", "1", "--dtype", "fp8"}) arguments.emplace_back(option);
    return run(std::move(arguments));
  };
  const std::string whole = folder_.file("whole.snapshot");
  ASSERT_EQ(run_demo({"snapshot", "save", "models/demo", "-o", whole, "--weights", "--warm",
                      folder_.file("chat.json")})
                .exit_code,
            0);
  const auto ask = [&](const std::string& snapshot) {
    return run_demo({"generate", "models/demo", "--chat", "Hi", "--temperature", "0",
                     "--max-tokens", "4", "--json", "--snapshot", snapshot});
  };
  const std::vector<int> expected = tokens(ask("off"));
  const auto expect_told = [&](const std::string& what) {
    const ProcessResult result = ask(file_);
    EXPECT_EQ(tokens(result), expected) << what;
    EXPECT_THAT(snapshot_lines(result.err), testing::ElementsAre(HasSubstr(what)));
  };
  const auto file = SnapshotFile::open(whole);
  ASSERT_TRUE(file);
  const std::string bytes = content_of(whole);
  int sections = 0;
  for (const SnapshotSection& section : file->table().sections) {
    const std::string name = "section '" + section.kind + "' ";
    std::string flipped = bytes;
    char& byte = flipped[static_cast<std::size_t>(file->table().blobs[section.blob].offset) + 1];
    byte = static_cast<char>(byte ^ 4);
    folder_.write("f.snapshot", flipped);
    expect_told(name + "is damaged");
    if (section.kind == "canary" || section.kind == "model") continue;  // not read by generate
    ASSERT_TRUE(ChangedSnapshot(whole, section.kind, cut_in_half).write(file_));
    expect_told(name + "does not fit");
    ++sections;
  }
  EXPECT_EQ(sections, 6);
}

// Both starts of verify, and generate, are asked a turn behind the prompt.
TEST_F(SnapshotCliTest, WarmPromptsServeGenerateAndAreVerified) {
  std::string system;
  for (int i = 0; i < 12; ++i) system += "You are a helpful cat. ";
  const std::string messages = R"({"messages":[{"role":"system","content":")" + system + R"("}]})";
  folder_.write("chat.json", messages);
  ASSERT_EQ(run({"snapshot", "save", "models/demo", "-o", file_, "--threads", "1", "--warm",
                 folder_.file("chat.json")})
                .exit_code,
            0);
  const ProcessResult verified =
      run({"snapshot", "verify", file_, "models/demo", "--threads", "1", "--json"});
  ASSERT_EQ(verified.exit_code, 0) << verified.err;
  const json result = parse_json(verified.out);
  EXPECT_TRUE(result["equal"]);
  EXPECT_EQ(result["with"]["logit_rows"], 24);
  bool restored = false;
  for (const json& section : result["sections"]) {
    restored |= section["kind"] == "warm-prompts" && section["made"] == "restored";
  }
  EXPECT_TRUE(restored) << verified.out;

  const json chat = parse_json(
      run({"tokenize", "models/demo", "--chat", folder_.file("chat.json"), "--json"}).out);
  std::string ids;
  for (const json& id : chat["ids"]) ids += (ids.empty() ? "" : ",") + dump_json(id);
  const auto ask = [&](const std::string& snapshot) {
    return parse_json(run({"generate", "models/demo", "--prompt-ids", ids, "--temperature", "0",
                           "--max-tokens", "6", "--json", "--threads", "1", "--snapshot", snapshot})
                          .out);
  };
  const json cold = ask("off");
  const json warm = ask(file_);
  EXPECT_EQ(warm["output_tokens"], cold["output_tokens"]);
  EXPECT_EQ(cold["cached_tokens"], 0);
  EXPECT_GE(warm["cached_tokens"].get<int>(), 32);
}

// A start on a machine without a profile measures first, unless the file has one.
TEST_F(SnapshotCliTest, TheMachineProfileTravelsAlong) {
  ASSERT_EQ(save({"--token-budget", "auto"}).exit_code, 0);
  const TempDirectory other;
  setenv("XDG_CACHE_HOME", other.path().c_str(), 1);
  const ProcessResult result = generate({"--snapshot", file_, "--token-budget", "auto"});
  EXPECT_EQ(tokens(result), expected_);
  EXPECT_THAT(result.err, Not(HasSubstr("makes a better one")));
  EXPECT_THAT(snapshot_lines(result.err), IsEmpty());
  json inspected = parse_json(run({"snapshot", "inspect", file_, "--json"}).out);
  EXPECT_EQ(inspected["sections"][0]["kind"], "machine-profile") << inspected;
  EXPECT_EQ(inspected["sections"][0]["depends_on"]["threads"], "1");
  setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);  // which has the profile too
  ASSERT_TRUE(ChangedSnapshot(file_, "machine-profile", cut_in_half).write(file_));
  expect_told("section 'machine-profile' does not fit", {"--token-budget", "auto"});
}

ProcessResult serve_demo(const std::string& snapshot) {
  return run({"serve", "models/demo", "--port", "0", "--threads", "1", "--verify", "--access-log",
              "off", "--snapshot", snapshot});
}

// A file whose checksum is not this engine's: the server does not come up.
TEST_F(SnapshotCliTest, AWrongCanaryEndsTheStart) {
  ASSERT_EQ(run({"snapshot", "save", "models/demo", "-o", file_, "--threads", "1"}).exit_code, 0);
  const std::string wrong = folder_.file("wrong.snapshot");
  ASSERT_TRUE(ChangedSnapshot(file_, "canary", flip_first).write(wrong, false));
  const ProcessResult served = serve_demo(wrong);
  EXPECT_EQ(served.exit_code, 1);
  EXPECT_THAT(served.err, AllOf(HasSubstr(wrong), HasSubstr("the canary's logits are not those")));
  EXPECT_TRUE(std::filesystem::exists(wrong)) << "a file of the user's stays";
}

TEST_F(SnapshotCliTest, AutoRemovesItsFileWhenTheCanaryDiffers) {
  ASSERT_EQ(run({"generate", "models/demo", "--prompt", "a", "--max-tokens", "1", "--threads", "1"})
                .exit_code,
            0);
  std::string kept;
  for (const auto& entry : std::filesystem::directory_iterator(cache_.file("sluice/snapshots"))) {
    if (entry.path().extension() == ".snapshot") kept = entry.path().string();
  }
  ASSERT_FALSE(kept.empty());
  ASSERT_EQ(run({"snapshot", "save", "models/demo", "-o", file_, "--threads", "1"}).exit_code, 0);
  ASSERT_TRUE(ChangedSnapshot(file_, "canary", flip_first).write(kept, true));
  const ProcessResult served = serve_demo("auto");
  EXPECT_EQ(served.exit_code, 1);
  EXPECT_THAT(served.err, AllOf(HasSubstr(kept), HasSubstr("the canary's logits are not those")));
  EXPECT_FALSE(std::filesystem::exists(kept));
}

TEST_F(SnapshotCliTest, VerifyTellsOtherWeights) {
  ASSERT_EQ(save().exit_code, 0);
  std::string weights = content_of(model_.file("model.safetensors"));
  weights.back() = static_cast<char>(weights.back() ^ 1);
  model_.write("model.safetensors", weights);
  const ProcessResult verified =
      run({"snapshot", "verify", file_, model_.path(), "--threads", "1", "--max-num-seqs", "4"});
  EXPECT_EQ(verified.exit_code, 0) << "both starts use the model as it is";
  ASSERT_EQ(snapshot_lines(verified.err).size(), 1U) << verified.err;
  EXPECT_THAT(snapshot_lines(verified.err)[0], HasSubstr("'model' was made for weights '"));
}

TEST_F(SnapshotCliTest, WrongUseNamesTheOption) {
  const ProcessResult absent = generate({"--snapshot", folder_.file("absent")});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.err, AllOf(HasSubstr("--snapshot"), HasSubstr("absent")));
  EXPECT_EQ(run({"snapshot"}).exit_code, 2);
  EXPECT_EQ(run({"snapshot", "save", model_.path()}).exit_code, 2);
  EXPECT_EQ(save({"--snapshot", "off"}).exit_code, 2);
  EXPECT_EQ(save({"--restore", "layout"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(SnapshotCliTest, WithoutAHomeItSaysSoOnceAndRuns) {
  unsetenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string old = home != nullptr ? home : "";
  unsetenv("HOME");
  const ProcessResult none = generate({});
  if (home != nullptr) setenv("HOME", old.c_str(), 1);
  EXPECT_EQ(tokens(none), expected_);
  ASSERT_EQ(snapshot_lines(none.err).size(), 1U) << none.err;
  EXPECT_THAT(snapshot_lines(none.err)[0], HasSubstr("nothing is kept"));
}

TEST_F(SnapshotCliTest, ProfileReadsSnapshotsToo) {
  const ProcessResult absent =
      run({"profile", model_.path(), "--threads", "1", "--snapshot", folder_.file("absent")});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.err, AllOf(HasSubstr("--snapshot"), HasSubstr("absent")));
}

TEST_F(SnapshotCliTest, AFullDiskLeavesNothingHalf) {
  ASSERT_EQ(save().exit_code, 0);
  const std::string before = content_of(file_);
  const std::string command = "ulimit -f 4; exec " SLUICE_BINARY " snapshot save " + model_.path() +
                              " -o " + file_ + " --threads 1 --max-num-seqs 16";
  const ProcessResult full = test::run_process({"/bin/bash", "-c", command});
  EXPECT_EQ(full.exit_code, 1) << full.err;
  EXPECT_THAT(full.err, AllOf(HasSubstr("sluice: snapshot"), HasSubstr("cannot be written")));
  EXPECT_EQ(content_of(file_), before);
  EXPECT_FALSE(std::filesystem::exists(file_ + ".part"));
}

TEST_F(SnapshotCliTest, WeightsAreSavedVerifiedAndAFullDiskIsTold) {
  const std::vector<std::string> fp8 = {"--weights", "--dtype", "fp8"};
  const ProcessResult saved = save(fp8);
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_THAT(saved.out, HasSubstr("saved rope, weights, graphs, "));
  const ProcessResult verified = run({"snapshot", "verify", file_, model_.path(), "--dtype", "fp8",
                                      "--threads", "1", "--max-num-seqs", "4"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_THAT(verified.out, AllOf(HasSubstr("section weights: restored"), HasSubstr("equal"),
                                  Not(HasSubstr("DIFFERENT"))));
  const std::string before = content_of(file_);
  const std::string command = "ulimit -f 8; exec " SLUICE_BINARY " snapshot save " + model_.path() +
                              " -o " + file_ + " --weights --dtype fp8 --threads 1";
  const ProcessResult full = test::run_process({"/bin/bash", "-c", command});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.err, HasSubstr("cannot be written"));
  EXPECT_EQ(content_of(file_), before);
  const ProcessResult none = save({"--weights"});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_THAT(none.err, HasSubstr("--weights: this --dtype converts nothing"));
}

TEST_F(SnapshotCliTest, AutoOnAFullDiskSaysSoAndAnswers) {
  const std::string command = "ulimit -f 4; exec " SLUICE_BINARY " generate " + model_.path() +
                              " --prompt-ids 1,2,3 --temperature 0 --max-tokens 8 --json "
                              "--ignore-eos --threads 1 --max-num-seqs 4";
  const ProcessResult full = test::run_process({"/bin/bash", "-c", command});
  EXPECT_EQ(tokens(full), expected_);
  ASSERT_EQ(snapshot_lines(full.err).size(), 1U) << full.err;
  EXPECT_THAT(snapshot_lines(full.err)[0], HasSubstr("cannot be written"));
}

// The file is always whole: the old one or the new one. SLUICE_SNAPSHOT_KILLS: how often.
TEST_F(SnapshotCliTest, KilledWhileSavingTheOldFileStays) {
  ASSERT_EQ(save().exit_code, 0);
  const char* wanted = std::getenv("SLUICE_SNAPSHOT_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 10;
  int killed = 0;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const std::string seqs = std::to_string(4 + i % 2);
      const char* const dtype = i % 4 < 2 ? "auto" : "bf16";  // bf16 has converted weights too
      execl(SLUICE_BINARY, SLUICE_BINARY, "snapshot", "save", model_.path().c_str(), "-o",
            file_.c_str(), "--threads", "1", "--max-num-seqs", seqs.c_str(), "--weights", "--dtype",
            dtype, nullptr);
      _exit(127);
    }
    // Saving takes some 20 ms: any moment of it, a different one each time.
    std::this_thread::sleep_for(std::chrono::microseconds(1500 * (i * 7 % 20)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    killed += WIFSIGNALED(status) ? 1 : 0;
    auto file = SnapshotFile::open(file_);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(file->verify());
  }
  EXPECT_GT(killed, 0);
  ASSERT_EQ(save().exit_code, 0) << "the rest of a killed save must not stop the next save";
  EXPECT_EQ(tokens(generate({"--snapshot", file_})), expected_);
}

TEST_F(SnapshotCliTest, TwoSaversAtOnceGiveOneWholeFile) {
  ProcessResult results[2];
  std::thread other([&] { results[1] = save({"--max-num-seqs", "5"}); });
  results[0] = save();
  other.join();
  int saved = 0;
  for (const ProcessResult& result : results) {
    saved += result.exit_code == 0 ? 1 : 0;
    if (result.exit_code == 0) continue;
    EXPECT_THAT(result.err, HasSubstr("another process is writing it"));
  }
  EXPECT_GE(saved, 1);
  auto file = SnapshotFile::open(file_);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->verify());
}

}  // namespace
}  // namespace sluice
