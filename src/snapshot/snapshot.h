// Snapshot: what one start may take from a snapshot file instead of making it, and what it offers
// for the next start. Each part of a start asks for its section, and makes natively what it does
// not get; answers are the same either way.
//
//   if (auto bytes = snapshot.find(kind, key)) -> restored(kind), or rejected(kind, reason)
//   else, or after rejected(): make it natively, then offer(kind, key, how to encode it)
//
// One log line tells of each section that does not fit, with the snapshot's name, the section and
// the reason. A section that --snapshot auto does not have yet gets no line.
//
// A large section is found without a check (find_unchecked()). Its part hashes each piece before it
// uses the piece, and then says checked() or damaged().
//
// Owner: the command; it outlives whatever uses found bytes in place. Threads: while a start runs,
// several may ask for sections and offer them; everything else one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "snapshot/section_kinds.h"
#include "snapshot/snapshot_choice.h"
#include "snapshot/snapshot_file.h"
#include "snapshot/snapshot_format.h"
#include "snapshot/snapshot_writer.h"

namespace sluice {

// The model's own facts for keys: digests in hex of config.json, of the tokenizer's files, and of
// all weights.
struct SnapshotModel {
  std::string config;
  std::string tokenizer;
  std::string weights = {};  // empty: weights are neither found nor offered
};

// A section in place in the file, not yet checked. Valid as long as the snapshot.
struct UncheckedSection {
  int fd = -1;
  std::string path;
  std::uint64_t offset = 0;          // in the file
  std::uint64_t content_bytes = 0;   // without padding
  std::span<const std::byte> bytes;  // padding included, in pieces of kSnapshotPieceBytes
  std::span<const Hash128> pieces;   // the hash of each piece
  const SnapshotSection* section = nullptr;
};

// How this start got a section.
struct SectionOutcome {
  std::string kind;
  bool restored = false;
  std::string reason;    // why not
  Duration duration{0};  // to restore it, or to make it natively
  // Restored graphs have another value: where the arena lies.
  RestoreMode mode = RestoreMode::kAutomatic;
};

class Snapshot {
 public:
  // Off: finds and keeps nothing.
  Snapshot() = default;
  // kNotFound if the user's file does not exist. Everything else that is wrong with a file gives a
  // warning and a snapshot without a file. `clock` may be null: then nothing is timed.
  static Result<Snapshot> open(const SnapshotChoice& choice, SnapshotModel model,
                               const Clock* clock);

  SnapshotMode mode() const { return mode_; }
  RestoreMode restore_mode() const { return restore_mode_; }
  const SnapshotModel& model() const { return model_; }
  // The file that is read; empty: none.
  std::string path() const { return file_ ? file_->path() : std::string(); }
  void set_weights_digest(std::string digest) { model_.weights = std::move(digest); }

  // Whether the file has a section of this kind, whatever its key: a key may cost much to find.
  bool has_kind(const SectionKind& kind) const;
  // The section's bytes, checked, where they lie in the file. Nothing: make it natively.
  std::optional<std::span<const std::byte>> find(const SectionKind& kind, const SnapshotKey& key);
  void restored(const SectionKind& kind, RestoreMode mode = RestoreMode::kAutomatic);
  // The part begins only now, some time after find(): its duration counts from here.
  void begin(const SectionKind& kind);
  // The bytes turned out not to fit.
  void rejected(const SectionKind& kind, std::string_view reason);

  std::optional<UncheckedSection> find_unchecked(const SectionKind& kind, const SnapshotKey& key);
  // All pieces equal their hashes, and the section was used; or a piece does not.
  void checked(const SectionKind& kind, const UncheckedSection& section);
  void damaged(const SectionKind& kind, const UncheckedSection& section);

  // Offers what was made natively now to the next start. `encode` is called at most once, by
  // collect(); what it refers to must live until then.
  using Encode = std::function<Result<std::vector<std::byte>>()>;
  void offer(const SectionKind& kind, SnapshotKey key, Encode encode);
  // The same with bytes that lie ready. REQUIRES: they stay as they are until they are written.
  void offer_in_place(const SectionKind& kind, SnapshotKey key, std::span<const std::byte> bytes);

  // The file is not to be trusted: kAuto removes it, and keeps nothing of this start.
  void discard();

  bool offers(const SectionKind& kind) const;
  // Encodes what was offered and the file lacks. Errors of a section are told, and it is left out.
  void collect();
  // kAuto: hashes what no part has used, then keeps what was collected in the cache folder.
  // kFile: hashes what no part has used. Tells what is wrong, and never fails.
  void settle();
  // Writes what was collected to a file of the user's.
  Status write(const std::string& path, OldSections old_sections,
               std::function<void(std::uint64_t done, std::uint64_t all)> progress) const;

  const std::vector<SectionOutcome>& outcomes() const { return outcomes_; }
  // Kinds that were collected.
  std::vector<std::string> collected() const;

 private:
  struct Offer {
    const SectionKind* kind = nullptr;
    SnapshotKey key;
    Encode encode;
    std::vector<std::byte> bytes;
    std::span<const std::byte> in_place;  // instead of `bytes`
  };

  void open_auto();
  const SnapshotSection* find_section(const SectionKind& kind, const SnapshotKey& key);
  void not_made(const SectionKind& kind, std::string reason);
  bool note_offer(const SectionKind& kind);
  Duration since_begin(const SectionKind& kind) const;
  std::vector<NewSection> new_sections() const;
  void keep();

  SnapshotMode mode_ = SnapshotMode::kOff;
  RestoreMode restore_mode_ = RestoreMode::kAutomatic;
  SnapshotModel model_;
  const Clock* clock_ = nullptr;
  std::string auto_path_;
  std::optional<SnapshotFile> file_;
  std::vector<Offer> offers_;
  std::vector<SectionOutcome> outcomes_;
  std::map<std::string_view, TimePoint> begins_;  // when a section was asked for, by kind
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // of parts that ask at once
};

}  // namespace sluice
