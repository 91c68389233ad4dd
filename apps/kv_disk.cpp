#include "apps/kv_disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "apps/open_snapshot.h"
#include "apps/option_values.h"
#include "apps/save_rests.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/memory_size.h"
#include "base/sha256.h"
#include "offload/disk_tier.h"
#include "offload/stacked_tier.h"
#include "offload/tier_folder.h"
#include "offload/tier_secret.h"

namespace sluice {
namespace {

// Each part with its length, so that no two lists of parts are one text.
void append_part(std::string& text, std::string_view name, std::string_view value) {
  text += fmt::format("{}:{} {}:{}\n", name.size(), name, value.size(), value);
}

Result<std::string> identity_of(const std::string& directory, const EngineOptions& options,
                                const SnapshotModel& known, const Device& device,
                                const LoadedExecutor& executor) {
  std::string text;
  ASSIGN_OR_RETURN(const SnapshotKey content, model_content(directory, options, known));
  for (const auto& [name, value] : content) append_part(text, name, value);
  ASSIGN_OR_RETURN(const std::string program, program_digest());
  append_part(text, "program", program);
  append_part(text, "numerics", device.traits().numerics);
  append_part(text, "weights", executor.kv_identity.weight_dtype);
  append_part(text, "kv", executor.kv_identity.kv_dtype);
  append_part(text, "rope", executor.kv_identity.rope_overrides);
  append_part(
      text, "block",
      fmt::format("{} tokens, {} bytes", executor.block_size, executor.contents->block_bytes()));
  return text;
}

// The model's part of the names of blocks. Without the secret no such name can be made.
std::string secret_digest(const HmacKey& secret, std::string_view identity) {
  Hmac hmac(derive_key(secret, "sluice/kv-names/1"));
  hmac.update(std::as_bytes(std::span(identity)));
  const HmacTag tag = hmac.finish();
  return to_hex(sha256(tag));
}

// "30d", "12h".
Result<std::int64_t> parse_age(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const bool days = std::string_view(stop, static_cast<std::size_t>(end - stop)) == "d";
  const bool hours = std::string_view(stop, static_cast<std::size_t>(end - stop)) == "h";
  if (error != std::errc() || number < 1 || number > 100'000 || (!days && !hours)) {
    return invalid_argument(
        fmt::format("--kv-disk age={}: expected days or hours, such as 30d or "
                    "12h, at most 100000",
                    text));
  }
  return number * (days ? 24 * 3600 : 3600);
}

Status parse_limit(std::string_view text, KvDiskSettings& settings) {
  const std::size_t sign = std::min(text.find('='), text.size());
  const std::string_view name = text.substr(0, sign);
  const std::string_view value = text.substr(std::min(sign + 1, text.size()));
  if (name == "free") {
    ASSIGN_OR_RETURN(settings.free_bytes, parse_memory_size("--kv-disk free", value));
  } else if (name == "age") {
    ASSIGN_OR_RETURN(settings.max_age_s, parse_age(value));
  } else if (name == "daily") {
    ASSIGN_OR_RETURN(settings.daily_bytes, parse_memory_size("--kv-disk daily", value));
  } else if (name == "stream") {
    ASSIGN_OR_RETURN(settings.stream_bytes, parse_memory_size("--kv-disk stream", value));
  } else if (name == "evict") {
    if (value != "seconds" && value != "lru") {
      return invalid_argument(fmt::format("--kv-disk evict={}: expected lru or seconds", value));
    }
    settings.eviction = value == "lru" ? TierEviction::kLeastRecent : TierEviction::kSeconds;
  } else if (name == "io") {
    if (value != "uring" && value != "threads") {
      return invalid_argument(fmt::format("--kv-disk io={}: expected uring or threads", value));
    }
    settings.uring = value == "uring";
  } else {
    return invalid_argument(
        fmt::format("--kv-disk has no limit '{}'; after SIZE there may be free=SIZE, age=TIME, "
                    "daily=SIZE, stream=SIZE, evict=lru|seconds, io=uring|threads",
                    text));
  }
  return {};
}

Result<HmacKey> secret_of(const KvDiskSettings& settings) {
  if (!settings.key_file.empty()) {
    auto key = read_tier_key(settings.key_file);
    if (!key) return with_context("--kv-disk-key", key.error());
    return key;
  }
  const std::string path = default_secret_path();
  if (path.empty()) {
    return invalid_argument(
        "--kv-disk keeps its secret outside of its folder: set XDG_STATE_HOME or HOME, or give "
        "--kv-disk-key");
  }
  return load_tier_secret(path);
}

std::string folder_of(const KvDiskSettings& settings) {
  std::string folder = std::filesystem::absolute(settings.folder).lexically_normal().string();
  if (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

// A folder with blocks under another key looks like one of other models.
void log_tier(const DiskTier::Options& disk, std::size_t stored, std::int32_t pages,
              int reads_at_once) {
  const std::string reads = reads_at_once > 1
                                ? fmt::format("io_uring, {} at once", disk.threads * reads_at_once)
                                : fmt::format("{} threads", disk.threads);
  log_info(fmt::format("{}: {} of {} blocks of {} KiB are there{}; reads by {}", disk.folder,
                       stored, pages, disk.block_bytes >> 10,
                       disk.sealing == Sealing::kAesGcm ? ", encrypted" : "", reads));
  const auto contents = list_tier_folder(disk.folder);
  if (stored > 0 || !contents || contents->empty()) return;
  log_info(fmt::format("{}: it has blocks of {} other models, versions or keys, which are not used",
                       disk.folder, contents->size()));
}

// Long sequences get their part of the folder.
Status add_long_sequences(const DiskTier::Options& disk, std::int64_t bytes,
                          LoadedExecutor& executor) {
  KvStream::Options stream;
  stream.folder = disk.folder;
  stream.max_bytes = static_cast<std::uint64_t>(bytes);
  stream.free_bytes = disk.free_bytes;
  if (auto added = add_stream(stream, executor); !added) {
    return with_context("--kv-disk", added.error());
  }
  const StreamShape& shape = executor.scheduler.stream;
  log_info(
      fmt::format("{}: sequences that need more than the KV memory are streamed, up to {} "
                  "tokens",
                  disk.folder, std::int64_t{shape.max_blocks} * shape.block_size));
  return {};
}

}  // namespace

Result<KvDiskSettings> parse_kv_disk(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return invalid_argument(
        fmt::format("--kv-disk '{}': expected DIR:SIZE, such as kv:50GiB", text));
  }
  KvDiskSettings settings;
  settings.folder = text.substr(0, colon);
  std::string_view rest = text.substr(colon + 1);
  const auto next = [&rest] {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    return part;
  };
  ASSIGN_OR_RETURN(settings.bytes, parse_memory_size("--kv-disk", next()));
  while (!rest.empty()) RETURN_IF_ERROR(parse_limit(next(), settings));
  if (settings.stream_bytes >= settings.bytes) {
    return invalid_argument(fmt::format(
        "--kv-disk '{}': stream=SIZE is a part of the folder's size and must be less", text));
  }
  return settings;
}

Status add_kv_disk(const std::string& directory, const EngineOptions& options,
                   const SnapshotModel& known, const Device& device, const Clock& clock,
                   std::unique_ptr<KeepingTier> before, LoadedExecutor& executor) {
  DiskTier::Options disk;
  disk.folder = folder_of(*options.kv_disk);
  const std::int64_t stream_bytes = options.kv_disk->stream_bytes;
  disk.max_bytes = static_cast<std::uint64_t>(options.kv_disk->bytes - stream_bytes);
  if (options.kv_disk->free_bytes > 0) {
    disk.free_bytes = static_cast<std::uint64_t>(options.kv_disk->free_bytes);
  }
  if (options.kv_disk->max_age_s > 0) disk.max_age_s = options.kv_disk->max_age_s;
  disk.uring = options.kv_disk->uring;
  disk.save_rests = save_rests_beside(device);
  disk.daily_bytes = static_cast<std::uint64_t>(options.kv_disk->daily_bytes);
  disk.block_bytes = executor.contents->block_bytes();
  ASSIGN_OR_RETURN(disk.identity, identity_of(directory, options, known, device, executor));
  ASSIGN_OR_RETURN(disk.secret, secret_of(*options.kv_disk));
  if (!options.kv_disk->key_file.empty()) disk.sealing = Sealing::kAesGcm;
  auto tier = DiskTier::open(disk, clock);
  if (!tier) return with_context("--kv-disk", tier.error());
  executor.kv_identity.model_digest = secret_digest(disk.secret, disk.identity);
  const std::int32_t pages = (*tier)->num_pages();
  const int reads = (*tier)->reads_at_once();
  std::unique_ptr<KvTier> all = *std::move(tier);
  if (before != nullptr) {
    if (before->num_pages() > pages) {
      log_warning(fmt::format(
          "--kv-ram has room for {} blocks and {} only for {}: the disk keeps all blocks that are "
          "in RAM, so a part of the RAM stays unused",
          before->num_pages(), disk.folder, pages));
    }
    all = std::make_unique<StackedTier>(std::move(before), std::move(all));
  }
  if (auto added = add_tier(std::move(all), options.kv_disk->eviction, executor); !added) {
    return with_context("--kv-disk", added.error());
  }
  log_tier(disk, executor.stored.size(), pages, reads);
  return stream_bytes > 0 ? add_long_sequences(disk, stream_bytes, executor) : Status{};
}

// Shared: the service and its workers' jobs use it.
Result<std::shared_ptr<const ResumeStore>> open_resume_store(const KvDiskSettings& settings) {
  ASSIGN_OR_RETURN(const HmacKey secret, secret_of(settings));
  const DiskTier::Options defaults;
  ResumeStore::Limits limits;
  limits.max_bytes = std::min<std::uint64_t>(
      limits.max_bytes, std::max<std::uint64_t>(static_cast<std::uint64_t>(settings.bytes) / 64,
                                                std::uint64_t{1} << 20));
  limits.free_bytes = settings.free_bytes > 0 ? static_cast<std::uint64_t>(settings.free_bytes)
                                              : defaults.free_bytes;
  limits.max_age_s = settings.max_age_s > 0 ? settings.max_age_s : defaults.max_age_s;
  // Shared, as the header says.
  return std::make_shared<const ResumeStore>(folder_of(settings), secret, limits);
}

}  // namespace sluice
