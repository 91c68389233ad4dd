// Warm prompts of a command (front/warm_prompts.h): the values of --warm and --warm-limit, and the
// section of a snapshot. Blocks that the snapshot has are in the prefix cache when start_warm()
// returns; the others are computed when the engine is idle, or by compute_warm().
// Functions; the engine's thread.
#pragma once

#include <string>
#include <vector>

#include "apps/local_engine.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/engine_options.h"
#include "front/served_model.h"
#include "front/warm_prompts.h"
#include "snapshot/snapshot.h"

namespace sluice {

struct WarmArguments {
  std::vector<std::string> files;
  std::string limit;  // empty: the default
};

struct WarmOptions {
  std::vector<WarmChat> chats;
  double limit = WarmPrompts::kDefaultLimit;
};

// Reads the files. Errors name the file and the field, or the option.
Result<WarmOptions> read_warm_options(const WarmArguments& arguments, const EngineOptions& engine);

// The contents of KV blocks depend on these, besides the tokens.
struct WarmFacts {
  std::string directory;
  EngineOptions options;
  KvIdentity identity;
  std::string numerics;  // DeviceTraits::numerics
};
WarmFacts warm_facts(const std::string& directory, const EngineOptions& options,
                     const LocalEngine& local);
// Reads every byte of the model, unless digests are remembered.
Result<SnapshotKey> warm_key(const WarmFacts& facts, const SnapshotModel& model);

// Adds the chats of the options, and those of a snapshot that the user named; names their blocks in
// the model, holds them, and restores what the snapshot has.
Result<WarmPrompts> start_warm(const WarmOptions& warm, const WarmFacts& facts, Engine& engine,
                               ServedModel& model, Snapshot& snapshot);
// The blocks of a snapshot that the user named, for a command without chats: they are named by the
// tokens that the snapshot has, and a prompt that begins with these finds them. Returns the number
// of prompts.
Result<std::size_t> restore_stored_warm(const WarmFacts& facts, Engine& engine, Snapshot& snapshot);
// Computes what is missing, before any client.
Status compute_warm(WarmPrompts& prompts, Engine& engine, const ServedModel& model,
                    const Clock& clock);

}  // namespace sluice
