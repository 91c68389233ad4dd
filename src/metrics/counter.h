// Counter and Gauge: one number each. Plain objects without a registry: the class that measures
// owns them as members and writes them with PrometheusWriter.
// Threads: one records and writes (in the server the event loop's).
#pragma once

#include "base/check.h"

namespace sluice {

// Only grows. Exact up to 2^53.
class Counter {
 public:
  void add(double amount = 1) {
    DCHECK(amount >= 0);
    value_ += amount;
  }
  double value() const { return value_; }

 private:
  double value_ = 0;
};

// Goes up and down.
class Gauge {
 public:
  void set(double value) { value_ = value; }
  double value() const { return value_; }

 private:
  double value_ = 0;
};

}  // namespace sluice
