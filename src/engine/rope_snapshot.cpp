#include "engine/rope_snapshot.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <cstring>
#include <span>
#include <utility>

namespace sluice {
namespace {

// The program's own part of the computation is a few products; a change of it is a new version of
// the section.
SnapshotKey key_of(const RopeFacts& facts, const SnapshotModel& model) {
  return {{"config.json", model.config},
          {"max-model-len", fmt::format("{}", facts.max_model_len)},
          {"C library", fmt::format("glibc {}", gnu_get_libc_version())},
          {"numerics", facts.numerics}};
}

}  // namespace

std::vector<float> make_rope_tables(const Decoder& decoder, const RopeFacts& facts,
                                    Snapshot& snapshot) {
  if (snapshot.mode() == SnapshotMode::kOff) return decoder.rope_tables();
  SnapshotKey key = key_of(facts, snapshot.model());
  if (const auto bytes = snapshot.find(kRopeSection, key)) {
    if (bytes->size() == decoder.rope_floats() * sizeof(float)) {
      std::vector<float> tables(decoder.rope_floats());
      std::memcpy(tables.data(), bytes->data(), bytes->size());
      snapshot.restored(kRopeSection);
      return tables;
    }
    snapshot.rejected(kRopeSection, "it has another size than the tables");
  }
  std::vector<float> tables = decoder.rope_tables();
  snapshot.offer(kRopeSection, std::move(key), [tables]() -> Result<std::vector<std::byte>> {
    const auto bytes = std::as_bytes(std::span(tables));
    return std::vector(bytes.begin(), bytes.end());
  });
  return tables;
}

}  // namespace sluice
