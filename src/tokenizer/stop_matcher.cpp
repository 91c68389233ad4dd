#include "tokenizer/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace sluice {

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stops, StopText stop_text) {
  StopMatcher matcher;
  matcher.stop_text_ = stop_text;
  for (std::string& text : stops) {
    if (text.empty()) return invalid_argument("stop: an empty stop string; leave it out");
    Stop stop;
    stop.border.assign(text.size(), 0);
    for (std::size_t i = 1, length = 0; i < text.size(); ++i) {
      while (length > 0 && text[i] != text[length]) length = stop.border[length - 1];
      if (text[i] == text[length]) ++length;
      stop.border[i] = length;
    }
    stop.text = std::move(text);
    matcher.stops_.push_back(std::move(stop));
  }
  return matcher;
}

void StopMatcher::advance(Stop& stop, char byte) {
  while (stop.matched > 0 && stop.text[stop.matched] != byte) {
    stop.matched = stop.border[stop.matched - 1];
  }
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

bool StopMatcher::push(std::string_view text, std::string& out) {
  if (stopped_by_) return true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t longest = 0;
    for (std::size_t s = 0; s < stops_.size(); ++s) {
      Stop& stop = stops_[s];
      advance(stop, text[i]);
      if (stop.matched == stop.text.size() && stop.matched > longest) {
        longest = stop.matched;
        stopped_by_ = s;
      }
    }
    if (stopped_by_) {
      held_.append(text.substr(0, i + 1));
      if (stop_text_ == StopText::kExclude) held_.resize(held_.size() - longest);
      out += held_;
      held_.clear();
      return true;
    }
  }
  std::size_t undecided = 0;
  for (const Stop& stop : stops_) undecided = std::max(undecided, stop.matched);
  held_.append(text);
  out.append(held_, 0, held_.size() - undecided);
  held_.erase(0, held_.size() - undecided);
  return false;
}

void StopMatcher::finish(std::string& out) {
  out += held_;
  held_.clear();
  for (Stop& stop : stops_) stop.matched = 0;
}

}  // namespace sluice
