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

// Where the arena lies in whose graphs are restored: --restore.
enum class RestoreMode : std::uint8_t {
  kAutomatic,  // at the base that was saved, if it is free; else at another one
  kLayout,     // at the base that was saved; if it is taken, the graphs are made natively
  kRelocate,   // at another base, though the saved one is free
};

struct SnapshotChoice {
  SnapshotMode mode = SnapshotMode::kOff;
  std::string path = {};  // of kFile
  bool weights = false;   // of kCollect: converted weights too
  RestoreMode restore = RestoreMode::kAutomatic;
};

}  // namespace sluice
