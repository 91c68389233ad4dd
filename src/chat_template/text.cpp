#include "chat_template/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat_template/case_table.h"

namespace sluice::jinja {

namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

const CaseExpansion* find_expansion(char32_t c) {
  const CaseExpansion* end = kCaseExpansions + kCaseExpansionCount;
  const CaseExpansion* it = std::lower_bound(
      kCaseExpansions, end, c, [](const CaseExpansion& e, char32_t x) { return e.letter < x; });
  return it != end && it->letter == c ? it : nullptr;
}

void append_all(std::string& out, const char32_t (&letters)[4]) {
  for (int i = 0; i < 4 && letters[i] != 0; ++i) utf8::append(letters[i], out);
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (const CaseExpansion* e = find_expansion(c)) {
    append_all(out, e->upper);
  } else {
    utf8::append(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void append_title(std::string& out, char32_t c) {
  if (const CaseExpansion* e = find_expansion(c)) {
    append_all(out, e->title);
  } else {
    utf8::append(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

bool is_case_ignorable(char32_t c) {
  const utf8proc_category_t cat = category(c);
  return cat == UTF8PROC_CATEGORY_MN || cat == UTF8PROC_CATEGORY_ME ||
         cat == UTF8PROC_CATEGORY_CF || cat == UTF8PROC_CATEGORY_LM ||
         cat == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
         c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0x387;
}

// A capital sigma at the end of a word has its own small letter.
bool is_final_sigma(std::string_view text, std::size_t begin, std::size_t end) {
  bool cased_before = false;
  for (std::size_t i = begin; i > 0;) {
    i = utf8::previous(text, i);
    std::size_t p = i;
    const char32_t c = next_code_point(text, &p);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  for (std::size_t p = end; p < text.size();) {
    const char32_t c = next_code_point(text, &p);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, std::size_t begin, std::size_t end,
                  char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {
    utf8::append('i', out);
    utf8::append(0x307, out);
  } else if (c == 0x3A3) {
    utf8::append(is_final_sigma(text, begin, end) ? 0x3C2 : 0x3C3, out);
  } else {
    utf8::append(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
    if (index-- == 0) return i;
  }
  return text.size();
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}
bool is_alpha(char32_t c) {
  const utf8proc_category_t cat = category(c);
  return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_numeric(char32_t c) {
  const utf8proc_category_t cat = category(c);
  return cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) append_upper(out, next_code_point(text, &i));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(text, &i);
    append_lower(out, text, begin, i, c);
  }
  return out;
}

std::string to_casefold(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, &i);
    utf8proc_int32_t folded[4];
    int last_class = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 4,
                                                       UTF8PROC_CASEFOLD, &last_class);
    for (utf8proc_ssize_t k = 0; k < n && k < 4; ++k) {
      utf8::append(static_cast<char32_t>(folded[k]), out);
    }
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(text, &i);
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, begin, i, c);
    }
  }
  return out;
}

std::string title_case(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(text, &i);
    if (inside) {
      append_lower(out, text, begin, i, c);
    } else {
      append_title(out, c);
    }
    inside = is_cased(c);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(text, &i);
    if (is_upper(c)) {
      append_lower(out, text, begin, i, c);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      utf8::append(c, out);
    }
  }
  return out;
}

}  // namespace sluice::jinja
