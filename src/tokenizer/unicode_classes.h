// unicode::Classes: the classes of a code point, in one table look-up. Built once on first use
// (about a millisecond), immutable afterwards; any thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace sluice::unicode {

enum ClassMask : std::uint8_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,
  kNumeric = 8,
  kPunctuation = 16,
  kWord = 32,
  kMark = 64,
  kBarrier = 128,
};

inline constexpr std::uint32_t kCodePoints = 0x110000;

class Classes {
 public:
  Classes();

  // REQUIRES: code_point < kCodePoints.
  std::uint8_t mask(std::uint32_t code_point) const { return masks_.get()[code_point]; }
  bool is(std::uint32_t code_point, ClassMask wanted) const {
    return (masks_.get()[code_point] & wanted) != 0;
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<std::uint8_t, Free> masks_;  // kCodePoints of them
};

const Classes& classes();

// The lowercase of one code point; the only one of two characters (U+0130) is handled by callers.
std::uint32_t to_lowercase(std::uint32_t code_point);

}  // namespace sluice::unicode
