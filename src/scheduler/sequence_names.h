// The names under which a sequence's blocks are looked for. Pure functions; any thread.
#pragma once

#include <vector>

#include "kv/block_names.h"
#include "request/sequence.h"

namespace sluice {

// The names of full blocks: those of the prompt, or after a preemption those computed so far.
inline const std::vector<Hash128>& known_hashes(const Sequence& sequence) {
  return sequence.block_hashes.empty() ? sequence.request->block_hashes : sequence.block_hashes;
}

// The same with the tail of a displaced sequence.
inline BlockNames names_of(const Sequence& sequence) {
  return {known_hashes(sequence), sequence.tail_name, sequence.tail_end};
}

}  // namespace sluice
