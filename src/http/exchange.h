// Exchange: one request and its response, whole or streamed. The server makes one for each request
// and gives it to the Handler, which answers now or later. No call blocks: the exchange keeps bytes
// that the socket does not take, and unsent_bytes() returns their number, so that the producer can
// bound the cost of a slow reader.
//
// Ownership is shared because the two owners' lives are independent: the handler may still produce
// when the connection has died, and the connection may still send when the handler has finished.
// Threads: the event loop's only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace sluice::http {

enum class CloseReason : unsigned char {
  kPeerGone,      // closed or reset by the client, or its sending direction ended
  kWriteTimeout,  // the client took no byte for HttpLimits::write_timeout, or left too many
  kServerStop,
};

constexpr std::string_view close_reason_name(CloseReason reason) {
  switch (reason) {
    case CloseReason::kPeerGone: return "peer_gone";
    case CloseReason::kWriteTimeout: return "write_timeout";
    case CloseReason::kServerStop: return "server_stop";
  }
  return "";
}

class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  // Moves the body out of the request, so that another thread may read and free it. It counts
  // against HttpLimits::total_body_bytes until drop_body().
  virtual std::string take_body() = 0;
  // Frees request().body, which the handler no longer needs. It then no longer counts against
  // HttpLimits::total_body_bytes, however long the answer takes.
  virtual void drop_body() = 0;

  // Adds a header to the later response, whole or streamed.
  virtual void add_header(Header header) = 0;

  // The whole response. Exactly one of respond() and begin_stream() is called, once.
  virtual void respond(Response response) = 0;

  // Status and headers (`head.body` is empty); then any number of write() and one end_stream().
  // Chunked for HTTP/1.1; to the end of the connection for HTTP/1.0.
  virtual void begin_stream(Response head) = 0;
  // Hands bytes to the socket. Bytes that the socket does not take are kept and sent with later
  // ones. Does nothing once closed.
  virtual void write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;
  // Bytes given to write() that the socket has not taken.
  virtual std::size_t unsent_bytes() const = 0;
  // Bytes of this response that the socket has taken so far, head and framing included.
  virtual std::int64_t bytes_sent() const = 0;

  // `task` runs once, when the response can no longer be delivered because the client is gone, even
  // if nothing is being sent. It does not run after the whole response has been sent, nor for
  // abort(). It runs from the loop, never inside a call of this class. A later task replaces it.
  virtual void on_close(std::function<void(CloseReason)> task) = 0;
  virtual bool closed() const = 0;
  // Closes the connection at once, without another byte: for a client that does not read.
  virtual void abort() = 0;
};

}  // namespace sluice::http
