#include "gateway/adapter_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/file.h"
#include "base/new_file.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxKeyFile = 1 << 16;
// The bytes that are hashed between two checks of whether to go on.
constexpr std::size_t kHashedAtOnce = std::size_t{1} << 18;

std::string signature_path(const std::string& directory) { return directory + "/adapter.sig"; }

std::string signed_text(const Sha256Digest& digest) {
  return "sluice adapter sha256:" + to_hex(digest);
}

Result<Ed25519Signature> read_signature(const std::string& directory) {
  Ed25519Signature signature{};
  const std::string path = signature_path(directory);
  const auto bytes = read_file(path, signature.size());
  if (!bytes && bytes.error().code == ErrorCode::kNotFound) {
    return unavailable(
        fmt::format("{} is missing, and `require_signature` asks for it; `sluice adapter sign` "
                    "makes it",
                    path));
  }
  if (!bytes) return tl::unexpected(bytes.error());
  if (bytes->size() != signature.size()) {
    return unavailable(fmt::format("{} has {} bytes, but an Ed25519 signature has {}", path,
                                   bytes->size(), signature.size()));
  }
  std::ranges::copy(*bytes, signature.begin());
  return signature;
}

Status check_signature(const std::string& directory, const Sha256Digest& digest,
                       const std::vector<Ed25519PublicKey>& signers) {
  ASSIGN_OR_RETURN(const Ed25519Signature signature, read_signature(directory));
  const std::string text = signed_text(digest);
  const bool good = std::ranges::any_of(
      signers, [&](const Ed25519PublicKey& key) { return verify_ed25519(key, text, signature); });
  if (good) return {};
  return unavailable(
      fmt::format("{} is not a signature of these files (SHA-256 {}) by a key of "
                  "`require_signature`",
                  signature_path(directory), to_hex(digest)));
}

}  // namespace

Result<Sha256Digest> adapter_files_digest(const std::string& directory, const StopCheck& stop) {
  Sha256 hash;
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const std::string path = directory + "/" + name;
    ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
    const std::span<const std::byte> bytes = file.bytes();
    for (std::size_t from = 0; from < bytes.size(); from += kHashedAtOnce) {
      hash.update(bytes.subspan(from, std::min(kHashedAtOnce, bytes.size() - from)));
      if (stop) RETURN_IF_ERROR(stop());
    }
    if (file.faulted()) return unavailable(path + " was truncated while it was read");
  }
  return hash.finish();
}

Status check_adapter(const std::string& directory, const AdapterChecks& checks,
                     const StopCheck& stop) {
  if (!checks.pinned && checks.signers.empty()) return {};
  ASSIGN_OR_RETURN(const Sha256Digest digest, adapter_files_digest(directory, stop));
  if (checks.pinned && digest != *checks.pinned) {
    return unavailable(
        fmt::format("{} is not the adapter that the operator pinned: its files have the SHA-256 {}",
                    directory, to_hex(digest)));
  }
  if (checks.signers.empty()) return {};
  return check_signature(directory, digest, checks.signers);
}

Result<SignedAdapter> sign_adapter(const std::string& directory, const std::string& key_file) {
  ASSIGN_OR_RETURN(const std::string key, read_file(key_file, kMaxKeyFile));
  ASSIGN_OR_RETURN(const Sha256Digest digest, adapter_files_digest(directory));
  const auto made = sign_ed25519(key, signed_text(digest));
  if (!made) return with_context(key_file, made.error());
  ASSIGN_OR_RETURN(NewFile file, NewFile::create(signature_path(directory)));
  RETURN_IF_ERROR(file.write(std::as_bytes(std::span(made->signature))));
  RETURN_IF_ERROR(file.commit());
  return SignedAdapter{digest, made->key};
}

}  // namespace sluice
