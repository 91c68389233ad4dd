#include "http/event_loop.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <utility>

#include "http/event_loop_impl.h"
#include "http/signal_watch.h"

namespace sluice::http {
namespace {

using ErrorCodeOfAsio = boost::system::error_code;

// The waiting operation owns `signals`; it ends with the context.
void wait_again(std::unique_ptr<boost::asio::signal_set> signals, std::function<void()> task) {
  boost::asio::signal_set& waiting = *signals;
  waiting.async_wait([signals = std::move(signals), task = std::move(task)](
                         const ErrorCodeOfAsio& error, int) mutable {
    if (error) return;
    task();
    wait_again(std::move(signals), std::move(task));
  });
}

}  // namespace

// Created without the concurrency hint for one thread: with it, Asio lets tasks of other threads
// overtake tasks that the loop's own thread has posted.
EventLoop::Impl::Impl() : context(std::make_unique<boost::asio::io_context>()) {}
EventLoop::Impl::~Impl() = default;

EventLoop::EventLoop(UrgentWork* urgent) : impl_(std::make_unique<Impl>()), urgent_(urgent) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() {
  // Without the guard, run() would return as soon as no operation is pending.
  const auto guard = boost::asio::make_work_guard(*impl_->context);
  impl_->context->run();
  impl_->context->restart();  // a stop() counts once, so run() may be called again
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

void EventLoop::on_first_signal(std::initializer_list<int> signals, std::function<void(int)> task) {
  signals_ = std::make_unique<SignalWatch>(*impl_->context, signals, std::move(task));
}

void EventLoop::on_each_signal(int signal, std::function<void()> task) {
  wait_again(std::make_unique<boost::asio::signal_set>(*impl_->context, signal), std::move(task));
}

}  // namespace sluice::http
