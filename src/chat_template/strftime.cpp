#include "chat_template/strftime.h"

#include <cstdio>
#include <ctime>

#include "chat_template/ops.h"

namespace sluice::jinja {

namespace {

constexpr const char* kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                 "Thursday", "Friday", "Saturday"};
constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                   "May",       "June",     "July",     "August",
                                   "September", "October",  "November", "December"};

std::tm broken_down(std::chrono::local_seconds time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  std::tm tm{};
  tm.tm_year = static_cast<int>(date.year()) - 1900;
  tm.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  tm.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  tm.tm_hour = static_cast<int>(clock.hours().count());
  tm.tm_min = static_cast<int>(clock.minutes().count());
  tm.tm_sec = static_cast<int>(clock.seconds().count());
  tm.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  const std::chrono::local_days new_year(date.year() / std::chrono::January / 1);
  tm.tm_yday = static_cast<int>((day - new_year).count());
  return tm;
}

}  // namespace

Result<std::string> format_time(std::chrono::local_seconds time, std::string_view format) {
  const std::tm tm = broken_down(time);
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out.push_back(format[i]);
      continue;
    }
    char code = format[++i];
    std::string spec = "%";
    if (code == '-' && i + 1 < format.size()) {  // glibc: without padding
      spec.push_back('-');
      code = format[++i];
    }
    spec.push_back(code);
    const auto day = static_cast<std::size_t>(tm.tm_wday);
    const auto month = static_cast<std::size_t>(tm.tm_mon);
    // Names are spelled here so that the process's locale cannot change a prompt.
    switch (code) {
      case 'A': out += kDays[day]; continue;
      case 'a': out.append(kDays[day], 3); continue;
      case 'B': out += kMonths[month]; continue;
      case 'b':
      case 'h': out.append(kMonths[month], 3); continue;
      case 'p': out += tm.tm_hour < 12 ? "AM" : "PM"; continue;
      case 'f': out += "000000"; continue;
      case 'z':
      case 'Z': continue;  // a naive datetime has no zone
      case 'd':
      case 'm':
      case 'y':
      case 'Y':
      case 'H':
      case 'I':
      case 'M':
      case 'S':
      case 'j':
      case 'w':
      case 'u':
      case 'U':
      case 'W':
      case 'V':
      case 'G':
      case 'e':
      case 'k':
      case 'l':
      case 'D':
      case 'F':
      case 'T':
      case 'R':
      case 'C':
      case 'n':
      case 't':
      case '%': break;
      case 'c':
        spec =
            std::string(kDays[day], 3) + " " + std::string(kMonths[month], 3) + " %e %H:%M:%S %Y";
        break;
      case 'x': spec = "%m/%d/%y"; break;
      case 'X': spec = "%H:%M:%S"; break;
      default: out += spec; continue;
    }
    char text[128];
    out.append(text, std::strftime(text, sizeof(text), spec.c_str(), &tm));
  }
  return out;
}

}  // namespace sluice::jinja
