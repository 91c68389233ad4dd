#include "loadgen/sse_parser.h"

#include <utility>

namespace sluice {

bool SseParser::put(std::string_view bytes, FunctionRef<void(std::string_view)> event) {
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() > kMaxEventBytes) return false;
    if (end == std::string_view::npos) {
      line_ += part;
      return true;
    }
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      if (!take_line(part, event)) return false;
    } else {
      line_ += part;
      const bool fits = take_line(line_, event);
      line_.clear();
      if (!fits) return false;
    }
  }
  return true;
}

bool SseParser::take_line(std::string_view line, FunctionRef<void(std::string_view)> event) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (std::exchange(at_start_, false) && line.starts_with(kByteOrderMark)) {
    line.remove_prefix(kByteOrderMark.size());
  }
  if (line.empty()) {
    if (std::exchange(has_data_, false)) event(data_);
    data_.clear();
    return true;
  }
  const std::size_t colon = line.find(':');
  if (line.substr(0, colon) != "data") return true;  // a comment, or a field without use here
  std::string_view value;
  if (colon != std::string_view::npos) value = line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (data_.size() + value.size() + 1 > kMaxEventBytes) return false;
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
  return true;
}

}  // namespace sluice
