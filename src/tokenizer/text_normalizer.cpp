#include "tokenizer/text_normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "tokenizer/byte_letters.h"
#include "tokenizer/unicode_classes.h"
#include "tokenizer/utf8.h"

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

Status append_normal_form(NormalForm form, std::string_view text, std::string& out) {
  unsigned options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (compatible) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &raw,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(raw, &std::free);
  if (size < 0) {
    return invalid_argument(std::string("text: normalizing failed: ") + utf8proc_errmsg(size));
  }
  out.append(reinterpret_cast<const char*>(raw), static_cast<std::size_t>(size));
  return {};
}

// Below these code points a form changes nothing and nothing combines: plain text is not touched.
std::uint32_t first_affected(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc: return 0x300;
    case NormalForm::kNfd: return 0xC0;
    case NormalForm::kNfkc:
    case NormalForm::kNfkd: return 0xA0;
  }
  return 0;
}

// The text is cut into stretches: runs that the form cannot change are copied; the rest, with the
// character before it (which may combine), goes through utf8proc. A barrier is a code point the
// reference's older Unicode does not know: it is copied and nothing combines across it.
Status normal_form(NormalForm form, std::string& text, std::string& spare) {
  const std::uint32_t limit = first_affected(form);
  const auto plain = [&](std::uint32_t c) { return c < limit; };
  std::size_t at = 0;
  while (at < text.size() && plain(utf8::decode(text, at).value)) {
    at += utf8::decode(text, at).bytes;
  }
  if (at == text.size()) return {};
  spare.clear();
  std::size_t copied = 0;
  while (at < text.size()) {
    std::size_t begin = at > copied ? utf8::previous(text, at) : at;
    spare.append(text, copied, begin - copied);
    bool barrier = false;
    std::size_t end = at;
    while (end < text.size()) {
      const utf8::CodePoint c = utf8::decode(text, end);
      barrier = unicode::classes().is(c.value, unicode::kBarrier);
      if (barrier || plain(c.value)) break;
      end += c.bytes;
    }
    if (end > begin) {
      RETURN_IF_ERROR(
          append_normal_form(form, std::string_view(text).substr(begin, end - begin), spare));
    }
    if (barrier) {
      const std::size_t next = end + utf8::decode(text, end).bytes;
      spare.append(text, end, next - end);
      end = next;
    }
    copied = end;
    at = end;
    while (at < text.size() && plain(utf8::decode(text, at).value)) {
      at += utf8::decode(text, at).bytes;
    }
  }
  spare.append(text, copied, text.size() - copied);
  text.swap(spare);
  return {};
}

void lowercase(std::string& text, std::string& spare) {
  spare.clear();
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint c = utf8::decode(text, at);
    at += c.bytes;
    if (c.value == 0x130) {
      spare += "i\xCC\x87";  // the one lowercase of two characters: i, U+0307
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
  Status operator()(const NormalForm& form) const { return normal_form(form, text, scratch.spare); }
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
  for (const NormalizerStep& step : steps_) {
    const auto* strip_step = std::get_if<StripStep>(&step);
    if (strip_step != nullptr && strip_step->left && !text.empty() && is_space_at(text, 0)) {
      return true;
    }
  }
  return false;
}

}  // namespace sluice
