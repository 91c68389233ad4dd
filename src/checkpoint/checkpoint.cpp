#include "checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/json_text.h"
#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{32} << 20;
constexpr std::size_t kMaxShards = 1000;
constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

std::string join(const std::string& directory, std::string_view name) {
  return fmt::format("{}/{}", directory, name);
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

Error no_weights(const std::string& directory) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (exists(join(directory, name))) {
      return unsupported(fmt::format(
          "{}/{}: pickled weights can run code when loaded and are not supported; download the "
          "model.safetensors of this model, or convert it with transformers: "
          "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR)",
          directory, name));
    }
  }
  return not_found(
      fmt::format("{}: neither {} nor {} is there; expected a Hugging Face "
                  "checkpoint directory",
                  directory, kSingleFile, kIndexFile));
}

// A shard is a plain file name: a path would let an index reach outside its directory.
bool is_plain_shard_name(std::string_view name) {
  return name.size() <= 255 && name.ends_with(".safetensors") && !name.starts_with('.') &&
         name.find('/') == std::string_view::npos && name.find('\\') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

// Shard name -> names of its tensors, sorted.
using WeightMap = std::map<std::string, std::vector<std::string>>;

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> parse_safetensors_index(
    std::string_view text) {
  std::string storage;
  ASSIGN_OR_RETURN(const std::string_view strict, strict_json(text, storage));
  const auto json = parse_json(strict);
  if (json.is_discarded()) return invalid_argument("not valid JSON");
  if (!json.is_object()) return invalid_argument("expected an object with weight_map");
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) {
    return invalid_argument("weight_map: expected an object of tensor name -> file name");
  }
  if (map->empty()) return invalid_argument("weight_map: is empty");
  std::vector<std::pair<std::string, std::string>> entries;
  entries.reserve(map->size());
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      return invalid_argument(
          fmt::format("weight_map: {}: expected a file name", quote_text(tensor)));
    }
    const auto& name = shard.get_ref<const std::string&>();
    if (!is_plain_shard_name(name)) {
      return invalid_argument(
          fmt::format("weight_map: {}: {} is not a plain file name that ends in .safetensors",
                      quote_text(tensor), quote_text(name)));
    }
    entries.emplace_back(tensor, name);
  }
  return entries;
}

namespace {

Result<WeightMap> read_index(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxIndexBytes));
  auto entries = parse_safetensors_index(text);
  if (!entries) return with_context(path, entries.error());
  WeightMap map;
  for (auto& [tensor, shard] : *entries) map[shard].push_back(std::move(tensor));
  if (map.size() > kMaxShards) {
    return invalid_argument(fmt::format("{}: weight_map names {} files; the limit is {}", path,
                                        map.size(), kMaxShards));
  }
  return map;
}

void sort_by_name(std::vector<TensorInfo>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
}

// A model that was saved without its head, as models of embeddings are, lacks the prefix of the
// model with the head. Here all have it.
void add_missing_prefix(std::vector<TensorInfo>& tensors) {
  constexpr std::string_view kPrefix = "model.";
  constexpr std::string_view kEmbedding = "embed_tokens.weight";
  bool bare = false;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.name.starts_with(kPrefix)) return;
    bare = bare || tensor.name == kEmbedding;
  }
  if (!bare) return;
  for (TensorInfo& tensor : tensors) {
    if (!tensor.name.starts_with("lm_head.")) tensor.name.insert(0, kPrefix);
  }
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& directory) {
  Checkpoint result;
  result.directory_ = directory;
  const std::string single = join(directory, kSingleFile);
  if (exists(single)) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(single));
    result.tensors_.assign(file.tensors().begin(), file.tensors().end());
    result.files_.push_back(std::move(file).take_file());
    add_missing_prefix(result.tensors_);
    sort_by_name(result.tensors_);
    return result;
  }
  const std::string index = join(directory, kIndexFile);
  if (!exists(index)) return no_weights(directory);
  ASSIGN_OR_RETURN(const WeightMap map, read_index(index));
  for (const auto& [shard, names] : map) {
    const std::string path = join(directory, shard);
    if (!exists(path)) {
      return not_found(fmt::format("{}: is missing; {} names it for {} tensors", path, kIndexFile,
                                   names.size()));
    }
    const auto file_index = static_cast<std::int32_t>(result.files_.size());
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path, file_index));
    for (const std::string& name : names) {
      const TensorInfo* tensor = file.find(name);
      if (tensor == nullptr) {
        return not_found(fmt::format("{}: tensor {} is missing; {} says it is in this file", path,
                                     quote_text(name), kIndexFile));
      }
      result.tensors_.push_back(*tensor);
    }
    result.files_.push_back(std::move(file).take_file());
  }
  add_missing_prefix(result.tensors_);
  sort_by_name(result.tensors_);
  return result;
}

Checkpoint Checkpoint::from_files(const std::string& directory, std::vector<CheckpointFile> files,
                                  std::vector<TensorInfo> tensors) {
  Checkpoint result;
  result.directory_ = directory;
  result.files_ = std::move(files);
  result.tensors_ = std::move(tensors);
  sort_by_name(result.tensors_);
  return result;
}

Checkpoint Checkpoint::without_files(const std::string& directory) {
  Checkpoint result;
  result.directory_ = directory;
  return result;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  return find_tensor(tensors_, name);
}

const CheckpointFile& Checkpoint::file_of(const TensorInfo& tensor) const {
  CHECK(tensor.file >= 0 && static_cast<std::size_t>(tensor.file) < files_.size());
  return files_[static_cast<std::size_t>(tensor.file)];
}

std::span<const std::byte> Checkpoint::data(const TensorInfo& tensor) const {
  return file_of(tensor).range(tensor.offset, tensor.bytes);
}

}  // namespace sluice
