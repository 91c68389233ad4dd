#include "server/adapter_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "server/field_reader.h"
#include "server/request_json.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxPathBytes = 4096;

struct AdapterFields {
  std::string name;
  std::string path;
  bool in_place = false;
};

// An unknown field is an error: a typo must not load something else.
ApiResult<AdapterFields> read_fields(std::string_view body, bool with_path,
                                     BodyFields* recorded = nullptr) {
  auto object = parse_request_json(body);
  if (!object) return tl::unexpected(std::move(object).error());
  FieldReader reader(*object, "", nullptr, recorded);
  AdapterFields fields;
  const std::string* name = reader.string("lora_name", AdapterStore::kMaxNameBytes);
  if (name == nullptr) {
    reader.missing("lora_name", "the adapter's name");
  } else {
    fields.name = *name;
  }
  if (with_path) {
    const std::string* path = reader.string("lora_path", kMaxPathBytes);
    if (path == nullptr) {
      reader.missing("lora_path", "the adapter's directory");
    } else {
      fields.path = *path;
    }
    reader.read_into("load_inplace", fields.in_place);
  } else {
    reader.integer("lora_int_id", 0, INT64_MAX);  // vLLM's clients may send it; names decide
  }
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  return fields;
}

bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  static_cast<void>(rest);
  return end == folder.end();
}

// The directory with links resolved, if it and the files in it lie below the folder.
std::optional<std::string> allowed_directory(const std::string& folder, const std::string& path) {
  std::error_code problem;
  const auto root = std::filesystem::canonical(folder, problem);
  if (problem) return std::nullopt;
  const auto directory = std::filesystem::canonical(root / path, problem);
  if (problem || !is_below(directory, root)) return std::nullopt;
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const auto file = std::filesystem::canonical(directory / name, problem);
    if (!problem && !is_below(file, root)) return std::nullopt;
  }
  return directory.string();
}

ApiError not_loaded(std::string_view name) {
  ApiError error;
  error.status = 404;
  error.message = fmt::format("lora_name: the adapter {} is not loaded",
                              shown_value(JsonValue(std::string(name))));
  error.param = "lora_name";
  error.code = "adapter_not_found";
  return error;
}

}  // namespace

void record_adapter_fields(bool load, BodyFields& fields) {
  static_cast<void>(read_fields("{}", load, &fields));
}

ApiResult<std::string> load_adapter(const ServedModel& model, const std::string& folder,
                                    std::string_view body, const StopCheck& stop) {
  const auto fields = read_fields(body, true);
  if (!fields) return tl::unexpected(fields.error());
  if (fields->name == model.name) {
    return tl::unexpected(bad_field("lora_name", "lora_name: this is the base model's name"));
  }
  const bool known = model.adapters->find(fields->name) != nullptr;
  if (known && !fields->in_place) {
    return tl::unexpected(bad_field(
        "lora_name", fmt::format("lora_name: the adapter '{}' has already been loaded; set "
                                 "load_inplace to true to replace it",
                                 fields->name)));
  }
  const auto directory = allowed_directory(folder, fields->path);
  if (!directory) {
    return tl::unexpected(
        bad_field("lora_path",
                  fmt::format("lora_path: {} is not a directory below the server's --adapter-dir",
                              shown_value(JsonValue(fields->path)))));
  }
  const auto loaded = model.adapters->load(fields->name, *directory, stop);
  if (!loaded) {
    // A broken adapter is the caller's fault, whatever is wrong with it.
    ApiError error = to_api_error(loaded.error(), "lora_path");
    if (error.status == 404 || error.status == 501) error.status = 400;
    return tl::unexpected(std::move(error));
  }
  log_info(fmt::format("adapter '{}' {}: {} (digest {})", fields->name,
                       known ? "replaced" : "loaded", *directory,
                       (*loaded)->content->image.digest.substr(0, 12)));
  return fmt::format("Success: LoRA adapter '{}' added successfully.", fields->name);
}

ApiResult<std::string> unload_adapter(const ServedModel& model, std::string_view body) {
  const auto fields = read_fields(body, false);
  if (!fields) return tl::unexpected(fields.error());
  if (!model.adapters->remove(fields->name)) return tl::unexpected(not_loaded(fields->name));
  log_info(fmt::format("adapter '{}' unloaded", fields->name));
  return fmt::format("Success: LoRA adapter '{}' removed successfully.", fields->name);
}

}  // namespace sluice
