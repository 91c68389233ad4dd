// The canary of a snapshot: a short input and a checksum of its logits. A start that uses the
// snapshot runs the input and compares. A difference means that this process computes other bits
// than the one that made the file, although nothing in the key differs: what was restored is wrong,
// or the machine is.
// Functions; the engine's thread.
#pragma once

#include "apps/warm_start.h"
#include "base/clock.h"
#include "base/hash128.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/logits_tap.h"
#include "snapshot/snapshot.h"

namespace sluice {

// The checksum of the logits behind the input, of the whole row. Takes one step, and leaves nothing
// in the prefix cache. REQUIRES: the engine has no work; `logits` are those of its executor.
Result<Hash128> canary_checksum(Engine& engine, LogitsTap& logits, const Clock& clock);

// Compares the snapshot's checksum with this engine's, or offers it to a snapshot without one.
// kInternal if they differ: answers are not to be trusted. The cache folder's file is then removed.
Status check_canary(Engine& engine, LogitsTap& logits, const Clock& clock, const WarmFacts& facts,
                    Snapshot& snapshot);

}  // namespace sluice
