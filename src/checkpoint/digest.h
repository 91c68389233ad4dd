// Digests that name a checkpoint: keys of prefix caches and snapshots.
// Threads: functions read files and have no other effect than on the FileDigests they are given.
#pragma once

#include <string>

#include "base/file_digests.h"
#include "base/hash128.h"
#include "base/result.h"
#include "base/sha256.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// Names a model cheaply, without reading its weights: SHA-256 over config.json and, for every
// weight file in order, its name, its size, its header and 16 samples of 4 KiB spread evenly over
// its data. A change outside the samples does not change the digest; the digests below read
// everything.
Result<Sha256Digest> model_digest(const Checkpoint& checkpoint);

// The content of a model: hashes over all bytes of its files, by part, since parts of a snapshot
// depend on different ones. Absent files count as absent. The header of a GGUF file takes the place
// of the files of configuration and tokenizer.
Result<Hash128> config_digest(const std::string& directory, FileDigests& files);  // config.json
// The files of the tokenizer and of the chat templates.
Result<Hash128> tokenizer_digest(const std::string& directory, FileDigests& files);
Result<Hash128> weights_digest(const Checkpoint& checkpoint, FileDigests& files);

}  // namespace sluice
