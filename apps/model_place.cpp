#include "apps/model_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "model/model_files.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxRefBytes = 4096;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_word(std::string_view text) {
  return !text.empty() && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                  c == '.';
         });
}

// NAME or OWNER/NAME. A path with more parts, or that begins with '/' or '.', is none.
bool is_repository(std::string_view model) {
  const std::size_t slash = model.find('/');
  if (slash == std::string_view::npos) return is_word(model);
  return is_word(model.substr(0, slash)) && is_word(model.substr(slash + 1));
}

// Branches and tags may have slashes; no part may lead out of the cache.
bool is_revision(std::string_view revision) {
  while (true) {
    const std::size_t slash = std::min(revision.find('/'), revision.size());
    if (!is_word(revision.substr(0, slash))) return false;
    if (slash == revision.size()) return true;
    revision.remove_prefix(slash + 1);
  }
}

std::string repository_folder(std::string_view repository) {
  std::string folder = "models--";
  for (const char c : repository) folder += c == '/' ? std::string("--") : std::string(1, c);
  return folder;
}

bool is_a_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// A revision's commit is the text of refs/REVISION; a commit may also be given itself.
std::optional<fs::path> snapshot_of(const fs::path& folder, const std::string& revision) {
  std::string commit = revision;
  if (const auto ref = read_file((folder / "refs" / revision).string(), kMaxRefBytes)) {
    commit = ref->substr(0, ref->find_first_of(" \t\r\n"));
  }
  if (!is_word(commit)) return std::nullopt;
  fs::path snapshot = folder / "snapshots" / commit;
  if (!is_a_directory(snapshot)) return std::nullopt;
  return snapshot;
}

}  // namespace

std::string hugging_face_cache() {
  if (std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/huggingface/hub";
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface/hub";
}

Result<ModelPlace> find_model(const std::string& model, const std::string& revision) {
  // A name that ends in .gguf is never a repository of models that can be loaded.
  if (is_a_directory(model) || is_gguf_model(model)) {
    if (revision.empty()) return ModelPlace{model, std::nullopt};
    return invalid_argument(
        fmt::format("--revision {} is given, but {} is a {}; leave --revision out", revision, model,
                    is_a_directory(model) ? "directory" : "file"));
  }
  // A path that does not exist: the reader of the checkpoint says so.
  if (!is_repository(model)) return ModelPlace{model, std::nullopt};
  if (!revision.empty() && !is_revision(revision)) {
    return invalid_argument(
        fmt::format("--revision must be a branch, tag or commit, got '{}'", revision));
  }
  const std::string wanted = revision.empty() ? "main" : revision;
  const std::string cache = hugging_face_cache();
  const auto snapshot = snapshot_of(fs::path(cache) / repository_folder(model), wanted);
  if (snapshot) return ModelPlace{snapshot->string(), model};
  return Error{
      ErrorCode::kNotFound,
      fmt::format("{} is no directory, and revision {} of a repository of that name is not "
                  "in the Hugging Face cache {}; download it with: hf download {}{}",
                  model, wanted, cache.empty() ? "(HOME is not set)" : cache, model,
                  revision.empty() ? "" : " --revision " + revision)};
}

}  // namespace sluice
