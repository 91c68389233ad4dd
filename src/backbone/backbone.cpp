#include "backbone/backbone.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/content_hash.h"
#include "base/large_pages.h"
#include "base/log.h"
#include "base/page_in.h"
#include "base/shared_memory.h"
#include "device/read_back.h"
#include "device/upload.h"
#include "model/rope.h"

namespace sluice {
namespace {

constexpr const char* kModelId = "model";

std::string rope_buffer(std::size_t index) { return fmt::format("{}/rope{}", kModelId, index); }

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

Result<FileDescriptor> write_manifest(const BackboneManifest& manifest) {
  const std::vector<std::byte> bytes = encode_manifest(manifest);
  if (bytes.size() > kMaxManifestBytes) {
    return unsupported("config.json: its backbone's manifest would be larger than 16 MiB");
  }
  ASSIGN_OR_RETURN(FileDescriptor memory, create_shared_memory("sluice-manifest", bytes.size()));
  RETURN_IF_ERROR(write_shared_memory(memory.get(), 0, bytes, "manifest"));
  RETURN_IF_ERROR(seal_shared_memory(memory.get(), "manifest"));
  return memory;
}

// [positions, rotary_dim] for each of the model's embeddings.
Result<std::vector<TensorView>> write_rope_tables(const BackboneSource& source, const Arena& arena,
                                                  Device& device, ThreadPool& pool) {
  ASSIGN_OR_RETURN(Upload upload, Upload::create(device, pool));
  std::vector<TensorView> views;
  Status written;
  for (std::size_t i = 0; i < source.config.ropes.size() && written; ++i) {
    const RopeConfig& rope = source.config.ropes[i];
    const TensorView view = matrix_view(arena.address(RegionKind::kWeights, rope_buffer(i)),
                                        DType::kF32, source.max_model_len, rope.rotary_dim);
    std::vector<float> table(static_cast<std::size_t>(view.elements()));
    fill_rope_table(rope, 0, source.max_model_len, table);
    const auto bytes = std::as_bytes(std::span(table));
    written = upload.write(static_cast<std::byte*>(view.data), bytes.size(),
                           [&](std::size_t offset, std::size_t count, std::byte* to) {
                             std::memcpy(to, bytes.data() + offset, count);
                           });
    views.push_back(view);
  }
  const Status finished = upload.finish();  // in any case: copies of its buffers may be running
  RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(finished);
  return views;
}

Result<Hash128> hash_of(const std::byte* base, std::size_t bytes, Device& device) {
  ContentHasher hasher;
  RETURN_IF_ERROR(read_back(device, base, bytes,
                            [&](std::span<const std::byte> piece) { hasher.update(piece); }));
  return hasher.digest();
}

// Fills the weights region of `arena`, whose `bytes` are writable, and describes it.
Result<BackboneManifest> fill(const BackboneSource& source, const WeightsLayout& layout,
                              Arena& arena, std::size_t bytes, Device& device, ThreadPool& pool) {
  const DeviceTraits& traits = device.traits();
  ASSIGN_OR_RETURN(DecoderWeights weights, layout.load(arena, device, pool));
  ASSIGN_OR_RETURN(weights.rope_tables, write_rope_tables(source, arena, device, pool));
  const std::byte* const base = arena.region_base(RegionKind::kWeights);
  BackboneManifest manifest;
  manifest.config = source.config_text;
  manifest.generation = source.generation_text;
  manifest.model = source.model;
  manifest.numerics = traits.numerics;
  manifest.bytes = bytes;
  if (!traits.host_accessible) {
    manifest.chunk_bytes = traits.granularity;
    manifest.address = reinterpret_cast<std::uintptr_t>(base);
  }
  ASSIGN_OR_RETURN(manifest.hash, hash_of(base, bytes, device));
  manifest.max_model_len = source.max_model_len;
  describe_weights(weights, base, manifest);
  return manifest;
}

std::string chunk_name(std::size_t index, std::size_t count) {
  return fmt::format("backbone: chunk {} of {}", index + 1, count);
}

// The kernel overcommits shared memory, too. The functions on the backbone need memory as well.
Status check_free(std::size_t bytes, const Device& device) {
  const auto info = device.memory_info();
  if (!info) {
    log_warning("backbone: free memory is unknown: " + info.error().message);
    return {};
  }
  if (info->spare_host_bytes() >= static_cast<std::int64_t>(bytes)) return {};
  return resource_exhausted(fmt::format(
      "the backbone needs {} MiB of memory, {} MiB are free, of which {} MiB are kept free",
      (bytes + (1 << 20) - 1) >> 20, std::max<std::int64_t>(info->free_bytes, 0) >> 20,
      kKeptFreeHostBytes >> 20));
}

// Backs the first `bytes` of the weights region with memory of the device's kind that can be
// shared: its descriptors.
Result<std::vector<FileDescriptor>> back_shareable(Arena& arena, std::size_t bytes,
                                                   const Device& device) {
  const DeviceTraits& traits = device.traits();
  std::vector<FileDescriptor> memory;
  if (traits.host_accessible) {
    RETURN_IF_ERROR(check_free(bytes, device));
    ASSIGN_OR_RETURN(FileDescriptor fd, create_shared_memory("sluice-backbone", bytes));
    memory.push_back(std::move(fd));
    RETURN_IF_ERROR(arena.map(RegionKind::kWeights, 0, bytes,
                              Backing::shared(memory[0].get(), Protection::kReadWrite)));
    return memory;
  }
  RETURN_IF_ERROR(arena.grow(RegionKind::kWeights, bytes));
  const std::size_t chunks = bytes / traits.granularity;
  for (std::size_t i = 0; i < chunks; ++i) {
    auto fd = arena.export_memory(RegionKind::kWeights, i * traits.granularity);
    if (!fd) return with_context(chunk_name(i, chunks), std::move(fd).error());
    memory.push_back(*std::move(fd));
  }
  return memory;
}

// The bytes that one descriptor has.
std::size_t piece_bytes(const BackboneManifest& manifest) {
  return static_cast<std::size_t>(manifest.chunk_bytes != 0 ? manifest.chunk_bytes
                                                            : manifest.bytes);
}

// Seals and size of memory of the host; the driver checks chunks when it imports them.
Status check_memory(const Backbone& backbone, const BackboneManifest& manifest) {
  const std::size_t pieces = static_cast<std::size_t>(manifest.bytes) / piece_bytes(manifest);
  if (backbone.memory.size() != pieces) {
    return invalid_argument(
        fmt::format("backbone: it has {} descriptors of memory, its manifest "
                    "says {}",
                    backbone.memory.size(), pieces));
  }
  if (manifest.chunk_bytes != 0) return {};
  const int fd = backbone.memory[0].get();
  RETURN_IF_ERROR(check_sealed(fd, "backbone"));
  ASSIGN_OR_RETURN(const std::size_t size, shared_memory_size(fd, "backbone"));
  if (size == manifest.bytes) return {};
  return invalid_argument(
      fmt::format("backbone: it has {} bytes, its manifest says {}", size, manifest.bytes));
}

}  // namespace

Result<Backbone> write_backbone(const BackboneSource& source, Device& device, ThreadPool& pool) {
  const DeviceTraits& traits = device.traits();
  ArenaPlan plan;
  const WeightsLayout layout = WeightsLayout::plan(source.checkpoint, source.weights, source.dtype,
                                                   traits, kModelId, plan, WeightsMemory::kShared);
  for (std::size_t i = 0; i < source.config.ropes.size(); ++i) {
    plan.add(RegionKind::kWeights, rope_buffer(i),
             static_cast<std::size_t>(source.max_model_len) *
                 static_cast<std::size_t>(source.config.ropes[i].rotary_dim) * sizeof(float));
  }
  plan.finish(traits.granularity);
  const std::size_t bytes = plan.region(RegionKind::kWeights).reserved;
  Backbone backbone;
  BackboneManifest manifest;
  {
    ASSIGN_OR_RETURN(Arena arena, Arena::create(device, std::move(plan)));
    ASSIGN_OR_RETURN(backbone.memory, back_shareable(arena, bytes, device));
    ASSIGN_OR_RETURN(manifest, fill(source, layout, arena, bytes, device, pool));
    if (traits.host_accessible) {
      backbone.in_large_pages =
          bytes_in_large_pages(arena.region_base(RegionKind::kWeights), bytes);
    }
  }
  if (manifest.chunk_bytes == 0) {
    RETURN_IF_ERROR(seal_shared_memory(backbone.memory[0].get(), "backbone"));
  }
  ASSIGN_OR_RETURN(backbone.manifest, write_manifest(manifest));
  return backbone;
}

Result<Backbone> read_only(const Backbone& backbone) {
  ASSIGN_OR_RETURN(const BackboneManifest manifest, open_backbone(backbone));
  Backbone readers;
  readers.in_large_pages = backbone.in_large_pages;
  for (const FileDescriptor& memory : backbone.memory) {
    if (manifest.chunk_bytes == 0) {
      ASSIGN_OR_RETURN(FileDescriptor reader, read_only_descriptor(memory.get()));
      readers.memory.push_back(std::move(reader));
    } else {
      FileDescriptor copy(fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
      if (!copy.valid()) return unavailable(fmt::format("backbone: {}", std::strerror(errno)));
      readers.memory.push_back(std::move(copy));
    }
  }
  ASSIGN_OR_RETURN(readers.manifest, read_only_descriptor(backbone.manifest.get()));
  return readers;
}

Result<BackboneManifest> open_backbone(const Backbone& backbone) {
  RETURN_IF_ERROR(check_sealed(backbone.manifest.get(), "backbone manifest"));
  ASSIGN_OR_RETURN(const std::size_t bytes,
                   shared_memory_size(backbone.manifest.get(), "backbone manifest"));
  if (bytes > kMaxManifestBytes) {
    return invalid_argument("backbone manifest: it is larger than 16 MiB");
  }
  std::vector<std::byte> text(bytes);
  if (pread(backbone.manifest.get(), text.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return unavailable(fmt::format("backbone manifest: {}", std::strerror(errno)));
  }
  ASSIGN_OR_RETURN(BackboneManifest manifest, decode_manifest(text));
  RETURN_IF_ERROR(check_memory(backbone, manifest));
  return manifest;
}

Status verify_backbone(const Backbone& backbone, const BackboneManifest& manifest, Device& device) {
  ArenaPlan plan;
  plan_backbone(manifest, device.traits().granularity, plan);
  plan.finish(device.traits().granularity);
  ASSIGN_OR_RETURN(Arena arena,
                   reserve_backbone(manifest, BackboneAddress::kAny, device, std::move(plan)));
  ASSIGN_OR_RETURN(const DecoderWeights weights, map_backbone(backbone, manifest, arena));
  static_cast<void>(weights);
  ASSIGN_OR_RETURN(const Hash128 hash, hash_of(arena.region_base(RegionKind::kWeights),
                                               static_cast<std::size_t>(manifest.bytes), device));
  if (hash == manifest.hash) return {};
  return internal_error("backbone: its bytes differ from the hash in its manifest");
}

Result<Arena> reserve_backbone(const BackboneManifest& manifest, BackboneAddress address,
                               Device& device, ArenaPlan plan) {
  const DeviceTraits& traits = device.traits();
  if (traits.host_accessible != (manifest.chunk_bytes == 0)) {
    return invalid_argument(fmt::format(
        "backbone: it lies in {}, which {} cannot map",
        manifest.chunk_bytes == 0 ? "the host's memory" : "a device's memory", traits.name));
  }
  if (manifest.chunk_bytes != 0 && manifest.chunk_bytes != traits.granularity) {
    return invalid_argument(fmt::format("backbone: it has chunks of {} bytes, {} maps chunks of {}",
                                        manifest.chunk_bytes, traits.name, traits.granularity));
  }
  if (manifest.address == 0 || address == BackboneAddress::kAny) {
    return Arena::create(device, std::move(plan));
  }
  CHECK(plan.region(RegionKind::kWeights).offset == 0);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses of devices are numbers
  auto* const base = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(manifest.address));
  auto arena = Arena::create_at(base, device, std::move(plan));
  if (!arena) {
    return with_context("backbone: its address is not free in this process",
                        std::move(arena).error());
  }
  return arena;
}

void plan_backbone(const BackboneManifest& manifest, std::size_t granularity, ArenaPlan& arena) {
  arena.add(RegionKind::kWeights, fmt::format("{}/backbone", kModelId),
            round_up(static_cast<std::size_t>(manifest.bytes), granularity), granularity);
}

Result<DecoderWeights> map_backbone(const Backbone& backbone, const BackboneManifest& manifest,
                                    Arena& arena) {
  const std::size_t piece = piece_bytes(manifest);
  for (std::size_t i = 0; i < backbone.memory.size(); ++i) {
    const int fd = backbone.memory[i].get();
    auto mapped =
        arena.map(RegionKind::kWeights, i * piece, piece,
                  manifest.chunk_bytes == 0 ? Backing::shared(fd, Protection::kReadOnly)
                                            : Backing::imported(fd, Protection::kReadOnly));
    if (!mapped) {
      return with_context(chunk_name(i, backbone.memory.size()), std::move(mapped).error());
    }
  }
  return weights_at(arena.region_base(RegionKind::kWeights), manifest);
}

Status touch_backbone(const BackboneManifest& manifest, const Arena& arena) {
  if (manifest.chunk_bytes != 0) return {};
  std::byte* const base = arena.region_base(RegionKind::kWeights);
  const int cause =
      populate_pages({base, static_cast<std::size_t>(manifest.bytes)}, PageUse::kRead);
  if (cause == 0) return {};
  return unavailable(fmt::format("backbone: {}", std::strerror(cause)));
}

}  // namespace sluice
