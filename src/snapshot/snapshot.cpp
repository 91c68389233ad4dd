#include "snapshot/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/cache_folder.h"
#include "base/content_hash.h"
#include "base/log.h"
#include "snapshot/auto_folder.h"

namespace sluice {
namespace {

// Variants of one kind in the cache folder: other dtypes, other options.
constexpr std::size_t kMaxPerKind = 8;

std::string without_prefix(std::string message) {
  constexpr std::string_view kPrefix = "snapshot ";
  if (message.starts_with(kPrefix)) message.erase(0, kPrefix.size());
  return message;
}

}  // namespace

Result<Snapshot> Snapshot::open(const SnapshotChoice& choice, SnapshotModel model,
                                const Clock* clock) {
  Snapshot snapshot;
  snapshot.mode_ = choice.mode;
  snapshot.restore_mode_ = choice.restore;
  snapshot.model_ = std::move(model);
  snapshot.clock_ = clock;
  if (choice.mode == SnapshotMode::kAuto) snapshot.open_auto();
  if (choice.mode != SnapshotMode::kFile) return snapshot;
  auto file = SnapshotFile::open(choice.path);
  if (file) {
    snapshot.file_ = *std::move(file);
  } else if (file.error().code == ErrorCode::kNotFound) {
    return with_context("--snapshot", std::move(file).error());
  } else {
    log_warning(fmt::format("{}; starting without it", file.error().message));
  }
  return snapshot;
}

void Snapshot::open_auto() {
  auto path = auto_snapshot_path(model_.config + model_.tokenizer);
  if (!path) {
    log_warning(
        fmt::format("snapshot: nothing is kept for the next start: {}", path.error().message));
    mode_ = SnapshotMode::kOff;
    return;
  }
  auto_path_ = *std::move(path);
  const auto opened = open_own_file(auto_path_);
  if (!opened && opened.error().code == ErrorCode::kNotFound) return;
  auto file = opened ? SnapshotFile::open(*opened, auto_path_)
                     : Result<SnapshotFile>(with_context("snapshot", opened.error()));
  if (file) {
    file_ = *std::move(file);
  } else {
    log_warning(fmt::format("{}; starting without it", file.error().message));
  }
}

bool Snapshot::has_kind(const SectionKind& kind) const {
  return file_ && std::ranges::any_of(file_->table().sections, [&](const SnapshotSection& section) {
           return section.kind == kind.name;
         });
}

const SnapshotSection* Snapshot::find_section(const SectionKind& kind, const SnapshotKey& key) {
  if (clock_ != nullptr) begins_[kind.name] = clock_->now();
  if (!file_) return nullptr;
  const auto section = file_->find(kind.name, kind.version, key);
  if (section) return *section;
  if (mode_ == SnapshotMode::kFile) not_made(kind, section.error().message);
  return nullptr;
}

Duration Snapshot::since_begin(const SectionKind& kind) const {
  const auto begin = begins_.find(kind.name);
  return clock_ == nullptr || begin == begins_.end() ? Duration(0) : clock_->now() - begin->second;
}

std::optional<std::span<const std::byte>> Snapshot::find(const SectionKind& kind,
                                                         const SnapshotKey& key) {
  const std::lock_guard lock(*mutex_);
  const SnapshotSection* section = find_section(kind, key);
  if (section == nullptr) return std::nullopt;
  auto bytes = file_->bytes(*section);
  if (bytes) return *bytes;
  not_made(kind, std::move(bytes).error().message);
  return std::nullopt;
}

std::optional<UncheckedSection> Snapshot::find_unchecked(const SectionKind& kind,
                                                         const SnapshotKey& key) {
  const std::lock_guard lock(*mutex_);
  const SnapshotSection* section = find_section(kind, key);
  if (section == nullptr) return std::nullopt;
  const SnapshotBlob& blob = file_->table().blobs[section->blob];
  return UncheckedSection{
      file_->fd(), file_->path(), blob.offset, blob.bytes, file_->unchecked_bytes(*section),
      blob.pieces, section};
}

void Snapshot::checked(const SectionKind& kind, const UncheckedSection& section) {
  const std::lock_guard lock(*mutex_);
  file_->set_verified(*section.section);
  outcomes_.push_back({std::string(kind.name), true, {}, since_begin(kind)});
}

void Snapshot::damaged(const SectionKind& kind, const UncheckedSection& section) {
  const std::lock_guard lock(*mutex_);
  not_made(kind, file_->damaged(*section.section).message);
}

void Snapshot::not_made(const SectionKind& kind, std::string reason) {
  log_warning(fmt::format("{}; made natively", reason));
  outcomes_.push_back({std::string(kind.name), false, without_prefix(std::move(reason)), {}});
}

void Snapshot::begin(const SectionKind& kind) {
  const std::lock_guard lock(*mutex_);
  if (clock_ != nullptr) begins_[kind.name] = clock_->now();
}

void Snapshot::restored(const SectionKind& kind, RestoreMode mode) {
  const std::lock_guard lock(*mutex_);
  outcomes_.push_back({std::string(kind.name), true, {}, since_begin(kind), mode});
}

void Snapshot::rejected(const SectionKind& kind, std::string_view reason) {
  const std::lock_guard lock(*mutex_);
  not_made(kind, fmt::format("snapshot {}: section '{}' does not fit: {}",
                             file_ ? file_->path() : "", kind.name, reason));
}

// Whether the offer is wanted.
bool Snapshot::note_offer(const SectionKind& kind) {
  auto outcome = std::ranges::find(outcomes_, kind.name, &SectionOutcome::kind);
  if (outcome == outcomes_.end()) {
    outcome = outcomes_.insert(outcome, {std::string(kind.name), false, "not in a snapshot", {}});
  }
  outcome->duration = since_begin(kind);
  return mode_ == SnapshotMode::kCollect || (mode_ == SnapshotMode::kAuto && kind.kept_by_auto);
}

void Snapshot::offer(const SectionKind& kind, SnapshotKey key, Encode encode) {
  const std::lock_guard lock(*mutex_);
  if (!note_offer(kind)) return;
  offers_.push_back({&kind, std::move(key), std::move(encode), {}, {}});
}

void Snapshot::offer_in_place(const SectionKind& kind, SnapshotKey key,
                              std::span<const std::byte> bytes) {
  const std::lock_guard lock(*mutex_);
  if (note_offer(kind)) offers_.push_back({&kind, std::move(key), nullptr, {}, bytes});
}

bool Snapshot::offers(const SectionKind& kind) const {
  return std::ranges::any_of(offers_, [&](const Offer& offer) { return offer.kind == &kind; });
}

void Snapshot::collect() {
  for (Offer& offer : offers_) {
    if (!offer.encode) continue;
    auto bytes = std::exchange(offer.encode, nullptr)();
    if (bytes) {
      offer.bytes = *std::move(bytes);
      continue;
    }
    log_warning(fmt::format("snapshot: section '{}' cannot be kept: {}", offer.kind->name,
                            bytes.error().message));
    offer.kind = nullptr;
  }
  std::erase_if(offers_, [](const Offer& offer) { return offer.kind == nullptr; });
}

std::vector<NewSection> Snapshot::new_sections() const {
  std::vector<NewSection> sections;
  for (const Offer& offer : offers_) {
    sections.push_back({std::string(offer.kind->name), offer.kind->version, offer.key,
                        offer.in_place.empty() ? offer.bytes : offer.in_place});
  }
  return sections;
}

std::vector<std::string> Snapshot::collected() const {
  std::vector<std::string> kinds;
  for (const Offer& offer : offers_) kinds.emplace_back(offer.kind->name);
  return kinds;
}

void Snapshot::discard() {
  offers_.clear();
  if (mode_ != SnapshotMode::kAuto) return;
  remove_auto_snapshot(auto_path_);
  mode_ = SnapshotMode::kOff;
}

void Snapshot::settle() {
  if (file_) {
    const std::vector<Error> damage = file_->find_damage();
    for (const Error& error : damage) {
      const bool told = std::ranges::any_of(outcomes_, [&](const SectionOutcome& outcome) {
        return outcome.reason == without_prefix(error.message);
      });
      if (!told) log_warning(error.message);
    }
    if (!damage.empty() && mode_ == SnapshotMode::kAuto) remove_auto_snapshot(auto_path_);
  }
  if (mode_ == SnapshotMode::kAuto && !offers_.empty()) keep();
}

void Snapshot::keep() {
  const Status kept = write_snapshot(auto_path_, new_sections(),
                                     {.old_sections = OldSections::kKeepIfSound,
                                      .max_bytes = kMaxAutoBytes,
                                      .max_per_kind = kMaxPerKind,
                                      .for_this_user_only = true});
  offers_.clear();
  if (kept) {
    limit_auto_folder(auto_path_);
  } else if (kept.error().code != ErrorCode::kResourceExhausted) {  // not: another start keeps them
    log_warning(fmt::format("{}; the next start makes these parts again", kept.error().message));
  }
}

Status Snapshot::write(const std::string& path, OldSections old_sections,
                       std::function<void(std::uint64_t, std::uint64_t)> progress) const {
  return write_snapshot(path, new_sections(),
                        {.old_sections = old_sections, .progress = std::move(progress)});
}

}  // namespace sluice
