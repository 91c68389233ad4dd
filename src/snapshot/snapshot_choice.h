// The snapshot that a start uses: --snapshot auto|off|FILE. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

enum class SnapshotMode : std::uint8_t {
  kOff,
  kAuto,     // a file in the cache folder, read and kept
  kFile,     // a file that the user named, read only
  kCollect,  // nothing is read; everything is offered, for `snapshot save`
};

struct SnapshotChoice {
  SnapshotMode mode = SnapshotMode::kOff;
  std::string path = {};  // of kFile
  bool weights = false;   // of kCollect: converted weights too
};

}  // namespace sluice
