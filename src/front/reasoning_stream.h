// ReasoningStream: splits the text of one answer into reasoning and content, as it comes. Models
// that reason write it first, between two markers. An answer may begin inside: then the prompt ends
// with the first marker. Text that may be part of a marker is held back. An answer without the
// first marker is content as a whole.
// Owner: a choice. One thread. The format must outlive it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sluice {

struct ReasoningFormat {
  std::string_view name;  // for --reasoning-parser; vLLM's
  std::string_view begin;
  std::string_view end;
};

std::span<const ReasoningFormat> reasoning_formats();
// nullptr: there is none of that name.
const ReasoningFormat* find_reasoning_format(std::string_view name);

// Whether a prompt of this text leaves the model inside its reasoning.
bool begins_inside(const ReasoningFormat& format, std::string_view prompt);

class ReasoningStream {
 public:
  ReasoningStream(const ReasoningFormat& format, bool inside)
      : format_(&format), state_(inside ? State::kReasoning : State::kStart) {}

  // Both append what is decided; finish() decides everything.
  void push(std::string_view text, std::string& reasoning, std::string& content);
  void finish(std::string& reasoning, std::string& content);

  // Whether the text so far may be or is a part of the reasoning; and whether it has ended or there
  // is none.
  bool in_reasoning() const { return state_ == State::kReasoning; }
  bool undecided() const { return state_ == State::kStart; }

 private:
  enum class State : unsigned char { kStart, kReasoning, kContent };

  bool decide_start();
  bool find_end(std::string& reasoning);

  const ReasoningFormat* format_;
  State state_;
  std::string buffer_;  // not decided
};

}  // namespace sluice
