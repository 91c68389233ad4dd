#include "server/access_log.h"
#include "base/json.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

namespace sluice {
namespace {

AccessRecord full_record() {
  AccessRecord record;
  record.request_id = "req-1";
  record.peer = "127.0.0.1:5";
  record.method = "POST";
  record.path = "/v1/chat/completions";
  record.model = "demo";
  record.client = "alice";
  record.status = 200;
  record.prompt_tokens = 12;
  record.cached_tokens = 0;
  record.completion_tokens = 3;
  record.ttft = std::chrono::microseconds(1500);
  record.total = std::chrono::milliseconds(20);
  record.finish_reason = "stop";
  record.bytes = 99;
  record.close_reason = "peer_gone";
  return record;
}

TEST(AccessLog, ALineHasEverything) {
  const auto line = parse_json(access_line(full_record(), 1'700'000'000'042));
  const nlohmann::json expected = {{"time", "2023-11-14T22:13:20.042Z"},
                                   {"request_id", "req-1"},
                                   {"peer", "127.0.0.1:5"},
                                   {"method", "POST"},
                                   {"path", "/v1/chat/completions"},
                                   {"status", 200},
                                   {"model", "demo"},
                                   {"client", "alice"},
                                   {"prompt_tokens", 12},
                                   {"cached_tokens", 0},
                                   {"completion_tokens", 3},
                                   {"ttft_ms", 1.5},
                                   {"total_ms", 20.0},
                                   {"finish_reason", "stop"},
                                   {"bytes", 99},
                                   {"close_reason", "peer_gone"}};
  EXPECT_EQ(line, expected);
}

TEST(AccessLog, HostileBytesStayOneValidLine) {
  AccessRecord record;
  record.path = "/a\"b\\c\n\x01\xff\xc3";
  record.client = "\xe2\x82";
  const std::string line = access_line(record, 0);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto parsed = parse_json(line);
  EXPECT_EQ(parsed.at("path"), "/a\"b\\c\n\x01\ufffd\ufffd");
}

TEST(AccessLog, NamesBeyondAsciiStayWhatTheyAre) {
  AccessRecord record;
  record.client = "Zoë";
  EXPECT_EQ(parse_json(access_line(record, 0)).at("client"), "Zoë");
}

TEST(AccessLog, AFileHasTheLinesInOrderAndIsAppendedTo) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("sluice-access-" + std::to_string(getpid()) + ".log");
  std::filesystem::remove(path);
  for (int round = 0; round < 2; ++round) {
    const auto log = AccessLog::open(path.string());
    ASSERT_TRUE(log) << log.error().message;
    for (int i = 0; i < 100; ++i) {
      AccessRecord record = full_record();
      record.bytes = round * 100 + i;
      (*log)->write(record);
    }
    EXPECT_EQ((*log)->lost_lines(), 0);
  }
  std::ifstream in(path);
  std::string line;
  int count = 0;
  while (std::getline(in, line)) EXPECT_EQ(parse_json(line).at("bytes"), count++);
  EXPECT_EQ(count, 200);
  std::filesystem::remove(path);
}

TEST(AccessLog, AStuckDiskCostsLinesAndNeverTheCaller) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("sluice-access-" + std::to_string(getpid()) + ".fifo");
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  // Opening a pipe for appending waits for a reader: this thread opens it and does not read.
  std::promise<void> release;
  std::thread reader([&] {
    std::ifstream in(path);
    release.get_future().wait();
    std::string line;
    while (std::getline(in, line)) {
    }
  });
  {
    const auto log = AccessLog::open(path.string());
    ASSERT_TRUE(log) << log.error().message;
    for (int i = 0; i < 20'000; ++i) (*log)->write(full_record());
    EXPECT_GT((*log)->lost_lines(), 1000);
    release.set_value();
  }
  reader.join();
  std::filesystem::remove(path);
}

TEST(AccessLog, OffWritesNothingAndABadFileIsNamed) {
  const auto off = AccessLog::open("off");
  ASSERT_TRUE(off);
  (*off)->write(full_record());
  const auto missing = AccessLog::open("/tmp/sluice-no-such-folder/access.log");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/tmp/sluice-no-such-folder"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists("/tmp/sluice-no-such-folder"));
  const auto directory = AccessLog::open("/tmp");
  ASSERT_FALSE(directory);
  EXPECT_NE(directory.error().message.find("--access-log /tmp"), std::string::npos);
}

}  // namespace
}  // namespace sluice
