#include "backbone/backbone.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/content_hash.h"
#include "base/large_pages.h"
#include "base/shared_memory.h"
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
std::vector<TensorView> write_rope_tables(const BackboneSource& source, const Arena& arena) {
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < source.config.ropes.size(); ++i) {
    const RopeConfig& rope = source.config.ropes[i];
    const TensorView view = matrix_view(arena.address(RegionKind::kWeights, rope_buffer(i)),
                                        DType::kF32, source.max_model_len, rope.rotary_dim);
    fill_rope_table(rope, 0, source.max_model_len,
                    {view.as<float>(), static_cast<std::size_t>(view.elements())});
    views.push_back(view);
  }
  return views;
}

// Fills `memory`, which is mapped as the weights region of `arena`, and describes it.
Result<BackboneManifest> fill(const BackboneSource& source, const WeightsLayout& layout,
                              Arena& arena, std::size_t bytes, Device& device, ThreadPool& pool) {
  ASSIGN_OR_RETURN(DecoderWeights weights, layout.load(arena, device, pool));
  RETURN_IF_ERROR(device.synchronize());
  weights.rope_tables = write_rope_tables(source, arena);
  const std::byte* const base = arena.region_base(RegionKind::kWeights);
  BackboneManifest manifest;
  manifest.config = source.config_text;
  manifest.generation = source.generation_text;
  manifest.model = source.model;
  manifest.numerics = device.traits().numerics;
  manifest.bytes = bytes;
  manifest.hash = content_hash(std::span(base, bytes));
  manifest.max_model_len = source.max_model_len;
  describe_weights(weights, base, manifest);
  return manifest;
}

}  // namespace

Result<Backbone> write_backbone(const BackboneSource& source, Device& device, ThreadPool& pool) {
  const DeviceTraits& traits = device.traits();
  if (!traits.host_accessible) {
    return unsupported(fmt::format(
        "{}: a backbone lies in the host's memory, which this device does not compute on",
        traits.name));
  }
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
  ASSIGN_OR_RETURN(backbone.memory, create_shared_memory("sluice-backbone", bytes));
  BackboneManifest manifest;
  {
    ASSIGN_OR_RETURN(Arena arena, Arena::create(device, std::move(plan)));
    RETURN_IF_ERROR(arena.map(RegionKind::kWeights, 0, bytes,
                              Backing::shared(backbone.memory.get(), Protection::kReadWrite)));
    ASSIGN_OR_RETURN(manifest, fill(source, layout, arena, bytes, device, pool));
    backbone.in_large_pages = bytes_in_large_pages(arena.region_base(RegionKind::kWeights), bytes);
  }
  RETURN_IF_ERROR(seal_shared_memory(backbone.memory.get(), "backbone"));
  ASSIGN_OR_RETURN(backbone.manifest, write_manifest(manifest));
  return backbone;
}

Result<Backbone> read_only(const Backbone& backbone) {
  Backbone readers;
  readers.in_large_pages = backbone.in_large_pages;
  ASSIGN_OR_RETURN(readers.memory, read_only_descriptor(backbone.memory.get()));
  ASSIGN_OR_RETURN(readers.manifest, read_only_descriptor(backbone.manifest.get()));
  return readers;
}

Result<BackboneManifest> open_backbone(const Backbone& backbone) {
  RETURN_IF_ERROR(check_sealed(backbone.memory.get(), "backbone"));
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
  ASSIGN_OR_RETURN(const std::size_t size, shared_memory_size(backbone.memory.get(), "backbone"));
  if (size != manifest.bytes) {
    return invalid_argument(
        fmt::format("backbone: it has {} bytes, its manifest says {}", size, manifest.bytes));
  }
  return manifest;
}

Status verify_backbone(const Backbone& backbone, const BackboneManifest& manifest) {
  const auto bytes = static_cast<std::size_t>(manifest.bytes);
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, backbone.memory.get(), 0);
  if (data == MAP_FAILED) return unavailable(fmt::format("backbone: {}", std::strerror(errno)));
  const Hash128 hash = content_hash(std::span(static_cast<const std::byte*>(data), bytes));
  munmap(data, bytes);
  if (hash == manifest.hash) return {};
  return internal_error("backbone: its bytes differ from the hash in its manifest");
}

void plan_backbone(const BackboneManifest& manifest, std::size_t granularity, ArenaPlan& arena) {
  arena.add(RegionKind::kWeights, fmt::format("{}/backbone", kModelId),
            round_up(static_cast<std::size_t>(manifest.bytes), granularity), granularity);
}

Result<DecoderWeights> map_backbone(const Backbone& backbone, const BackboneManifest& manifest,
                                    Arena& arena) {
  RETURN_IF_ERROR(arena.map(RegionKind::kWeights, 0, static_cast<std::size_t>(manifest.bytes),
                            Backing::shared(backbone.memory.get(), Protection::kReadOnly)));
  return weights_at(arena.region_base(RegionKind::kWeights), manifest);
}

Status touch_backbone(const BackboneManifest& manifest, const Arena& arena) {
  std::byte* const base = arena.region_base(RegionKind::kWeights);
  const auto bytes = static_cast<std::size_t>(manifest.bytes);
  if (madvise(base, bytes, MADV_POPULATE_READ) == 0) return {};
  if (errno != EINVAL) return unavailable(fmt::format("backbone: {}", std::strerror(errno)));
  // Kernels before 5.14.
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) {
    static_cast<void>(static_cast<volatile const std::byte*>(base)[at]);
  }
  return {};
}

}  // namespace sluice
