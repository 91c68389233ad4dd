#include "tokenizer/text_normalizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/unicode_classes.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

bool is_space_at(std::string_view text, std::size_t at) {
  return unicode::classes().is(utf8::decode(text, at).value, unicode::kSpace);
}

void strip(const StripStep& step, std::string& text) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (step.left && begin < end && is_space_at(text, begin)) {
    begin += utf8::decode(text, begin).bytes;
  }
  while (step.right && end > begin) {
    const std::size_t last = utf8::previous(text, end);
    if (!is_space_at(text, last)) break;
    end = last;
  }
  text.resize(end);
  text.erase(0, begin);
}

void lowercase(std::string& text, std::string& spare) {
  spare.clear();
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint c = utf8::decode(text, at);
    at += c.bytes;
    if (c.value == 0x130) {
      spare += "i\xCC\x87";  // the only lowercase form of two characters: i, U+0307
    } else {
      utf8::append(unicode::to_lowercase(c.value), spare);
    }
  }
  text.swap(spare);
}

void strip_accents(std::string& text, std::string& spare) {
  spare.clear();
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint c = utf8::decode(text, at);
    if (!unicode::classes().is(c.value, unicode::kMark)) spare.append(text, at, c.bytes);
    at += c.bytes;
  }
  text.swap(spare);
}

struct Runner {
  std::string& text;
  NormalizerScratch& scratch;

  Status operator()(const PrependStep& step) const {
    if (!text.empty()) text.insert(0, step.text);
    return {};
  }
  Status operator()(const ReplaceStep& step) const {
    scratch.spare.clear();
    RETURN_IF_ERROR(replace_all(step, text, scratch, scratch.spare));
    text.swap(scratch.spare);
    return {};
  }
  Status operator()(const NormalForm& form) const {
    return normalize(form, text, scratch.normal_form, scratch.meter);
  }
  Status operator()(const StripStep& step) const {
    strip(step, text);
    return {};
  }
  Status operator()(const LowercaseStep&) const {
    lowercase(text, scratch.spare);
    return {};
  }
  Status operator()(const StripAccentsStep&) const {
    strip_accents(text, scratch.spare);
    return {};
  }
  Status operator()(const ByteLevelStep&) const {
    scratch.spare.clear();
    append_byte_letters(text, scratch.spare);
    text.swap(scratch.spare);
    return {};
  }
};

}  // namespace

Status replace_all(const ReplaceStep& step, std::string_view text, NormalizerScratch& scratch,
                   std::string& out) {
  std::size_t copied = 0;
  const auto replace = [&](std::size_t begin, std::size_t end) {
    out.append(text.substr(copied, begin - copied));
    out.append(step.content);
    copied = end;
  };
  if (const auto* literal = std::get_if<std::string>(&step.pattern)) {
    for (std::size_t at = text.find(*literal); at != std::string_view::npos;
         at = text.find(*literal, copied)) {
      replace(at, at + literal->size());
    }
  } else {
    RETURN_IF_ERROR(std::get<Regex>(step.pattern).find_all(text, scratch.regex, scratch.matches));
    for (const TextRange& match : scratch.matches) replace(match.begin, match.end);
  }
  out.append(text.substr(copied));
  return {};
}

Status TextNormalizer::run(std::string& text, NormalizerScratch& scratch) const {
  for (const NormalizerStep& step : steps_) {
    RETURN_IF_ERROR(scratch.meter.spend(text.size() / 16));
    RETURN_IF_ERROR(std::visit(Runner{text, scratch}, step));
    if (text.size() > kMaxBytes) {
      return invalid_argument("text: longer than 1 GiB after the tokenizer's normalizer");
    }
  }
  return {};
}

bool TextNormalizer::strips_start_of(std::string_view text) const {
  if (text.empty()) return false;
  const auto removes_start = [&](const NormalizerStep& step) {
    if (const auto* strip_step = std::get_if<StripStep>(&step)) {
      return strip_step->left && is_space_at(text, 0);
    }
    if (std::holds_alternative<StripAccentsStep>(step)) {
      return unicode::classes().is(utf8::decode(text, 0).value, unicode::kMark);
    }
    const auto* replace_step = std::get_if<ReplaceStep>(&step);
    if (replace_step == nullptr || !replace_step->content.empty()) return false;
    const auto* literal = std::get_if<std::string>(&replace_step->pattern);
    return literal != nullptr && text.starts_with(*literal);
  };
  return std::ranges::any_of(steps_, removes_start);
}

}  // namespace sluice
