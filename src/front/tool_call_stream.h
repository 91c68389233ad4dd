// ToolCallStream: splits the text of one answer into content and tool calls, as it comes. Text that
// may be part of a call is held back until that is decided; text between two markers that is no
// call comes out as content, unchanged. White space beside a call is dropped. After a hundred such
// texts the rest of the answer is content, so the time is linear in the answer's length.
// Owner: a choice. One thread. Format and parameters must outlive it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "front/tool_format.h"

namespace sluice {

// How the text of an answer ends.
enum class TextEnd : unsigned char { kComplete, kCut };  // kCut: by the limit of tokens

class ToolCallStream {
 public:
  ToolCallStream(const ToolFormat& format, const ToolParameters& parameters)
      : format_(&format),
        parameters_(&parameters),
        state_(format.prompt_has_begin ? State::kCall : State::kText),
        begin_in_prompt_(format.prompt_has_begin) {}

  // Both append to `content` and `calls` what is decided; finish() decides everything. A call that
  // the limit of tokens cut is a call, with what there is of its arguments.
  void push(std::string_view text, std::string& content, std::vector<ToolCall>& calls);
  void finish(TextEnd end, std::string& content, std::vector<ToolCall>& calls);

  bool any_call() const { return any_call_; }

 private:
  enum class State : unsigned char { kText, kCall, kWhole, kPassThrough };

  void decide_whole(std::string& content);
  bool next_marker(std::string& content);
  bool next_end(std::vector<ToolCall>& calls);
  void put_begin(std::string& content);
  bool take_body(std::string_view body, std::vector<ToolCall>& calls);
  bool take_cut_body(std::string_view body, std::vector<ToolCall>& calls);
  void add(std::vector<ToolCall> found, std::vector<ToolCall>& calls);
  bool take_last_body(std::vector<ToolCall>& calls);
  void give_up_call(std::string& content);
  void pass_through(std::string& content);
  void put(std::string_view text, std::string& content);

  const ToolFormat* format_;
  const ToolParameters* parameters_;
  State state_;
  bool begin_in_prompt_;  // in kCall: the marker is no part of the answer
  bool any_call_ = false;
  int failures_ = 0;          // texts between markers that were no call
  std::string buffer_;        // not decided; in kCall the text behind `begin`
  std::string space_;         // white space that a call would drop
  std::size_t searched_ = 0;  // in kCall: no end marker that completes a call before this
};

}  // namespace sluice
