#include "http/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "base/log.h"

namespace sluice::http {
namespace {

// Bytes of a plain request that are read and dropped, so that its client sees the answer.
constexpr std::size_t kMaxDropped = 64 << 10;
constexpr std::string_view kPlainAnswer =
    "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    "this port speaks https: begin the URL with https://\n";

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct FreeSession {
  void operator()(SSL* session) const { SSL_free(session); }
};
using ContextPointer = std::unique_ptr<SSL_CTX, FreeContext>;

std::string last_cause() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  if (error == 0) return "unknown cause";
  const char* const reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : fmt::format("OpenSSL error {:#x}", error);
}

// A key with a passphrase is an error: no operator waits to type it.
int no_passphrase(char*, int, int, void*) { return 0; }

int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* length,
                    const unsigned char* offered, unsigned int offered_bytes, void*) {
  static constexpr std::array<unsigned char, 9> kOurs = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* found = nullptr;
  const int result = SSL_select_next_proto(
      &found, length, kOurs.data(), static_cast<unsigned>(kOurs.size()), offered, offered_bytes);
  *chosen = found;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

void warn_of_dates(SSL_CTX* context, const std::string& file) {
  const X509* const certificate = SSL_CTX_get0_certificate(context);
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    log_warning(fmt::format("{}: the certificate has expired; clients will refuse it", file));
  } else if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    log_warning(fmt::format("{}: the certificate is not valid yet; clients will refuse it", file));
  }
}

// The settings that servers and clients share.
Result<ContextPointer> make_context(const SSL_METHOD* method) {
  ERR_clear_error();
  ContextPointer context(SSL_CTX_new(method));
  if (context == nullptr) return internal_error("TLS: " + last_cause());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  // send() may go on later from another address, and idle connections hold no buffers.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  return context;
}

Status use_certificate(SSL_CTX* context, const std::string& certificate_file,
                       const std::string& key_file) {
  SSL_CTX_set_default_passwd_cb(context, no_passphrase);
  if (SSL_CTX_use_certificate_chain_file(context, certificate_file.c_str()) != 1) {
    return invalid_argument(fmt::format("{}: cannot read a certificate in PEM format: {}",
                                        certificate_file, last_cause()));
  }
  if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    return invalid_argument(
        fmt::format("{}: cannot read a key in PEM format, without a passphrase, that belongs to "
                    "the certificate {}: {}",
                    key_file, certificate_file, last_cause()));
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    return invalid_argument(fmt::format("{}: the key does not belong to the certificate {}: {}",
                                        key_file, certificate_file, last_cause()));
  }
  warn_of_dates(context, certificate_file);
  return {};
}

Result<ContextPointer> make_server_context(const std::string& certificate_file,
                                           const std::string& key_file) {
  ASSIGN_OR_RETURN(ContextPointer context, make_context(TLS_server_method()));
  // Sessions resume by tickets, which take no memory here.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  RETURN_IF_ERROR(use_certificate(context.get(), certificate_file, key_file));
  return context;
}

// Each connection has a whole handshake, so that each certificate is checked each time.
Status require_party(SSL_CTX* context, const TlsPartyFiles& files) {
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  if (SSL_CTX_load_verify_file(context, files.authority.c_str()) != 1) {
    return invalid_argument(fmt::format("{}: cannot read certificates in PEM format: {}",
                                        files.authority, last_cause()));
  }
  return {};
}

Result<ContextPointer> make_client_context() {
  ASSIGN_OR_RETURN(ContextPointer context, make_context(TLS_client_method()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (SSL_CTX_set_default_verify_paths(context.get()) != 1) {
    return internal_error("TLS: the system's certificates cannot be read: " + last_cause());
  }
  return context;
}

Result<ContextPointer> make_party_context(const TlsPartyFiles& files, bool is_server) {
  if (is_server) {
    ASSIGN_OR_RETURN(ContextPointer context, make_server_context(files.certificate, files.key));
    RETURN_IF_ERROR(require_party(context.get(), files));
    return context;
  }
  ASSIGN_OR_RETURN(ContextPointer context, make_context(TLS_client_method()));
  RETURN_IF_ERROR(use_certificate(context.get(), files.certificate, files.key));
  RETURN_IF_ERROR(require_party(context.get(), files));
  return context;
}

// The name that the server's certificate must have: an address, or a name that is also sent.
bool expect_host(SSL* session, const std::string& host) {
  X509_VERIFY_PARAM* const check = SSL_get0_param(session);
  if (X509_VERIFY_PARAM_set1_ip_asc(check, host.c_str()) == 1) return true;
  ERR_clear_error();
  return SSL_set1_host(session, host.c_str()) == 1 &&
         SSL_set_tlsext_host_name(session, host.c_str()) == 1;
}

}  // namespace

struct TlsContext::Impl {
  TlsPartyFiles files;     // without an authority: clients are not asked for certificates
  ContextPointer context;  // sessions hold a reference of their own
};

TlsContext::TlsContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

Result<std::unique_ptr<TlsContext>> TlsContext::load(const std::string& certificate_file,
                                                     const std::string& key_file) {
  auto impl = std::make_unique<Impl>();
  impl->files = {certificate_file, key_file, {}};
  std::unique_ptr<TlsContext> made(new TlsContext(std::move(impl)));
  RETURN_IF_ERROR(made->reload());
  return made;
}

Result<std::unique_ptr<TlsContext>> TlsContext::of_client() {
  auto impl = std::make_unique<Impl>();
  ASSIGN_OR_RETURN(impl->context, make_client_context());
  return std::unique_ptr<TlsContext>(new TlsContext(std::move(impl)));
}

Result<std::unique_ptr<TlsContext>> TlsContext::of_party_server(const TlsPartyFiles& files) {
  auto impl = std::make_unique<Impl>();
  impl->files = files;
  std::unique_ptr<TlsContext> made(new TlsContext(std::move(impl)));
  RETURN_IF_ERROR(made->reload());
  return made;
}

Result<std::unique_ptr<TlsContext>> TlsContext::of_party_client(const TlsPartyFiles& files) {
  auto impl = std::make_unique<Impl>();
  ASSIGN_OR_RETURN(impl->context, make_party_context(files, false));
  return std::unique_ptr<TlsContext>(new TlsContext(std::move(impl)));
}

Status TlsContext::reload() {
  const TlsPartyFiles& files = impl_->files;
  auto context = files.authority.empty() ? make_server_context(files.certificate, files.key)
                                         : make_party_context(files, true);
  ASSIGN_OR_RETURN(impl_->context, std::move(context));
  return {};
}

struct TlsSession::Impl {
  std::unique_ptr<SSL, FreeSession> session;
  int socket = -1;
};

TlsSession::TlsSession(TlsContext& context, int socket) : impl_(std::make_unique<Impl>()) {
  ERR_clear_error();
  impl_->socket = socket;
  impl_->session.reset(SSL_new(context.impl().context.get()));
  SSL* const session = impl_->session.get();
  broken_ = session == nullptr || SSL_set_fd(session, socket) != 1;
  if (broken_) {
    log_error("TLS: no session for a connection: " + last_cause());
  } else {
    SSL_set_accept_state(session);
  }
}

TlsSession::TlsSession(TlsContext& context, int socket, const std::string& host)
    : TlsSession(context, socket) {
  if (broken_) return;
  SSL_set_connect_state(impl_->session.get());
  broken_ = !expect_host(impl_->session.get(), host);
  if (broken_) note_failure();
}

TlsSession::~TlsSession() = default;

// A wrong certificate is said by its own reason, other causes by OpenSSL's.
void TlsSession::note_failure() {
  SSL* const session = impl_->session.get();
  const long verified = SSL_get_verify_result(session);
  if (verified != X509_V_OK) {
    const char* const cause = X509_verify_cert_error_string(verified);
    const bool party = SSL_CTX_get_min_proto_version(SSL_get_SSL_CTX(session)) == TLS1_3_VERSION;
    if (SSL_is_server(session) != 0) {
      failure_ = fmt::format("the client's certificate is not accepted: {}", cause);
    } else if (party) {
      failure_ = fmt::format("the server's certificate is not accepted: {}", cause);
    } else {
      failure_ = fmt::format(
          "the server's certificate is not accepted: {}; SSL_CERT_FILE names a PEM file of "
          "certificates to trust",
          cause);
    }
    return;
  }
  const unsigned long cause = ERR_peek_last_error();
  // A server refuses a client's certificate after the client's handshake, by an alert.
  const bool alert = ERR_GET_REASON(cause) >= SSL_AD_REASON_OFFSET;
  if ((SSL_in_init(session) == 0 && !alert) || ERR_GET_LIB(cause) != ERR_LIB_SSL) return;
  const char* const reason = ERR_reason_error_string(cause);
  failure_ = fmt::format("TLS: {}", reason != nullptr ? reason : "the handshake failed");
}

IoResult TlsSession::receive(std::span<char> into) {
  receive_awaits_room_ = false;
  if (broken_) return {IoState::kClosed, 0};
  SSL* const session = impl_->session.get();
  std::size_t received = 0;
  // A record at a time, as many as there are.
  while (received < into.size()) {
    ERR_clear_error();
    std::size_t bytes = 0;
    if (SSL_read_ex(session, into.data() + received, into.size() - received, &bytes) == 1) {
      received += bytes;
      continue;
    }
    const int error = SSL_get_error(session, 0);
    receive_awaits_room_ = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) break;
    // After its close_notify a peer may still read. Other errors end the session.
    broken_ = error != SSL_ERROR_ZERO_RETURN;
    if (broken_) note_failure();
    if (received > 0) break;
    const unsigned long cause = ERR_peek_last_error();
    if (ERR_GET_LIB(cause) == ERR_LIB_SSL && ERR_GET_REASON(cause) == SSL_R_HTTP_REQUEST) {
      return refuse_plain_http();
    }
    ERR_clear_error();
    return {IoState::kClosed, 0};
  }
  return {received > 0 ? IoState::kDone : IoState::kWouldBlock, received};
}

IoResult TlsSession::send(std::string_view bytes) {
  send_awaits_bytes_ = false;
  if (broken_) return {IoState::kClosed, 0};
  SSL* const session = impl_->session.get();
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    ERR_clear_error();
    std::size_t some = 0;
    if (SSL_write_ex(session, bytes.data() + sent, bytes.size() - sent, &some) == 1) {
      sent += some;
      continue;
    }
    const int error = SSL_get_error(session, 0);
    send_awaits_bytes_ = error == SSL_ERROR_WANT_READ;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) break;
    broken_ = true;
    note_failure();
    ERR_clear_error();
    return {IoState::kClosed, 0};
  }
  return {sent > 0 ? IoState::kDone : IoState::kWouldBlock, sent};
}

bool TlsSession::has_received() const {
  return !broken_ && SSL_has_pending(impl_->session.get()) == 1;
}

void TlsSession::end() {
  if (broken_ || SSL_in_init(impl_->session.get()) != 0) return;
  ERR_clear_error();
  // Never waits: bytes that do not fit into the socket are not sent.
  SSL_shutdown(impl_->session.get());
  ERR_clear_error();
}

// A client that speaks plain HTTP here gets a plain answer that says so.
IoResult TlsSession::refuse_plain_http() {
  ERR_clear_error();
  static_cast<void>(
      ::send(impl_->socket, kPlainAnswer.data(), kPlainAnswer.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  ::shutdown(impl_->socket, SHUT_WR);
  // Closing with unread bytes would make the client's system discard the answer.
  std::array<char, 4096> dropped{};
  for (std::size_t total = 0; total < kMaxDropped;) {
    const ssize_t bytes = ::recv(impl_->socket, dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (bytes <= 0) break;
    total += static_cast<std::size_t>(bytes);
  }
  return {IoState::kClosed, 0};
}

}  // namespace sluice::http
