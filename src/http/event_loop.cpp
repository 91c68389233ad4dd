#include "http/event_loop.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "base/check.h"
#include "http/event_loop_impl.h"

namespace sluice::http {
namespace {

using ErrorCodeOfAsio = boost::system::error_code;

// Waits for signals again and again; Asio's pending wait keeps it alive.
// Shared with nothing else: a shared_ptr because handlers must be copyable.
class SignalWatch : public std::enable_shared_from_this<SignalWatch> {
 public:
  SignalWatch(boost::asio::io_context& context, std::function<void(int)> task)
      : signals_(context), task_(std::move(task)) {}

  void add(int signal) {
    ErrorCodeOfAsio error;
    signals_.add(signal, error);
    CHECK(!error);
  }

  void wait() {
    signals_.async_wait([self = shared_from_this()](const ErrorCodeOfAsio& error, int signal) {
      if (error) return;
      self->wait();
      self->task_(signal);
    });
  }

 private:
  boost::asio::signal_set signals_;
  std::function<void(int)> task_;
};

}  // namespace

// Not told that one thread runs it: Asio would then let tasks of other threads overtake those that
// the loop's own thread has posted.
EventLoop::Impl::Impl() : context(std::make_unique<boost::asio::io_context>()) {}
EventLoop::Impl::~Impl() = default;

EventLoop::EventLoop(UrgentWork* urgent) : impl_(std::make_unique<Impl>()), urgent_(urgent) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() {
  // Without the guard run() would return as soon as nothing is awaited.
  const auto guard = boost::asio::make_work_guard(*impl_->context);
  impl_->context->run();
}

void EventLoop::stop() { impl_->context->stop(); }

void EventLoop::post(std::function<void()> task) {
  boost::asio::post(*impl_->context,
                    [mark = UrgentWork::Mark(urgent_), task = std::move(task)] { task(); });
}

void EventLoop::after(Duration delay, std::function<void()> task) {
  auto timer = std::make_unique<boost::asio::steady_timer>(*impl_->context, delay);
  auto& waiting = *timer;
  waiting.async_wait(
      [timer = std::move(timer), task = std::move(task)](const ErrorCodeOfAsio& error) {
        if (!error) task();
      });
}

void EventLoop::on_signals(std::initializer_list<int> signals, std::function<void(int)> task) {
  // Shared with Asio's pending handler, see SignalWatch.
  const auto watch = std::make_shared<SignalWatch>(*impl_->context, std::move(task));
  for (const int signal : signals) watch->add(signal);
  watch->wait();
}

}  // namespace sluice::http
