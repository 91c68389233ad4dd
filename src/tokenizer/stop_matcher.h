// StopMatcher: finds stop strings in a stream of text. It holds back text that may be the start of
// a stop string; all other text passes at once. The stop string that is complete first ends the
// stream. If several are complete at the same byte, the longest one counts. So the result does not
// depend on how the text is split into pushes.
// Owned by one stream; one thread at a time. Copies share the stop strings, so a call with many
// choices holds them once. Cost: bytes times stop strings.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

enum class StopText { kExclude, kInclude };  // the stop string itself, in the output

class StopMatcher {
 public:
  // Errors: an empty stop string. Without stop strings all text passes.
  static Result<StopMatcher> create(std::vector<std::string> stops, StopText stop_text);

  // Appends to `out` the text that is decided. Returns true when a stop string is complete: then
  // the stream is over, and later pushes add nothing.
  bool push(std::string_view text, std::string& out);

  // Like push(), but a stop string that is complete within this text is ordinary text. A stop
  // string that only begins in it still counts.
  void pass(std::string_view text, std::string& out);

  // The stream ended without a stop string: appends the text that was held back.
  void finish(std::string& out);

  // Which stop string ended the stream, by its index.
  std::optional<std::size_t> stopped_by() const { return stopped_by_; }

 private:
  struct Stop {
    std::string text;
    std::vector<std::size_t>
        border;  // of each prefix: the length of its longest proper prefix that is also its suffix
  };

  StopMatcher() = default;
  // Adds a byte of the stream; true if the stop string is complete.
  bool advance(std::size_t stop, char byte);
  void release(std::string_view text, std::string& out);

  // Shared by the matcher's copies; they may outlive it.
  std::shared_ptr<const std::vector<Stop>> stops_;
  std::vector<std::size_t> matched_;  // of each stop string: bytes matched at the end of the stream
  StopText stop_text_ = StopText::kExclude;
  std::string held_;
  std::optional<std::size_t> stopped_by_;
};

}  // namespace sluice
