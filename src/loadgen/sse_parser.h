// SseParser: extracts the data of each event from a stream of server-sent events (the HTML
// standard, 9.2.6), as pieces arrive. It skips names, ids and retry times, which OpenAI's streams
// do not use. Owner: the request. One thread.
// Limits: an event's data and a line are at most 4 MiB each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace sluice {

class SseParser {
 public:
  static constexpr std::size_t kMaxEventBytes = 4 << 20;

  // Calls `event` with the data of each event that is complete now, lines joined by line feeds.
  // False when a line or an event is too long; no further call then.
  bool put(std::string_view bytes, FunctionRef<void(std::string_view)> event);

 private:
  bool take_line(std::string_view line, FunctionRef<void(std::string_view)> event);

  std::string line_;  // begun in an earlier piece
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a line feed now belongs to the line end before it
  bool at_start_ = true;       // of the stream, where a byte-order mark is allowed
};

}  // namespace sluice
