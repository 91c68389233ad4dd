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

void strip(const StripStep& step, std::string& text, std::size_t& first_bytes) {
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
  first_bytes = std::min(first_bytes - std::min(first_bytes, begin), text.size());
}

void append_lowercase(std::string_view text, std::string& out) {
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint c = utf8::decode(text, at);
    at += c.bytes;
    if (c.value == 0x130) {
      out += "i\xCC\x87";  // the only lowercase form of two characters: i, U+0307
    } else {
      utf8::append(unicode::to_lowercase(c.value), out);
    }
  }
}

void append_without_accents(std::string_view text, std::string& out) {
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint c = utf8::decode(text, at);
    if (!unicode::classes().is(c.value, unicode::kMark)) out += text.substr(at, c.bytes);
    at += c.bytes;
  }
}

struct Runner {
  std::string& text;
  NormalizerScratch& scratch;

  Status operator()(const PrependStep& step) const {
    if (text.empty()) return {};
    text.insert(0, step.text);
    if (scratch.first_bytes > 0) scratch.first_bytes += step.text.size();
    return {};
  }
  Status operator()(const ReplaceStep& step) const {
    scratch.spare.clear();
    RETURN_IF_ERROR(replace_all(step, text, scratch, scratch.spare));
    text.swap(scratch.spare);
    return {};
  }
  Status operator()(const NormalForm& form) const {
    if (scratch.first_bytes > 0) {
      scratch.spare.assign(text, 0, scratch.first_bytes);
      RETURN_IF_ERROR(normalize(form, scratch.spare, scratch.normal_form, scratch.meter));
      scratch.first_bytes = scratch.spare.size();
    }
    return normalize(form, text, scratch.normal_form, scratch.meter);
  }
  Status operator()(const StripStep& step) const {
    strip(step, text, scratch.first_bytes);
    return {};
  }
  Status operator()(const LowercaseStep&) const { return map(append_lowercase); }
  Status operator()(const StripAccentsStep&) const { return map(append_without_accents); }
  Status operator()(const ByteLevelStep&) const { return map(append_byte_letters); }

  // For steps that map each character by itself: `append`(characters, out).
  Status map(void (*append)(std::string_view, std::string&)) const {
    const std::string_view whole = text;
    scratch.spare.clear();
    append(whole.substr(0, scratch.first_bytes), scratch.spare);
    const std::size_t first_bytes = scratch.spare.size();
    append(whole.substr(scratch.first_bytes), scratch.spare);
    scratch.first_bytes = first_bytes;
    text.swap(scratch.spare);
    return {};
  }
};

}  // namespace

Status replace_all(const ReplaceStep& step, std::string_view text, NormalizerScratch& scratch,
                   std::string& out) {
  std::size_t copied = 0;
  const std::size_t before = out.size();
  const std::size_t first_end = scratch.first_bytes;
  const auto replace = [&](std::size_t begin, std::size_t end) {
    out.append(text.substr(copied, begin - copied));
    const std::size_t at = out.size() - before;
    out.append(step.content);
    copied = end;
    if (first_end > 0 && end <= first_end) {
      scratch.first_bytes = out.size() - before + first_end - end;
    } else if (begin < first_end) {
      scratch.first_bytes = at;
    }
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

}  // namespace sluice
