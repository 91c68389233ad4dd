#include "http/signal_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <optional>

#include "base/check.h"

namespace sluice::http {
namespace {

constexpr int kSignalExit = 128;  // plus the signal's number, as shells report it

// A signal handler can reach only globals.
std::atomic<int> g_pipe{-1};
std::atomic<bool> g_had_signal{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// Calls only functions that are safe in a signal handler.
void on_signal(int signal) {
  if (g_had_signal.exchange(true)) _exit(kSignalExit + signal);
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // The pipe is empty, so it takes the byte.
  [[maybe_unused]] const ssize_t written = write(g_pipe.load(), &byte, 1);
  errno = saved;
}

}  // namespace

struct SignalWatch::Pipe {
  Pipe(boost::asio::io_context& context, std::function<void(int)> run) : task(std::move(run)) {
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    reader.emplace(context, ends[0]);
    writer = ends[1];
  }
  ~Pipe() { close(writer); }

  void wait() {
    reader->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [this](const boost::system::error_code& error) {
                         if (error) return;  // the watch has ended; `this` may be gone
                         unsigned char signal = 0;
                         if (read(reader->native_handle(), &signal, 1) == 1) task(signal);
                       });
  }

  std::optional<boost::asio::posix::stream_descriptor> reader;
  int writer = -1;
  std::function<void(int)> task;
};

SignalWatch::SignalWatch(boost::asio::io_context& context, std::initializer_list<int> signals,
                         std::function<void(int)> task)
    : pipe_(std::make_unique<Pipe>(context, std::move(task))) {
  CHECK(g_pipe.exchange(pipe_->writer) == -1);
  g_had_signal.store(false);
  pipe_->wait();
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : signals) {
    struct sigaction former = {};
    CHECK(sigaction(signal, &action, &former) == 0);
    former_.emplace_back(signal, former);
  }
}

SignalWatch::~SignalWatch() {
  for (const auto& [signal, former] : former_) sigaction(signal, &former, nullptr);
  g_pipe.store(-1);
}

}  // namespace sluice::http
