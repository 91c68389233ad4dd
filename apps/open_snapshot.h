// The snapshot of a command that runs a model: finds the model's facts for keys and opens the file
// that --snapshot names.
// Owner: a command. Threads: the caller's.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "snapshot/snapshot.h"

namespace sluice {

// The value of --snapshot; empty means auto.
SnapshotChoice parse_snapshot_choice(const std::string& text);

// kNotFound for a named file that does not exist, and for a directory without a model. `clock` must
// outlive the snapshot.
Result<Snapshot> open_snapshot(const std::string& directory, const SnapshotChoice& choice,
                               const Clock& clock);
// The same for a command that loads weights: with the digest of all weights, if the file holds
// converted weights or is to hold them.
Result<Snapshot> open_snapshot(const std::string& directory, const EngineOptions& options,
                               const Clock& clock);

// The model's content for keys: digests of config.json, of the tokenizer's files and of all
// weights. Reads every byte, at the speed of memory, unless the digests are remembered. `known`:
// digests that the start has already; empty ones are found.
Result<SnapshotKey> model_content(const std::string& directory, const EngineOptions& options,
                                  const SnapshotModel& known);

// Identifies this program and its C library, whose functions weights and logits depend on.
Result<std::string> program_digest();

}  // namespace sluice
