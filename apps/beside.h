// Beside<T>: a phase of a start that runs on a thread of its own, beside the phases of its owner.
// join() waits for it and adds its span to the timeline. If the system refuses a thread, the phase
// runs in join(). The destructor waits too.
// Threads: the owner's, and the phase's own, which calls the function once.
#pragma once

#include <future>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/function_ref.h"
#include "engine/startup_timeline.h"

namespace sluice {

template <class T>
class Beside {
 public:
  // REQUIRES: whatever `phase` refers to, and the clock, outlive this.
  template <class Phase>
  Beside(const Clock& clock, Phase phase) {
    auto timed = [&clock, phase = std::move(phase)]() mutable {
      const TimePoint begin = clock.now();
      T value = phase();
      return Done{std::move(value), begin, clock.now()};
    };
    try {
      done_ = std::async(std::launch::async, timed);
    } catch (const std::system_error&) {
      done_ = std::async(std::launch::deferred, std::move(timed));
    }
  }

  // The phase's value. name(value) names its span. Call once.
  template <class Name>
  T join(StartupTimeline& timeline, const Name& name) {
    Done done = done_.get();
    timeline.add_beside(name(done.value), done.begin, done.end);
    return std::move(done.value);
  }

 private:
  struct Done {
    T value;
    TimePoint begin;
    TimePoint end;
  };
  std::future<Done> done_;
};

}  // namespace sluice
