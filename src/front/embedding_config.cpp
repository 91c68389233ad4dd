#include "front/embedding_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxFileBytes = 1 << 20;

Result<nlohmann::json> read_json(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path.string(), kMaxFileBytes));
  nlohmann::json document = parse_json(text);
  if (document.is_discarded()) return invalid_argument(path.string() + ": not JSON");
  return document;
}

std::string text_of(const nlohmann::json& object, const char* name) {
  if (!object.is_object()) return {};
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<Pooling> pooling_named(std::string_view name, const fs::path& path) {
  if (name == "lasttoken") return Pooling::kLastToken;
  if (name == "mean" || name == "mean_tokens") return Pooling::kMean;
  return unsupported(
      fmt::format("{}: pooling '{}' is not built; lasttoken and mean are", path.string(), name));
}

// Older files have a flag for each mode, newer ones the name of one.
Result<Pooling> read_pooling(const fs::path& path) {
  constexpr std::string_view kFlag = "pooling_mode_";
  ASSIGN_OR_RETURN(const nlohmann::json config, read_json(path));
  if (!config.is_object()) return invalid_argument(path.string() + ": not an object");
  if (const std::string name = text_of(config, "pooling_mode"); !name.empty()) {
    return pooling_named(name, path);
  }
  std::optional<Pooling> pooling;
  for (const auto& [name, value] : config.items()) {
    if (!name.starts_with(kFlag) || value != true) continue;
    if (pooling) {
      return unsupported(
          fmt::format("{}: {}: several poolings at once are not built", path.string(), name));
    }
    ASSIGN_OR_RETURN(pooling, pooling_named(std::string_view(name).substr(kFlag.size()), path));
  }
  if (!pooling) return invalid_argument(path.string() + ": names no pooling");
  return *pooling;
}

}  // namespace

Result<EmbeddingConfig> load_embedding_config(const std::string& directory) {
  EmbeddingConfig config;
  const fs::path folder = directory;
  const fs::path modules_file = folder / "modules.json";
  std::error_code ignored;
  if (!fs::exists(modules_file, ignored)) return config;
  ASSIGN_OR_RETURN(const nlohmann::json modules, read_json(modules_file));
  if (!modules.is_array()) return invalid_argument(modules_file.string() + ": not an array");
  config.normalize = false;
  for (const nlohmann::json& module : modules) {
    const std::string type = text_of(module, "type");
    const std::string name = type.substr(type.rfind('.') + 1);  // of a class in Python
    if (name == "Transformer") continue;
    if (name == "Normalize") {
      config.normalize = true;
    } else if (name == "Pooling") {
      ASSIGN_OR_RETURN(config.pooling,
                       read_pooling(folder / text_of(module, "path") / "config.json"));
    } else {
      return unsupported(
          fmt::format("{}: the module '{}' is not built; Transformer, Pooling and "
                      "Normalize are",
                      modules_file.string(), type.substr(0, 128)));
    }
  }
  return config;
}

}  // namespace sluice
