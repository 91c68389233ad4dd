// EventLoop::Impl: the part of EventLoop that only the .cpp files of src/http use. It only names
// Asio's io_context, so that including this header is cheap.
// Owner: EventLoop. Threads: as EventLoop.
#pragma once

#include <memory>

#include "http/event_loop.h"

namespace boost::asio {
class io_context;
}

namespace sluice::http {

struct EventLoop::Impl {
  Impl();
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::unique_ptr<boost::asio::io_context> context;
};

}  // namespace sluice::http
