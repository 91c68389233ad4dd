// SignalWatch: the first of the watched signals becomes a task on an event loop; the second one
// ends the process. The signal handler counts them itself and needs no running thread.
// Owner: EventLoop, one in the process at a time. Threads: the loop's; the handler runs on any.
// Limits: the system merges equal signals that are pending at the same time into one.
#pragma once

#include <signal.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace sluice::http {

class SignalWatch {
 public:
  SignalWatch(boost::asio::io_context& context, std::initializer_list<int> signals,
              std::function<void(int)> task);
  ~SignalWatch();  // restores the former handlers
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  struct Pipe;
  std::unique_ptr<Pipe> pipe_;
  std::vector<std::pair<int, struct sigaction>> former_;
};

}  // namespace sluice::http
