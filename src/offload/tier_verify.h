// Checks every block of a tier's folder, as a load would (segment_check.h). It needs the secret and
// no model.
// Function; any thread. Errors name the folder or the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hmac.h"
#include "base/result.h"
#include "offload/segment_check.h"

namespace sluice {

// The segments of one identity.
struct VerifiedContents {
  std::string identity;  // the beginning of the files' names
  std::int32_t segments = 0;
  SegmentCounts pages;                  // of the segments that could be checked
  std::vector<std::string> unreadable;  // one line for each of the others: its path and the reason
};

// By identity, sorted. Takes the folder's lock meanwhile. kNotFound without the folder.
Result<std::vector<VerifiedContents>> verify_tier_folder(const std::string& folder,
                                                         const HmacKey& secret);

}  // namespace sluice
