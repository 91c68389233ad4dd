#include "workload/timestamp.h"

#include <charconv>
#include <chrono>

namespace sluice {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes parts from the front of the text. After the first missing part, ok is false.
class Taker {
 public:
  explicit Taker(std::string_view text) : rest(text) {}

  int number(std::size_t digits, int least, int greatest) {
    if (rest.size() < digits) ok = false;
    int value = 0;
    for (std::size_t i = 0; ok && i < digits; ++i) {
      ok = is_digit(rest[i]);
      value = value * 10 + (rest[i] - '0');
    }
    ok = ok && value >= least && value <= greatest;
    if (ok) rest.remove_prefix(digits);
    return value;
  }
  char one_of(std::string_view choice) {
    ok = ok && !rest.empty() && choice.find(rest.front()) != std::string_view::npos;
    if (!ok) return 0;
    const char c = rest.front();
    rest.remove_prefix(1);
    return c;
  }
  // ".6805900"; none is zero.
  std::chrono::nanoseconds fraction() {
    if (!ok || !rest.starts_with('.')) return {};
    std::size_t digits = 0;
    std::int64_t value = 0;
    for (rest.remove_prefix(1); !rest.empty() && is_digit(rest.front()); rest.remove_prefix(1)) {
      value = value * 10 + (rest.front() - '0');
      if (++digits > 9) break;
    }
    ok = digits >= 1 && digits <= 9;
    for (; digits < 9; ++digits) value *= 10;
    return std::chrono::nanoseconds(value);
  }

  std::string_view rest;
  bool ok = true;
};

// The offset of local time from UTC.
std::chrono::minutes take_zone(Taker& taker) {
  if (taker.rest.empty() || !taker.ok) return {};
  const char sign = taker.one_of("Z+-");
  if (sign == 'Z' || !taker.ok) return {};
  const int hours = taker.number(2, 0, 15);
  if (taker.rest.starts_with(':')) taker.one_of(":");
  const int minutes = taker.number(2, 0, 59);
  const auto ahead = std::chrono::hours(hours) + std::chrono::minutes(minutes);
  return sign == '+' ? ahead : -ahead;
}

}  // namespace

std::optional<Duration> parse_timestamp(std::string_view text) {
  Taker taker(text);
  const int year = taker.number(4, 1970, 2199);
  taker.one_of("-");
  const int month = taker.number(2, 1, 12);
  taker.one_of("-");
  const int day = taker.number(2, 1, 31);
  taker.one_of(" T");
  const int hour = taker.number(2, 0, 23);
  taker.one_of(":");
  const int minute = taker.number(2, 0, 59);
  taker.one_of(":");
  const int second = taker.number(2, 0, 59);
  const std::chrono::nanoseconds fraction = taker.fraction();
  const std::chrono::minutes zone = take_zone(taker);
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!taker.ok || !taker.rest.empty() || !date.ok()) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + std::chrono::seconds(second) + fraction - zone;
}

}  // namespace sluice
