// HTTP over a Unix-domain socket: server and client, and the socket's file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "http/fetch.h"
#include "http/http_server.h"
#include "http/socket.h"

namespace sluice::http {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Answers with the method, the body and the peer's name.
class EchoHandler final : public Handler {
 public:
  std::optional<Response> admit(const Request&) override { return std::nullopt; }
  // Shared as every exchange is.
  void handle(std::shared_ptr<Exchange> exchange) override {
    const Request& request = exchange->request();
    exchange->respond(
        {200, "text/plain", {}, request.method + " " + request.body + " " + request.peer});
  }
  Response refusal(const Request&, int status, std::string message) override {
    return {status, "text/plain", {}, std::move(message)};
  }
};

class UnixSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "sluice-unix-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = name + "/s.sock";
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<std::unique_ptr<HttpServer>> listen(const std::string& path) {
    return HttpServer::listen_unix(loop_, path, {}, handler_, clock_);
  }
  std::string listen_error(const std::string& path) {
    const auto server = listen(path);
    return server ? "listens" : server.error().message;
  }
  HttpClientOptions options() const {
    HttpClientOptions options;
    options.url = *parse_base_url("unix:" + path_);
    return options;
  }

  EventLoop loop_;
  EchoHandler handler_;
  SystemClock clock_;
  fs::path folder_;
  std::string path_;
};

TEST_F(UnixSocketTest, ServesAClientAndRemovesItsFile) {
  auto server = listen(path_);
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_EQ((*server)->port(), 0);
  std::thread thread([&] { loop_.run(); });
  const std::string large(3 << 20, 'y');  // more than the socket's buffers hold
  const auto small = fetch(options(), {"GET", "/x", {}});
  const auto whole = fetch(options(), {"POST", "/x", large});
  loop_.stop();
  thread.join();
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_EQ(small->body, "GET  unix");
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->body, "POST " + large + " unix");
  server->reset();
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(UnixSocketTest, OnlyThisUserMayConnect) {
  const auto server = listen(path_);
  ASSERT_TRUE(server) << server.error().message;
  struct stat made = {};
  ASSERT_EQ(stat(path_.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0600U);
}

TEST_F(UnixSocketTest, ReplacesTheSocketOfADeadProcessOnly) {
  {
    const auto first = listen(path_);
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_THAT(listen_error(path_), HasSubstr(path_ + ": another process uses it"));
    fs::rename(path_, path_ + ".left");  // so that the server does not remove it
  }
  fs::rename(path_ + ".left", path_);
  EXPECT_EQ(listen_error(path_), "listens");
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(UnixSocketTest, LeavesTheFileOfItsSuccessor) {
  auto first = listen(path_);
  ASSERT_TRUE(first) << first.error().message;
  fs::remove(path_);
  const auto second = listen(path_);
  ASSERT_TRUE(second) << second.error().message;
  first->reset();
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(UnixSocketTest, SaysWhyItCannotListen) {
  std::ofstream(path_) << "a user's file";
  EXPECT_THAT(listen_error(path_), HasSubstr(path_ + ": the file exists and is not a socket"));
  EXPECT_TRUE(fs::exists(path_));
  EXPECT_THAT(listen_error(folder_ / "no" / "s.sock"), HasSubstr("No such file or directory"));
  EXPECT_THAT(listen_error(""), HasSubstr("empty"));
  EXPECT_THAT(listen_error("/" + std::string(107, 'a')), HasSubstr("108 bytes"));
}

TEST_F(UnixSocketTest, SaysWhyItCannotConnect) {
  const auto missing = fetch(options(), {"GET", "/x", {}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(missing.error().message,
              HasSubstr("cannot connect to unix:" + path_ + ": No such file or directory"));
}

}  // namespace
}  // namespace sluice::http
