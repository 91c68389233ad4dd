#include "adapter/sealed_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/byte_stream.h"
#include "base/shared_memory.h"

namespace sluice {
namespace {

constexpr std::string_view kMagic = "sluice adapter";
constexpr const char* kWhat = "sealed adapter";
constexpr std::size_t kDigestBytes = 64;  // hexadecimal SHA-256
// The bytes that are written between two checks of whether to go on.
constexpr std::size_t kWriteBytes = std::size_t{1} << 18;

std::vector<std::byte> encode_header(const AdapterImage& image, DType dtype) {
  ByteWriter out;
  out.text(kMagic);
  out.u32(kSealedAdapterVersion);
  out.u32(static_cast<std::uint32_t>(dtype));
  out.text(image.digest);
  out.u32(static_cast<std::uint32_t>(image.entries.size()));
  for (const LoraEntry& entry : image.entries) {
    out.u32(static_cast<std::uint32_t>(entry.rank));
    out.u32(std::bit_cast<std::uint32_t>(entry.scale));
    out.u32(entry.gain == LoraEntry::kNoGain ? 0 : 1);
  }
  out.align(kSealedAlignment);
  return out.take();
}

Error wrong(std::string_view what) { return invalid_argument(fmt::format("{}: {}", kWhat, what)); }

}  // namespace

Result<SealedAdapter> seal_adapter(const AdapterImage& image, DType dtype, const StopCheck& stop) {
  const std::vector<std::byte> header = encode_header(image, dtype);
  const std::size_t size = header.size() + image.bytes.size();
  ASSIGN_OR_RETURN(const FileDescriptor writer, create_shared_memory("sluice-adapter", size));
  RETURN_IF_ERROR(write_shared_memory(writer.get(), 0, header, kWhat));
  for (std::size_t from = 0; from < image.bytes.size(); from += kWriteBytes) {
    const auto piece = image.bytes.subspan(from, std::min(kWriteBytes, image.bytes.size() - from));
    RETURN_IF_ERROR(write_shared_memory(writer.get(), header.size() + from, piece, kWhat));
    if (stop) RETURN_IF_ERROR(stop());
  }
  RETURN_IF_ERROR(seal_shared_memory(writer.get(), kWhat));
  SealedAdapter sealed;
  ASSIGN_OR_RETURN(sealed.memory, read_only_descriptor(writer.get()));
  ASSIGN_OR_RETURN(auto mapped, map_shared_memory(sealed.memory.get(), size, kWhat));
  sealed.image = image;
  sealed.image.bytes = {mapped.get() + header.size(), image.bytes.size()};
  sealed.image.memory = std::move(mapped);
  return sealed;
}

Result<SealedAdapter> seal_adapter_bytes(std::span<const std::byte> bytes,
                                         const ModelConfig& config, DType dtype) {
  RETURN_IF_ERROR(decode_sealed_adapter(bytes, config, dtype));
  ASSIGN_OR_RETURN(const FileDescriptor writer,
                   create_shared_memory("sluice-adapter", bytes.size()));
  RETURN_IF_ERROR(write_shared_memory(writer.get(), 0, bytes, kWhat));
  RETURN_IF_ERROR(seal_shared_memory(writer.get(), kWhat));
  SealedAdapter sealed;
  ASSIGN_OR_RETURN(sealed.memory, read_only_descriptor(writer.get()));
  ASSIGN_OR_RETURN(sealed.image, open_sealed_adapter(sealed.memory, config, dtype));
  return sealed;
}

Result<AdapterImage> open_sealed_adapter(const FileDescriptor& memory, const ModelConfig& config,
                                         DType dtype) {
  RETURN_IF_ERROR(check_sealed(memory.get(), kWhat));
  ASSIGN_OR_RETURN(const std::size_t size, shared_memory_size(memory.get(), kWhat));
  if (size == 0) return wrong("it is empty");
  ASSIGN_OR_RETURN(auto mapped, map_shared_memory(memory.get(), size, kWhat));
  ASSIGN_OR_RETURN(AdapterImage image,
                   decode_sealed_adapter(std::span(mapped.get(), size), config, dtype));
  image.memory = std::move(mapped);
  return image;
}

Result<AdapterImage> decode_sealed_adapter(std::span<const std::byte> memory,
                                           const ModelConfig& config, DType dtype) {
  ByteReader in(memory);
  if (in.text() != kMagic) return wrong("it does not begin as one");
  if (in.u32() != kSealedAdapterVersion) return wrong("it has another version");
  if (in.u32() != static_cast<std::uint32_t>(dtype)) return wrong("it has another dtype");
  AdapterImage image;
  image.digest = in.text();
  if (image.digest.size() != kDigestBytes) return wrong("its digest has a wrong length");
  if (in.u32() != num_lora_entries(config)) return wrong("it is of a model of other layers");
  image.entries.resize(num_lora_entries(config));
  std::size_t end = 0;
  for (std::size_t i = 0; i < image.entries.size(); ++i) {
    const std::uint32_t rank = in.u32();
    const auto scale = std::bit_cast<float>(in.u32());
    const std::uint32_t gains = in.u32();
    if (!in.ok()) return wrong("it is cut off");
    if (rank > static_cast<std::uint32_t>(LoraTable::kMaxRank)) return wrong("a rank is too large");
    if (!std::isfinite(scale)) return wrong("a scale is not finite");
    if (gains > 1) return wrong("it does not say whether a module has gains");
    image.entries[i] =
        place_lora(config, i, {static_cast<std::int32_t>(rank), scale, gains == 1}, dtype, end);
    image.max_rank = std::max(image.max_rank, image.entries[i].rank);
  }
  const std::size_t header = memory.size() - in.left();
  const std::size_t first = (header + kSealedAlignment - 1) / kSealedAlignment * kSealedAlignment;
  if (first > memory.size() || memory.size() - first != end) {
    return wrong("its size is not that of its ranks");
  }
  if (image.max_rank == 0) return wrong("it changes no module");
  image.bytes = memory.subspan(first);
  return image;
}

}  // namespace sluice
