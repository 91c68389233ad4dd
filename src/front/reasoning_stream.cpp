#include "front/reasoning_stream.h"

#include <algorithm>
#include <array>

#include "base/partial_match.h"

namespace sluice {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

constexpr std::array<ReasoningFormat, 11> kReasoningFormats = {{
    {"qwen3", "<think>", "</think>"},
    {"deepseek_r1", "<think>", "</think>"},
    {"deepseek_v3", "<think>", "</think>"},
    {"glm45", "<think>", "</think>"},
    {"nemotron_v3", "<think>", "</think>"},
    {"step3p5", "<think>", "</think>"},
    {"seed_oss", "<seed:think>", "</seed:think>"},
    {"mistral", "[THINK]", "[/THINK]"},
    {"gemma4", "<|channel>thought\n", "<channel|>"},
    {"openai_gptoss", "<|channel|>analysis<|message|>", "<|end|><|start|>assistant"},
    {"granite", "Here is my thought process:", "Here is my response:"},
}};

}  // namespace

std::span<const ReasoningFormat> reasoning_formats() { return kReasoningFormats; }

const ReasoningFormat* find_reasoning_format(std::string_view name) {
  const auto found = std::ranges::find(kReasoningFormats, name, &ReasoningFormat::name);
  return found == kReasoningFormats.end() ? nullptr : &*found;
}

bool begins_inside(const ReasoningFormat& format, std::string_view prompt) {
  const std::size_t last = prompt.find_last_not_of(kBlank);
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(format.begin);
}

void ReasoningStream::push(std::string_view text, std::string& reasoning, std::string& content) {
  buffer_ += text;
  if (state_ == State::kStart && !decide_start()) return;
  if (state_ == State::kReasoning && !find_end(reasoning)) return;
  content += buffer_;
  buffer_.clear();
}

void ReasoningStream::finish(std::string& reasoning, std::string& content) {
  (state_ == State::kReasoning ? reasoning : content) += buffer_;
  buffer_.clear();
}

// False while the text may yet become the first marker.
bool ReasoningStream::decide_start() {
  const std::size_t first = std::min(buffer_.find_first_not_of(kBlank), buffer_.size());
  const std::string_view text = std::string_view(buffer_).substr(first);
  if (text.starts_with(format_->begin)) {
    buffer_.erase(0, first + format_->begin.size());
    state_ = State::kReasoning;
    return true;
  }
  if (format_->begin.starts_with(text)) return false;
  state_ = State::kContent;
  return true;
}

// Moves the text up to the second marker to the reasoning. False while there is no such marker.
bool ReasoningStream::find_end(std::string& reasoning) {
  const std::size_t at = buffer_.find(format_->end);
  if (at != std::string::npos) {
    reasoning.append(buffer_, 0, at);
    buffer_.erase(0, at + format_->end.size());
    state_ = State::kContent;
    return true;
  }
  const std::size_t kept = partial_match(buffer_, format_->end);
  reasoning.append(buffer_, 0, buffer_.size() - kept);
  buffer_.erase(0, buffer_.size() - kept);
  return false;
}

}  // namespace sluice
