// Whether a sanitizer watches this build: then code is ten times slower and uses more memory.
#pragma once

// g++ says it with macros, clang with features.
#ifndef __has_feature
#define __has_feature(x) 0
#endif

namespace sluice {

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
constexpr bool kAddressSanitized = true;
#else
constexpr bool kAddressSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = kAddressSanitized;
#endif

// The rounds of a long random test: a sixth of them under a sanitizer.
constexpr int rounds(int most) { return kSanitized ? (most + 5) / 6 : most; }

}  // namespace sluice
