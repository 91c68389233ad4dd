#include "tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/unicode_classes.h"

namespace sluice {
namespace {

// Below this code point the form changes nothing and no character combines, so plain text is not
// processed.
std::uint32_t first_affected(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc: return 0x300;
    case NormalForm::kNfd: return 0xC0;
    case NormalForm::kNfkc:
    case NormalForm::kNfkd: return 0xA0;
  }
  return 0;
}

utf8proc_option_t options_of(NormalForm form) {
  unsigned options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (compatible) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

std::size_t combining_class(std::int32_t code_point) {
  return static_cast<std::size_t>(utf8proc_get_property(code_point)->combining_class);
}

class Normalizer {
 public:
  Normalizer(NormalForm form, NormalFormScratch& scratch, StopMeter& meter)
      : options_(options_of(form)),
        composes_((options_ & UTF8PROC_COMPOSE) != 0),
        code_points_(scratch.code_points),
        marks_(scratch.marks),
        meter_(meter) {}

  // Appends the normal form of `text`.
  Status append(std::string_view text, std::string& out) {
    code_points_.clear();
    RETURN_IF_ERROR(decompose(text));
    sort_marks();
    RETURN_IF_ERROR(meter_.spend(code_points_.size() / 4));
    if (composes_) compose();
    for (const std::int32_t c : code_points_) utf8::append(static_cast<std::uint32_t>(c), out);
    return meter_.spend(code_points_.size() / 4);
  }

 private:
  Status decompose(std::string_view text) {
    // The longest decomposition in Unicode has 18 code points (U+FDFA).
    std::array<std::int32_t, 32> parts;
    for (std::size_t at = 0; at < text.size();) {
      RETURN_IF_ERROR(meter_.spend(1));
      const utf8::CodePoint c = utf8::decode(text, at);
      at += c.bytes;
      int boundary_class = 0;
      const auto count = utf8proc_decompose_char(static_cast<std::int32_t>(c.value), parts.data(),
                                                 std::ssize(parts), options_, &boundary_class);
      CHECK(count >= 0 && count <= std::ssize(parts));
      code_points_.insert(code_points_.end(), parts.begin(), parts.begin() + count);
    }
    return {};
  }

  // The canonical order: runs of marks (a combining class other than 0), by class, stable.
  void sort_marks() {
    for (auto at = code_points_.begin(); at != code_points_.end();) {
      if (combining_class(*at) == 0) {
        ++at;
        continue;
      }
      const auto end = std::find_if(at, code_points_.end(),
                                    [](std::int32_t c) { return combining_class(c) == 0; });
      sort_run(at, end);
      at = end;
    }
  }

  using Iterator = std::vector<std::int32_t>::iterator;
  void sort_run(Iterator begin, Iterator end) {
    const auto by_class = [](std::int32_t a, std::int32_t b) {
      return combining_class(a) < combining_class(b);
    };
    if (std::is_sorted(begin, end, by_class)) return;
    // A counting sort: there are only 256 classes.
    std::array<std::size_t, 257> starts{};
    for (auto at = begin; at != end; ++at) ++starts[combining_class(*at) + 1];
    for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
    marks_.assign(begin, end);
    for (const std::int32_t mark : marks_) {
      begin[static_cast<std::ptrdiff_t>(starts[combining_class(mark)]++)] = mark;
    }
  }

  void compose() {
    const auto size = utf8proc_normalize_utf32(
        code_points_.data(), static_cast<utf8proc_ssize_t>(code_points_.size()), options_);
    CHECK(size >= 0);
    code_points_.resize(static_cast<std::size_t>(size));
  }

  utf8proc_option_t options_;
  bool composes_;
  std::vector<std::int32_t>& code_points_;
  std::vector<std::int32_t>& marks_;
  StopMeter& meter_;
};

}  // namespace

// Copies runs that the form cannot change. Normalizes every other run together with the character
// before it, which may combine with the run.
Status normalize(NormalForm form, std::string& text, NormalFormScratch& scratch, StopMeter& meter) {
  const std::uint32_t limit = first_affected(form);
  const auto plain = [&](std::uint32_t c) { return c < limit; };
  std::size_t at = 0;
  while (at < text.size() && plain(utf8::decode(text, at).value)) {
    at += utf8::decode(text, at).bytes;
  }
  if (at == text.size()) return {};
  std::string& out = scratch.spare;
  out.clear();
  Normalizer normalizer(form, scratch, meter);
  std::size_t copied = 0;
  while (at < text.size()) {
    const std::size_t begin = at > copied ? utf8::previous(text, at) : at;
    out.append(text, copied, begin - copied);
    bool barrier = false;
    std::size_t end = at;
    while (end < text.size()) {
      const utf8::CodePoint c = utf8::decode(text, end);
      barrier = unicode::classes().is(c.value, unicode::kBarrier);
      if (barrier || plain(c.value)) break;
      end += c.bytes;
    }
    if (end > begin) {
      RETURN_IF_ERROR(normalizer.append(std::string_view(text).substr(begin, end - begin), out));
    }
    if (barrier) {
      const std::size_t next = end + utf8::decode(text, end).bytes;
      out.append(text, end, next - end);
      end = next;
    }
    copied = end;
    at = end;
    while (at < text.size() && plain(utf8::decode(text, at).value)) {
      at += utf8::decode(text, at).bytes;
    }
  }
  out.append(text, copied, text.size() - copied);
  text.swap(out);
  return {};
}

}  // namespace sluice
