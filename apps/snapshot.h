// `sluice snapshot save|inspect|verify`: makes a snapshot file to ship, lists what a file has and
// what it depends on, and compares a start with the file to one without. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "apps/engine_arguments.h"
#include "apps/warm_start.h"

namespace sluice {

enum class SnapshotAction : std::uint8_t { kSave, kInspect, kVerify };

struct SnapshotArguments {
  SnapshotAction action = SnapshotAction::kInspect;
  std::string file;      // read or written
  std::string model;     // not for inspect
  bool add = false;      // save: keep the sections that the file has
  bool weights = false;  // save: converted weights too
  bool json = false;
  EngineOptionTexts engine;
  WarmArguments warm;  // of save
};

// Returns the exit code.
int run_snapshot(const SnapshotArguments& arguments);

}  // namespace sluice
