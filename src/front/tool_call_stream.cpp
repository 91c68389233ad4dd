#include "front/tool_call_stream.h"

#include <algorithm>
#include <utility>

#include "base/partial_match.h"
#include "front/cut_tool_call.h"

namespace sluice {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

// Texts between markers that were no call, after which the rest of the answer is text. Each costs
// time in proportion to the answer, on the event loop, so an answer full of markers would be slow.
constexpr int kMaxFailures = 100;

}  // namespace

void ToolCallStream::push(std::string_view text, std::string& content,
                          std::vector<ToolCall>& calls) {
  if (state_ == State::kPassThrough) {
    content += text;
    return;
  }
  buffer_ += text;
  if (format_->begin.empty()) return decide_whole(content);
  while (state_ == State::kText ? next_marker(content) : next_end(calls)) {
  }
  if (failures_ >= kMaxFailures) pass_through(content);
}

void ToolCallStream::finish(TextEnd end, std::string& content, std::vector<ToolCall>& calls) {
  const bool cut = end == TextEnd::kCut;
  // A call that the answer's end completes, or never.
  while (state_ == State::kCall && !take_last_body(calls)) {
    if (cut && take_cut_body(buffer_, calls)) break;
    give_up_call(content);
    while (state_ == State::kText ? next_marker(content) : next_end(calls)) {
    }
    if (failures_ >= kMaxFailures) pass_through(content);
  }
  if (state_ == State::kWhole) {
    std::string_view body =
        std::string_view(buffer_).substr(buffer_.find_first_not_of(kWhiteSpace));
    for (const std::string_view marker : format_->dropped) {
      if (body.starts_with(marker)) body.remove_prefix(marker.size());
      if (body.ends_with(marker)) body.remove_suffix(marker.size());
    }
    const bool taken = take_body(body, calls) || (cut && take_cut_body(body, calls));
    if (!taken) content += buffer_;
    buffer_.clear();
    return;
  }
  put(buffer_, content);
  buffer_.clear();
  if (!any_call_) content += space_;
  space_.clear();
}

// An answer is calls as a whole, or not at all.
void ToolCallStream::decide_whole(std::string& content) {
  if (state_ == State::kWhole) return;
  const std::size_t first = buffer_.find_first_not_of(kWhiteSpace);
  if (first == std::string::npos) return;
  const std::string_view text = std::string_view(buffer_).substr(first);
  if (text.starts_with(format_->whole_begin()) ||
      std::ranges::any_of(format_->dropped,
                          [&](std::string_view marker) { return text.starts_with(marker); })) {
    state_ = State::kWhole;
    return;
  }
  for (const std::string_view marker : format_->dropped) {
    if (marker.starts_with(text)) return;  // may become one
  }
  state_ = State::kPassThrough;
  content += buffer_;
  buffer_.clear();
}

// Moves text up to the next marker to the content. True when there was one.
bool ToolCallStream::next_marker(std::string& content) {
  std::string_view marker = format_->begin;
  std::size_t at = buffer_.find(marker);
  std::size_t kept = partial_match(buffer_, marker);
  for (const std::string_view dropped : format_->dropped) {
    kept = std::max(kept, partial_match(buffer_, dropped));
    const std::size_t found = buffer_.find(dropped);
    if (found >= at) continue;
    at = found;
    marker = dropped;
  }
  if (at == std::string::npos) {
    put(std::string_view(buffer_).substr(0, buffer_.size() - kept), content);
    buffer_.erase(0, buffer_.size() - kept);
    return false;
  }
  put(std::string_view(buffer_).substr(0, at), content);
  buffer_.erase(0, at + marker.size());
  if (marker == format_->begin) {
    state_ = State::kCall;
    searched_ = 0;
  }
  return true;
}

// Looks for the end of the call. An end marker inside of an argument does not complete a call, so
// the next one is tried. True when the call is over.
bool ToolCallStream::next_end(std::vector<ToolCall>& calls) {
  if (format_->prompt_has_begin) {
    if (buffer_.starts_with(format_->text_begin)) {
      buffer_.erase(0, format_->text_begin.size());
      begin_in_prompt_ = false;
      state_ = State::kText;
      return true;
    }
    if (format_->text_begin.starts_with(buffer_)) return false;
  }
  const std::string_view end = format_->end.empty() ? format_->begin : format_->end;
  while (true) {
    const std::size_t at = buffer_.find(end, searched_);
    if (at == std::string::npos) {
      searched_ = std::max(searched_, buffer_.size() - std::min(buffer_.size(), end.size() - 1));
      return false;
    }
    if (take_body(std::string_view(buffer_).substr(0, at), calls)) {
      // The next call begins with the marker that ended this one.
      buffer_.erase(0, format_->end.empty() ? at : at + end.size());
      state_ = State::kText;
      return true;
    }
    searched_ = at + 1;
    if (++failures_ >= kMaxFailures) return false;
  }
}

bool ToolCallStream::take_body(std::string_view body, std::vector<ToolCall>& calls) {
  auto found = parse_tool_body(*format_, body, *parameters_);
  if (!found) return false;
  add(*std::move(found), calls);
  if (body.size() == buffer_.size()) {
    buffer_.clear();
    state_ = State::kText;
  }
  return true;
}

bool ToolCallStream::take_cut_body(std::string_view body, std::vector<ToolCall>& calls) {
  auto found = parse_cut_tool_body(*format_, body, *parameters_);
  if (!found) return false;
  add(*std::move(found), calls);
  buffer_.clear();
  state_ = State::kText;
  return true;
}

void ToolCallStream::add(std::vector<ToolCall> found, std::vector<ToolCall>& calls) {
  for (ToolCall& call : found) calls.push_back(std::move(call));
  any_call_ = true;
  begin_in_prompt_ = false;
  space_.clear();
}

// The answer is over inside of a call. Models end an answer without `end` at times, and a limit of
// tokens cuts it: the call is there all the same if its body is complete.
bool ToolCallStream::take_last_body(std::vector<ToolCall>& calls) {
  if (format_->end.empty()) return take_body(buffer_, calls);
  if (!format_->body_shows_its_end()) return false;
  const std::size_t size = buffer_.size() - partial_match(buffer_, format_->end);
  if (!take_body(std::string_view(buffer_).substr(0, size), calls)) return false;
  buffer_.clear();
  state_ = State::kText;
  return true;
}

// The text between the markers is no call, and nothing will make it one: the marker is text, and
// what follows is looked at again.
void ToolCallStream::give_up_call(std::string& content) {
  put_begin(content);
  state_ = State::kText;
  ++failures_;
}

void ToolCallStream::put_begin(std::string& content) {
  if (!begin_in_prompt_) put(format_->begin, content);
  begin_in_prompt_ = false;
}

// Everything from here on is content.
void ToolCallStream::pass_through(std::string& content) {
  if (state_ == State::kCall) put_begin(content);
  content += space_;
  space_.clear();
  content += buffer_;
  buffer_.clear();
  state_ = State::kPassThrough;
}

// White space waits until it is known whether a call follows.
void ToolCallStream::put(std::string_view text, std::string& content) {
  const std::size_t last = text.find_last_not_of(kWhiteSpace);
  if (last == std::string_view::npos) {
    space_ += text;
    return;
  }
  content += space_;
  content += text.substr(0, last + 1);
  space_ = text.substr(last + 1);
}

}  // namespace sluice
