// TLS of the server with OpenSSL's own client: answers, long ones, slow handshakes, ends, and files
// that are wrong.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "http/test_client.h"
#include "http/test_server.h"
#include "http/tls.h"

namespace sluice::http {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using File = std::unique_ptr<std::FILE, Free<std::fclose>>;

// A certificate for 127.0.0.1 that signs itself, with its key, in two PEM files.
void write_certificate(const std::string& certificate_file, const std::string& key_file) {
  const Key key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, Free<X509_free>> certificate(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("127.0.0.1"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const File certificate_out(std::fopen(certificate_file.c_str(), "w"));
  const File key_out(std::fopen(key_file.c_str(), "w"));
  PEM_write_X509(certificate_out.get(), certificate.get());
  PEM_write_PrivateKey(key_out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
}

// A blocking client.
class TlsClient {
 public:
  explicit TlsClient(std::uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    const timeval patience{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    context_.reset(SSL_CTX_new(TLS_client_method()));
    session_.reset(SSL_new(context_.get()));
    SSL_set_fd(session_.get(), fd_);
  }
  ~TlsClient() { ::close(fd_); }

  bool handshake() { return connected_ && SSL_connect(session_.get()) == 1; }
  SSL* session() { return session_.get(); }
  bool send(std::string_view bytes) {
    return SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
           static_cast<int>(bytes.size());
  }
  // Until the server ends the session or the connection.
  std::string rest() {
    std::string all;
    char buffer[16384];
    for (;;) {
      const int bytes = SSL_read(session_.get(), buffer, sizeof(buffer));
      if (bytes <= 0) return all;
      all.append(buffer, static_cast<std::size_t>(bytes));
    }
  }
  // Whether the server has said that nothing more comes.
  bool ended() { return (SSL_get_shutdown(session_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }

 private:
  int fd_ = -1;
  bool connected_ = false;
  std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>> context_;
  std::unique_ptr<SSL, Free<SSL_free>> session_;
};

class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    std::string name = fs::temp_directory_path() / "sluice-tls-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    write_certificate(certificate(), key());
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string certificate() const { return folder_ / "cert.pem"; }
  std::string key() const { return folder_ / "key.pem"; }
  std::unique_ptr<TlsContext> context() { return TlsContext::load(certificate(), key()).value(); }
  std::string load_error(const std::string& certificate_file, const std::string& key_file) {
    const auto loaded = TlsContext::load(certificate_file, key_file);
    return loaded ? "loads" : loaded.error().message;
  }

  fs::path folder_;
};

constexpr std::string_view kGet = "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

TEST_F(TlsTest, AnswersAndEnds) {
  const auto tls = context();
  TestServer server({}, "127.0.0.1", tls.get());
  TlsClient client(server.port());
  ASSERT_TRUE(client.handshake());
  ASSERT_TRUE(client.send(kGet));
  EXPECT_THAT(client.rest(), HasSubstr("HTTP/1.1 200 OK"));
  EXPECT_TRUE(client.ended());
}

TEST_F(TlsTest, KeepsTheOrderOfLongBodiesBothWays) {
  const auto tls = context();
  HttpLimits limits;
  limits.body_bytes = 32 << 20;
  TestServer server(limits, "127.0.0.1", tls.get());
  // A small buffer, so that the server sends in many pieces that begin and end anywhere.
  TlsClient client(server.port(), 4096);
  ASSERT_TRUE(client.handshake());
  std::string body;
  for (int i = 0; body.size() < (3 << 20); ++i) body += std::to_string(i) + ",";
  ASSERT_TRUE(
      client.send("POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + body));
  const std::string answer = client.rest();
  ASSERT_GT(answer.size(), body.size());
  EXPECT_TRUE(answer.ends_with(body));
}

TEST_F(TlsTest, ReadsPipelinedRequestsThatCameInOneRecord) {
  const auto tls = context();
  TestServer server({}, "127.0.0.1", tls.get());
  TlsClient client(server.port());
  ASSERT_TRUE(client.handshake());
  const std::string first = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";
  ASSERT_TRUE(client.send(first + first + std::string(kGet)));
  const std::string answers = client.rest();
  std::size_t count = 0;
  for (std::size_t at = 0; (at = answers.find("HTTP/1.1 200", at)) != std::string::npos; ++at) {
    ++count;
  }
  EXPECT_EQ(count, 3U);
}

TEST_F(TlsTest, ASilentClientHoldsUpNoOther) {
  const auto tls = context();
  HttpLimits limits;
  limits.idle_timeout = std::chrono::milliseconds(1500);
  TestServer server(limits, "127.0.0.1", tls.get());
  TestClient silent(server.port());
  TestClient torn(server.port());
  ASSERT_TRUE(torn.send(std::string_view("\x16\x03\x01\x02\x00\x01", 6)));  // a cut hello
  TlsClient client(server.port());
  ASSERT_TRUE(client.handshake());
  ASSERT_TRUE(client.send(kGet));
  EXPECT_THAT(client.rest(), HasSubstr("200 OK"));
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(torn.closed());
}

TEST_F(TlsTest, PlainHttpGetsAPlainAnswer) {
  const auto tls = context();
  TestServer server({}, "127.0.0.1", tls.get());
  TestClient client(server.port());
  ASSERT_TRUE(client.send(kGet));
  const auto answer = client.rest();
  ASSERT_TRUE(answer);
  EXPECT_THAT(*answer, HasSubstr("400 Bad Request"));
  EXPECT_THAT(*answer, HasSubstr("https://"));
}

TEST_F(TlsTest, NoiseIsRefused) {
  const auto tls = context();
  TestServer server({}, "127.0.0.1", tls.get());
  TestClient client(server.port());
  ASSERT_TRUE(client.send(std::string(4096, '\x17')));
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(server.handled(), 0);
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  const auto tls = context();
  TestServer server({}, "127.0.0.1", tls.get());
  TlsClient client(server.port());
  SSL_set_security_level(client.session(), 0);
  SSL_set_min_proto_version(client.session(), TLS1_1_VERSION);
  SSL_set_max_proto_version(client.session(), TLS1_1_VERSION);
  EXPECT_FALSE(client.handshake());
}

TEST_F(TlsTest, ReloadTakesNewFilesAndKeepsTheOldOnAnError) {
  const auto tls = context();
  TestServer server({}, "127.0.0.1", tls.get());
  TlsClient before(server.port());
  ASSERT_TRUE(before.handshake());
  write_certificate(certificate(), key());
  server.on_loop([&] { EXPECT_TRUE(tls->reload()); });
  std::ofstream(certificate()) << "none";
  server.on_loop([&] { EXPECT_FALSE(tls->reload()); });
  ASSERT_TRUE(before.send(kGet));  // with the certificate from before
  EXPECT_THAT(before.rest(), HasSubstr("200 OK"));
  TlsClient after(server.port());
  ASSERT_TRUE(after.handshake());
  const auto digest = [](TlsClient& client) {
    const std::unique_ptr<X509, Free<X509_free>> shown(SSL_get1_peer_certificate(client.session()));
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    X509_digest(shown.get(), EVP_sha256(), out, &length);
    return std::string(reinterpret_cast<char*>(out), length);
  };
  EXPECT_NE(digest(before), digest(after));
}

TEST_F(TlsTest, WrongFilesAreNamed) {
  EXPECT_THAT(load_error(folder_ / "none.pem", key()), HasSubstr("none.pem"));
  EXPECT_THAT(load_error(certificate(), folder_ / "none.pem"), HasSubstr("none.pem"));
  EXPECT_THAT(load_error(key(), key()), HasSubstr("certificate"));
  const std::string other = folder_ / "other.pem";
  write_certificate(folder_ / "other-cert.pem", other);
  EXPECT_THAT(load_error(certificate(), other), HasSubstr("belong"));
  std::ofstream(folder_ / "both.pem")
      << std::ifstream(certificate()).rdbuf() << std::ifstream(key()).rdbuf();
  EXPECT_EQ(load_error(folder_ / "both.pem", folder_ / "both.pem"), "loads");
  {
    const Key secret(EVP_EC_gen("P-256"));
    const File out(std::fopen((folder_ / "secret.pem").c_str(), "w"));
    PEM_write_PrivateKey(out.get(), secret.get(), EVP_aes_128_cbc(),
                         reinterpret_cast<const unsigned char*>("word"), 4, nullptr, nullptr);
  }
  EXPECT_THAT(load_error(certificate(), folder_ / "secret.pem"), HasSubstr("passphrase"));
}

}  // namespace
}  // namespace sluice::http
