// Whether a sanitizer watches this build: then code is ten times slower and uses more memory.
#pragma once

namespace sluice {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// The rounds of a long random test: a sixth of them under a sanitizer.
constexpr int rounds(int most) { return kSanitized ? (most + 5) / 6 : most; }

}  // namespace sluice
