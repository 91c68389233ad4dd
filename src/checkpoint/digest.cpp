// Files are read with pread, not through their mapping: a file that shrinks meanwhile is then an
// error and not a SIGBUS.
#include "checkpoint/digest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/content_hash.h"
#include "checkpoint/gguf.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kSamples = 16;
constexpr std::uint64_t kSampleBytes = 4096;

Status read_at(const CheckpointFile& file, std::uint64_t offset, std::span<std::byte> target) {
  while (!target.empty()) {
    const ssize_t n = pread(file.fd(), target.data(), target.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return unavailable(
          fmt::format("{}: cannot read: {}", file.path(), std::generic_category().message(errno)));
    }
    if (n == 0) return unavailable(file.path() + ": became shorter while it was read");
    target = target.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

// Every part is preceded by its length, so that no two lists of parts give the same bytes.
void update_part(Sha256& hash, std::string_view part) {
  hash.update(fmt::format("{}:", part.size()));
  hash.update(part);
}

Status update_config(Sha256& hash, const std::string& directory) {
  auto config = read_file(directory + "/config.json", kMaxConfigBytes);
  // A directory with only weights has no config.json. Its digest still differs from that of an
  // empty config.json.
  if (!config && config.error().code != ErrorCode::kNotFound) return config.error();
  update_part(hash, config ? "config" : "no config");
  update_part(hash, config ? *config : std::string());
  return {};
}

std::string_view file_name(const CheckpointFile& file) {
  const std::string_view path = file.path();
  return path.substr(path.rfind('/') + 1);
}

// The files of the tokenizer and of the chat templates; kTemplateFolder has more.
constexpr std::array kTokenizerFiles = {
    "tokenizer.json",    "tokenizer_config.json",   "vocab.json",         "merges.txt",
    "added_tokens.json", "special_tokens_map.json", "chat_template.jinja"};
constexpr const char* kTemplateFolder = "chat_templates";

// The files of kTemplateFolder, as names in the checkpoint's directory, sorted.
std::vector<std::string> template_files(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory + "/" + kTemplateFolder, ignored)) {
    if (entry.path().extension() != ".jinja") continue;
    names.push_back(kTemplateFolder + ("/" + entry.path().filename().string()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<Hash128> digest_of(const std::string& directory, const std::vector<std::string>& names,
                          FileDigests& files) {
  ContentHasher hasher;
  for (const std::string& name : names) {
    const auto digest = files.digest(directory + "/" + name);
    if (!digest && digest.error().code != ErrorCode::kNotFound) return digest.error();
    hasher.update_part(name);
    hasher.update_part(digest ? to_hex(*digest) : "absent");
  }
  return hasher.digest();
}

// The headers of a GGUF model hold what a directory has in its small files.
Result<Hash128> gguf_header_digest(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open(path));
  ContentHasher hasher;
  for (const GgufFile& part : model.files()) {
    const std::span<const std::byte> header = part.file().header();
    hasher.update_part({reinterpret_cast<const char*>(header.data()), header.size()});
  }
  return hasher.digest();
}

}  // namespace

Result<Sha256Digest> model_digest(const Checkpoint& checkpoint) {
  Sha256 hash;
  update_part(hash, "sluice model digest 1");
  RETURN_IF_ERROR(update_config(hash, checkpoint.directory()));
  std::vector<std::byte> sample(kSampleBytes);
  for (const CheckpointFile& file : checkpoint.files()) {
    update_part(hash, file_name(file));
    update_part(hash, std::to_string(file.size()));
    const std::span<const std::byte> header = file.header();
    update_part(hash, {reinterpret_cast<const char*>(header.data()), header.size()});
    const std::uint64_t start = file.header_end();
    const std::uint64_t bytes = file.size() - start;
    const std::uint64_t length = std::min(bytes, kSampleBytes);
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      // (bytes - length) * i / (kSamples - 1) without overflow: the last sample ends the file.
      const auto [step, rest] =
          std::pair((bytes - length) / (kSamples - 1), (bytes - length) % (kSamples - 1));
      const std::uint64_t offset = step * i + rest * i / (kSamples - 1);
      const auto target = std::span(sample).first(static_cast<std::size_t>(length));
      RETURN_IF_ERROR(read_at(file, start + offset, target));
      hash.update(target);
    }
  }
  return hash.finish();
}

Result<Hash128> config_digest(const std::string& directory, FileDigests& files) {
  if (is_gguf_path(directory)) return gguf_header_digest(directory);
  return digest_of(directory, {"config.json"}, files);
}

Result<Hash128> tokenizer_digest(const std::string& directory, FileDigests& files) {
  if (is_gguf_path(directory)) return gguf_header_digest(directory);
  std::vector<std::string> names(kTokenizerFiles.begin(), kTokenizerFiles.end());
  std::ranges::copy(template_files(directory), std::back_inserter(names));
  return digest_of(directory, names, files);
}

Result<Hash128> weights_digest(const Checkpoint& checkpoint, FileDigests& files) {
  ContentHasher hasher;
  for (const CheckpointFile& file : checkpoint.files()) {
    if (file.made()) continue;
    ASSIGN_OR_RETURN(const Hash128 digest, files.digest(file.path()));
    hasher.update_part(file_name(file));
    hasher.update_part(to_hex(digest));
  }
  return hasher.digest();
}

}  // namespace sluice
