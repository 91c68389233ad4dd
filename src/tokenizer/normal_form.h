// Unicode normal forms NFC, NFD, NFKC and NFKD, with the data of utf8proc. Linear in the length of
// any text, unlike utf8proc_map(), which sorts a run of combining marks in quadratic time. Code
// points newer than the reference's Unicode version are barriers: they are copied, and no
// characters combine across them.
// Threads: any, each with its own scratch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"

namespace sluice {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

struct NormalFormScratch {
  std::vector<std::int32_t> code_points;
  std::vector<std::int32_t> marks;
  std::string spare;
};

// Normalizes `text` in place. Errors: the stop check's. REQUIRES: valid UTF-8.
Status normalize(NormalForm form, std::string& text, NormalFormScratch& scratch, StopMeter& meter);

}  // namespace sluice
