#include "tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_letters.h"

namespace sluice {
namespace {

using Parts = std::vector<std::pair<TextRange, bool>>;

// All of `piece` as alternating parts: (range, is it a match).
void parts_from_matches(const std::vector<TextRange>& matches, TextRange piece, Parts& parts) {
  std::size_t at = piece.begin;
  for (const TextRange& match : matches) {
    if (at != match.begin) parts.push_back({{at, match.begin}, false});
    parts.push_back({match, true});
    at = match.end;
  }
  if (at != piece.end) parts.push_back({{at, piece.end}, false});
}

struct PartFinder {
  std::string_view text;
  TextRange piece;
  PreTokenizerScratch& scratch;

  Status operator()(KnownPattern pattern) const {
    const std::string_view inside = text.substr(0, piece.end);
    // The scanners read ahead, so they must not see past the piece.
    std::size_t unmatched = piece.begin;
    const auto flush = [&](std::size_t end) {
      if (unmatched != end) scratch.parts.push_back({{unmatched, end}, false});
    };
    for (std::size_t at = piece.begin; at < piece.end;) {
      const std::size_t end = scan_match(pattern, inside, at);
      RETURN_IF_ERROR(scratch.meter.spend(1));
      if (end == at) {
        at += utf8::decode(inside, at).bytes;
        continue;
      }
      flush(at);
      scratch.parts.push_back({{at, end}, true});
      at = unmatched = end;
    }
    flush(piece.end);
    return {};
  }
  Status operator()(const Regex& regex) const {
    const std::string_view inside = text.substr(piece.begin, piece.end - piece.begin);
    RETURN_IF_ERROR(regex.find_all(inside, scratch.regex, scratch.matches));
    for (TextRange& match : scratch.matches) {
      match.begin += piece.begin;
      match.end += piece.begin;
    }
    parts_from_matches(scratch.matches, piece, scratch.parts);
    return {};
  }
  Status operator()(const std::string& literal) const {
    const std::string_view inside = text.substr(0, piece.end);
    scratch.matches.clear();
    for (std::size_t at = inside.find(literal, piece.begin); at != std::string_view::npos;
         at = inside.find(literal, at + literal.size())) {
      scratch.matches.push_back({at, at + literal.size()});
    }
    parts_from_matches(scratch.matches, piece, scratch.parts);
    return {};
  }
  Status operator()(unicode::ClassMask mask) const {
    scratch.matches.clear();
    for (std::size_t at = piece.begin; at < piece.end;) {
      const utf8::CodePoint c = utf8::decode(text, at);
      if (unicode::classes().is(c.value, mask)) scratch.matches.push_back({at, at + c.bytes});
      at += c.bytes;
    }
    parts_from_matches(scratch.matches, piece, scratch.parts);
    return {};
  }
};

// The behaviours combine the parts as the reference does, including its treatment of the first
// part. `out` has pieces of earlier texts before index `start`; those are never extended.
void append_pieces(Parts& parts, SplitBehavior behavior, std::vector<TextRange>& out) {
  const std::size_t start = out.size();
  bool previous = false;
  if (behavior == SplitBehavior::kMergedWithNext) std::reverse(parts.begin(), parts.end());
  for (const auto& [range, is_match] : parts) {
    bool extend = false;
    switch (behavior) {
      case SplitBehavior::kIsolated: break;
      case SplitBehavior::kRemoved:
        if (is_match) continue;
        break;
      case SplitBehavior::kContiguous: extend = is_match == previous; break;
      case SplitBehavior::kMergedWithPrevious:
      case SplitBehavior::kMergedWithNext: extend = is_match && !previous; break;
    }
    previous = is_match;
    if (extend && out.size() > start) {
      if (behavior == SplitBehavior::kMergedWithNext) {
        out.back().begin = range.begin;
      } else {
        out.back().end = range.end;
      }
    } else {
      out.push_back(range);
    }
  }
  const auto first = out.begin() + static_cast<std::ptrdiff_t>(start);
  if (behavior == SplitBehavior::kMergedWithNext) std::reverse(first, out.end());
  out.erase(std::remove_if(first, out.end(), [](TextRange r) { return r.begin == r.end; }),
            out.end());
}

struct StepRunner {
  std::string_view text;
  PreTokenizerScratch& scratch;

  Result<std::string_view> split(const SplitStep& step) const {
    scratch.next.clear();
    // The common case: a scanner's matches are the pieces.
    const auto* known = std::get_if<KnownPattern>(&step.pattern);
    if (known != nullptr && *known != KnownPattern::kThreeDigits &&
        step.behavior == SplitBehavior::kIsolated) {
      for (const TextRange& piece : scratch.pieces) {
        const std::string_view inside = text.substr(0, piece.end);
        for (std::size_t at = piece.begin; at < piece.end;) {
          const std::size_t end = scan_match(*known, inside, at);
          scratch.next.push_back({at, end});
          RETURN_IF_ERROR(scratch.meter.spend(1 + (end - at) / 16));
          at = end;
        }
      }
      scratch.pieces.swap(scratch.next);
      return text;
    }
    for (const TextRange& piece : scratch.pieces) {
      RETURN_IF_ERROR(scratch.meter.spend(1 + (piece.end - piece.begin) / 16));
      scratch.parts.clear();
      RETURN_IF_ERROR(std::visit(PartFinder{text, piece, scratch}, step.pattern));
      if (step.sense == MatchSense::kInverted) {
        for (auto& part : scratch.parts) part.second = !part.second;
      }
      append_pieces(scratch.parts, step.behavior, scratch.next);
    }
    scratch.pieces.swap(scratch.next);
    return text;
  }

  // Rewrites every piece: `start`(piece, whether it stands for the input's first character, out)
  // puts something before it, and `map`(characters, out) replaces each character by itself.
  template <class Start, class Map>
  std::string_view rewrite_pieces(const Start& start, const Map& map) const {
    scratch.spare.clear();
    std::size_t first_bytes = 0;
    for (TextRange& piece : scratch.pieces) {
      const std::size_t begin = scratch.spare.size();
      const std::string_view old = text.substr(piece.begin, piece.end - piece.begin);
      const std::size_t first =
          std::min(scratch.first_bytes - std::min(scratch.first_bytes, piece.begin), old.size());
      start(old, first > 0, scratch.spare);
      map(old.substr(0, first), scratch.spare);
      if (first > 0) first_bytes = scratch.spare.size();
      map(old.substr(first), scratch.spare);
      piece = {begin, scratch.spare.size()};
    }
    scratch.first_bytes = first_bytes;
    scratch.text.swap(scratch.spare);
    return scratch.text;
  }

  Result<std::string_view> operator()(const SplitStep& step) const { return split(step); }
  Result<std::string_view> operator()(const PrefixSpaceStep&) const {
    return rewrite_pieces(
        [](std::string_view piece, bool, std::string& out) {
          if (!piece.starts_with(' ')) out += ' ';
        },
        [](std::string_view part, std::string& out) { out += part; });
  }
  Result<std::string_view> operator()(const ByteLettersStep&) const {
    return rewrite_pieces([](std::string_view, bool, std::string&) {}, append_byte_letters);
  }
  Result<std::string_view> operator()(const WordsStep&) const {
    using unicode::kSpace;
    using unicode::kWord;
    scratch.next.clear();
    for (const TextRange& piece : scratch.pieces) {
      int kind = -1;  // of the run that is open: a class mask, or 0 for other characters
      for (std::size_t at = piece.begin; at < piece.end;) {
        const utf8::CodePoint c = utf8::decode(text, at);
        const int mask = unicode::classes().mask(c.value);
        const int now = (mask & kWord) != 0 ? kWord : (mask & kSpace);
        const std::size_t end = at + c.bytes;
        if (now == kSpace) {
          // dropped
        } else if (now == kind) {
          scratch.next.back().end = end;
        } else {
          scratch.next.push_back({at, end});
        }
        kind = now;
        at = end;
      }
    }
    scratch.pieces.swap(scratch.next);
    return text;
  }
  Result<std::string_view> operator()(const FixedLengthStep& step) const {
    scratch.next.clear();
    for (const TextRange& piece : scratch.pieces) {
      std::size_t begin = piece.begin;
      std::size_t characters = 0;
      for (std::size_t at = piece.begin; at < piece.end;) {
        at += utf8::decode(text, at).bytes;
        if (++characters == step.characters || at == piece.end) {
          scratch.next.push_back({begin, at});
          begin = at;
          characters = 0;
        }
      }
    }
    scratch.pieces.swap(scratch.next);
    return text;
  }
  Result<std::string_view> operator()(const MetaspaceStep& step) const {
    return rewrite_pieces(
        [&](std::string_view piece, bool is_first, std::string& out) {
          const bool starts = piece.starts_with(' ') || piece.starts_with(step.replacement);
          const bool wanted = step.scheme == PrependScheme::kAlways ||
                              (step.scheme == PrependScheme::kFirst && is_first);
          if (wanted && !starts) out += step.replacement;
        },
        [&](std::string_view part, std::string& out) {
          for (const char c : part) {
            if (c == ' ') {
              out += step.replacement;
            } else {
              out += c;
            }
          }
        });
  }
};

}  // namespace

bool PreTokenizer::take_final_byte_letters() {
  if (steps_.empty() || !std::holds_alternative<ByteLettersStep>(steps_.back())) return false;
  steps_.pop_back();
  return true;
}

Result<std::string_view> PreTokenizer::run(std::string_view text,
                                           PreTokenizerScratch& scratch) const {
  scratch.pieces.clear();
  if (text.empty()) return text;
  scratch.pieces.push_back({0, text.size()});
  for (const PreTokenizerStep& step : steps_) {
    RETURN_IF_ERROR(scratch.meter.spend(text.size() / 16));
    ASSIGN_OR_RETURN(text, std::visit(StepRunner{text, scratch}, step));
  }
  return text;
}

}  // namespace sluice
