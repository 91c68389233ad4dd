// TLS of the server and of the client: TlsContext has the server's certificate and key, or the
// certificates that a client trusts; TlsSession encrypts one connection. TLS 1.2 and 1.3; clients
// are not asked for certificates, except between parties that know each other: there TLS 1.3 with
// certificates of both sides, which one authority has signed. OpenSSL stays out of this header.
// Owner: the context is the command's and outlives the sockets that use it; a session is its
// socket's. Threads: the event loop's; load() before the loop runs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/io_result.h"

namespace sluice::http {

// PEM files of a party.
struct TlsPartyFiles {
  std::string certificate;  // its own, then those that signed it
  std::string key;          // without a passphrase; may be the same file
  std::string authority;    // certificates; one of them signed that of the other party
};

class TlsContext {
 public:
  // PEM files: the certificate, then those that signed it; and its key without a passphrase. The
  // two may be one file. Errors name the file and the cause. Warns about a certificate that is not
  // valid today.
  static Result<std::unique_ptr<TlsContext>> load(const std::string& certificate_file,
                                                  const std::string& key_file);
  // A client's: it trusts the certificates that the system trusts, or those of the environment
  // variables SSL_CERT_FILE and SSL_CERT_DIR. Its sessions check the server's certificate and name.
  static Result<std::unique_ptr<TlsContext>> of_client();
  // TLS 1.3 with certificates of both sides. A certificate that has expired, or that the authority
  // has not signed, ends the handshake; so do certificates of a server with another name.
  static Result<std::unique_ptr<TlsContext>> of_party_server(const TlsPartyFiles& files);
  static Result<std::unique_ptr<TlsContext>> of_party_client(const TlsPartyFiles& files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // Reads the files again, for later connections. After an error those from before stay. REQUIRES:
  // of a server.
  Status reload();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit TlsContext(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The handshake happens within the first calls of receive() or send(). A call that lacks bytes of
// the peer, or room in the socket, returns kWouldBlock and must be repeated later; send() then with
// the same bytes, and possibly more behind them.
class TlsSession {
 public:
  // `socket`: connected, non-blocking, open while the session lives. REQUIRES: the process ignores
  // SIGPIPE, which OpenSSL's writes may raise.
  TlsSession(TlsContext& context, int socket);
  // A client's session; `host` is the server's name or address. REQUIRES: a context of clients.
  TlsSession(TlsContext& context, int socket, const std::string& host);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  IoResult receive(std::span<char> into);
  // At least one byte.
  IoResult send(std::string_view bytes);
  // Whether receive() has bytes that the socket no longer shows as readable.
  bool has_received() const;
  // Whether the last call lacked the other direction: receive() room to send, send() bytes to read.
  bool receive_awaits_room() const { return receive_awaits_room_; }
  bool send_awaits_bytes() const { return send_awaits_bytes_; }
  // Why the handshake failed, after kClosed; empty if it did not.
  const std::string& failure() const { return failure_; }
  // Tells the peer that no more bytes come, so that it can tell an end from a cut.
  void end();

 private:
  struct Impl;
  IoResult refuse_plain_http();
  void note_failure();

  std::unique_ptr<Impl> impl_;
  std::string failure_;
  bool receive_awaits_room_ = false;
  bool send_awaits_bytes_ = false;
  bool broken_ = false;
};

}  // namespace sluice::http
