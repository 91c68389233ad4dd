#include "tokenizer/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace sluice {

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stops, StopText stop_text) {
  std::vector<Stop> made;
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
    made.push_back(std::move(stop));
  }
  StopMatcher matcher;
  matcher.stop_text_ = stop_text;
  matcher.matched_.assign(made.size(), 0);
  // Shared: see the header.
  matcher.stops_ = std::make_shared<const std::vector<Stop>>(std::move(made));
  return matcher;
}

bool StopMatcher::advance(std::size_t index, char byte) {
  const Stop& stop = (*stops_)[index];
  std::size_t& matched = matched_[index];
  while (matched > 0 && stop.text[matched] != byte) matched = stop.border[matched - 1];
  if (stop.text[matched] == byte) ++matched;
  return matched == stop.text.size();
}

bool StopMatcher::push(std::string_view text, std::string& out) {
  if (stopped_by_) return true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t longest = 0;
    for (std::size_t s = 0; s < matched_.size(); ++s) {
      if (!advance(s, text[i]) || matched_[s] <= longest) continue;
      longest = matched_[s];
      stopped_by_ = s;
    }
    if (stopped_by_) {
      held_.append(text.substr(0, i + 1));
      if (stop_text_ == StopText::kExclude) held_.resize(held_.size() - longest);
      out += held_;
      held_.clear();
      return true;
    }
  }
  release(text, out);
  return false;
}

void StopMatcher::pass(std::string_view text, std::string& out) {
  if (stopped_by_) return;
  for (const char byte : text) {
    for (std::size_t s = 0; s < matched_.size(); ++s) {
      if (advance(s, byte)) matched_[s] = (*stops_)[s].border.back();
    }
  }
  release(text, out);
}

// Appends the text that can no longer be part of a stop string.
void StopMatcher::release(std::string_view text, std::string& out) {
  std::size_t undecided = 0;
  for (const std::size_t matched : matched_) undecided = std::max(undecided, matched);
  held_.append(text);
  out.append(held_, 0, held_.size() - undecided);
  held_.erase(0, held_.size() - undecided);
}

void StopMatcher::finish(std::string& out) {
  out += held_;
  held_.clear();
  std::fill(matched_.begin(), matched_.end(), 0);
}

}  // namespace sluice
