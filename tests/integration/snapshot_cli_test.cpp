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
    return json::parse(result.out)["output_tokens"].get<std::vector<int>>();
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
  EXPECT_THAT(second.err, AllOf(HasSubstr("tokenizer "), testing::Not(HasSubstr("JSON"))));

  const ProcessResult saved = run({"snapshot", "save", "models/demo", "-o", file_});
  EXPECT_THAT(saved.out, HasSubstr("tokenizer, chat-templates"));
  const ProcessResult named = chat(file_);
  EXPECT_EQ(tokens(named), expected);
  EXPECT_THAT(named.err, testing::Not(HasSubstr("JSON")));
}

TEST_F(SnapshotCliTest, SavesInspectsAndVerifies) {
  const ProcessResult saved = save();
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_THAT(saved.out, HasSubstr("saved graphs, canary, model in"));

  const ProcessResult text = run({"snapshot", "inspect", file_});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("graphs (version 1)"), HasSubstr("max-num-seqs: 4")));
  const json inspected = json::parse(run({"snapshot", "inspect", file_, "--json"}).out);
  ASSERT_EQ(inspected["sections"].size(), 3U);
  EXPECT_EQ(inspected["sections"][1]["kind"], "canary");
  EXPECT_EQ(inspected["sections"][2]["kind"], "model");
  EXPECT_EQ(inspected["bytes"], std::filesystem::file_size(file_));
  EXPECT_EQ(inspected["sections"][0]["depends_on"]["max-num-seqs"], "4");

  std::vector<std::string> arguments = {"snapshot", "verify", file_, model_.path(), "--json"};
  for (const std::string& option : small()) arguments.push_back(option);
  const ProcessResult verified = run(arguments);
  ASSERT_EQ(verified.exit_code, 0) << verified.err;
  const json result = json::parse(verified.out);
  EXPECT_TRUE(result["equal"]);
  EXPECT_EQ(result["with"]["tokens"], result["without"]["tokens"]);
  EXPECT_EQ(result["with"]["logits"], result["without"]["logits"]);
  ASSERT_EQ(result["sections"].size(), 2U);
  EXPECT_EQ(result["sections"][0]["made"], "restored");
  EXPECT_EQ(result["sections"][1]["made"], "restored");

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
  EXPECT_EQ(file->table().sections.size(), 5U) << "graphs and canary twice, the model once";
  EXPECT_THAT(snapshot_lines(generate({"--snapshot", file_}).err), IsEmpty());
  EXPECT_THAT(snapshot_lines(generate({"--snapshot", file_, "--dtype", "bf16"}).err), IsEmpty());
}

TEST_F(SnapshotCliTest, AStartThatTheFileIsNotForIsNative) {
  ASSERT_EQ(save().exit_code, 0);
  expect_told("was made for max-num-seqs '4', this start has '5'", {"--max-num-seqs", "5"});
  const ProcessResult bf16 = generate({"--snapshot", file_, "--dtype", "bf16"});
  EXPECT_THAT(snapshot_lines(bf16.err),
              testing::ElementsAre(HasSubstr("section 'graphs' was made for dtype 'f32")));
  // Another machine, to the graphs: the device's description names its threads.
  expect_told("section 'graphs' was made for device '", {"--threads", "2"});
  // Another model: the same shape with another configuration.
  std::string config = content_of(model_.file("config.json"));
  model_.write("config.json", config + "\n");
  expect_told("was made for config.json '");
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

// A start on a machine without a profile measures first, unless the file has one.
TEST_F(SnapshotCliTest, TheMachineProfileTravelsAlong) {
  ASSERT_EQ(save({"--token-budget", "auto"}).exit_code, 0);
  const TempDirectory other;
  setenv("XDG_CACHE_HOME", other.path().c_str(), 1);
  const ProcessResult result = generate({"--snapshot", file_, "--token-budget", "auto"});
  EXPECT_EQ(tokens(result), expected_);
  EXPECT_THAT(result.err, testing::Not(HasSubstr("makes a better one")));
  EXPECT_THAT(snapshot_lines(result.err), IsEmpty());
  json inspected = json::parse(run({"snapshot", "inspect", file_, "--json"}).out);
  EXPECT_EQ(inspected["sections"][0]["kind"], "machine-profile") << inspected;
  EXPECT_EQ(inspected["sections"][0]["depends_on"]["threads"], "1");
}

// A file whose checksum is not this engine's: the server does not come up.
TEST_F(SnapshotCliTest, AWrongCanaryEndsTheStart) {
  ASSERT_EQ(run({"snapshot", "save", "models/demo", "-o", file_, "--threads", "1"}).exit_code, 0);
  auto file = SnapshotFile::open(file_);
  ASSERT_TRUE(file);
  std::vector<std::vector<std::byte>> contents;
  std::vector<NewSection> sections;
  for (const SnapshotSection& section : file->table().sections) {
    auto& bytes = contents.emplace_back(file->copy(section).value());
    if (section.kind == "canary") bytes[0] ^= std::byte(1);
  }
  for (std::size_t i = 0; i < contents.size(); ++i) {
    const SnapshotSection& section = file->table().sections[i];
    sections.push_back({section.kind, section.version, section.key, contents[i]});
  }
  const std::string wrong = folder_.file("wrong.snapshot");
  ASSERT_TRUE(write_snapshot(wrong, sections, {}));
  const ProcessResult served = run({"serve", "models/demo", "--port", "0", "--threads", "1",
                                    "--verify", "--access-log", "off", "--snapshot", wrong});
  EXPECT_EQ(served.exit_code, 1);
  EXPECT_THAT(served.err, AllOf(HasSubstr(wrong), HasSubstr("the canary's logits are not those")));
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
  EXPECT_THAT(save({"--enforce-eager"}).err, HasSubstr("nothing to save"));
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
      execl(SLUICE_BINARY, SLUICE_BINARY, "snapshot", "save", model_.path().c_str(), "-o",
            file_.c_str(), "--threads", "1", "--max-num-seqs", seqs.c_str(), nullptr);
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
