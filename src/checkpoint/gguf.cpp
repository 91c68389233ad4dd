#include "checkpoint/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";
constexpr std::uint64_t kMaxParts = 1000;

// "-00002-of-00005.gguf", counted from 0 here and from 1 in the name.
std::string part_suffix(std::uint64_t number, std::uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

// A part's place among `count` parts; {0, 1} for a model in one file.
struct Place {
  std::uint64_t number = 0;
  std::uint64_t count = 1;
};

Result<Place> place_of(const GgufFile& file) {
  const auto read = [&]() -> Result<Place> {
    ASSIGN_OR_RETURN(const auto count, file.metadata().whole_number(kSplitCount));
    ASSIGN_OR_RETURN(const auto number, file.metadata().whole_number(kSplitNumber));
    // Tools write a count of 0 or 1 into a file that is not split.
    if (count.value_or(0) <= 1) return Place{};
    if (*count > kMaxParts) {
      return invalid_argument(
          fmt::format("metadata \"{}\": is {}; the limit is {}", kSplitCount, *count, kMaxParts));
    }
    if (!number || *number >= *count) {
      return invalid_argument(
          fmt::format("metadata \"{}\": expected a number below {}, the number "
                      "of parts",
                      kSplitNumber, *count));
    }
    return Place{*number, *count};
  };
  auto place = read();
  if (!place) return with_context(file.path(), place.error());
  return place;
}

// The path without the suffix of its part.
Result<std::string> path_prefix(const std::string& path, const Place& place) {
  const std::string suffix = part_suffix(place.number, place.count);
  if (!path.ends_with(suffix)) {
    return invalid_argument(fmt::format(
        "{}: is part {} of {}, so that its name must end in {}; rename it to find the other parts",
        path, place.number + 1, place.count, suffix));
  }
  return path.substr(0, path.size() - suffix.size());
}

Status check_part(const GgufFile& part, const Place& expected) {
  ASSIGN_OR_RETURN(const Place place, place_of(part));
  if (place.number == expected.number && place.count == expected.count) return {};
  return invalid_argument(fmt::format("{}: its metadata says part {} of {}, its name part {} of {}",
                                      part.path(), place.number + 1, place.count,
                                      expected.number + 1, expected.count));
}

Status check_tensor_count(const GgufFile& first, std::size_t tensors) {
  auto expected = first.metadata().whole_number(kSplitTensors);
  if (!expected) return with_context(first.path(), expected.error());
  if (!*expected || **expected == tensors) return {};
  return invalid_argument(fmt::format("{}: metadata \"{}\" is {}, but the parts hold {} tensors",
                                      first.path(), kSplitTensors, **expected, tensors));
}

}  // namespace

bool is_gguf_path(const std::string& path) {
  std::error_code ignored;
  return path.ends_with(".gguf") && !std::filesystem::is_directory(path, ignored);
}

Result<GgufFile> GgufFile::open(const std::string& path, std::int32_t file_index) {
  ASSIGN_OR_RETURN(CheckpointFile file, CheckpointFile::open(path));
  auto header = parse_gguf(file.bytes(), file_index);
  if (!header) return with_context(path, header.error());
  file.set_header(0, header->bytes);
  GgufFile result(std::move(file));
  result.header_ = std::move(*header);
  return result;
}

Result<GgufModel> GgufModel::open(const std::string& path) {
  GgufModel result;
  ASSIGN_OR_RETURN(GgufFile named, GgufFile::open(path));
  ASSIGN_OR_RETURN(const Place place, place_of(named));
  if (place.count == 1) {
    result.files_.push_back(std::move(named));
  } else {
    ASSIGN_OR_RETURN(const std::string prefix, path_prefix(path, place));
    for (std::uint64_t i = 0; i < place.count; ++i) {
      ASSIGN_OR_RETURN(GgufFile part, GgufFile::open(prefix + part_suffix(i, place.count),
                                                     static_cast<std::int32_t>(i)));
      RETURN_IF_ERROR(check_part(part, {i, place.count}));
      result.files_.push_back(std::move(part));
    }
  }
  for (const GgufFile& file : result.files_) {
    const auto tensors = file.tensors();
    result.tensors_.insert(result.tensors_.end(), tensors.begin(), tensors.end());
  }
  std::sort(result.tensors_.begin(), result.tensors_.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(result.tensors_.begin(), result.tensors_.end(),
                         [](const GgufTensor& a, const GgufTensor& b) { return a.name == b.name; });
  if (twice != result.tensors_.end()) {
    const auto part = static_cast<std::size_t>((twice + 1)->file);
    return invalid_argument(fmt::format("{}: tensor {}: another part holds it too",
                                        result.files_[part].path(), quote_text(twice->name)));
  }
  RETURN_IF_ERROR(check_tensor_count(result.files_.front(), result.tensors_.size()));
  return result;
}

const GgufTensor* GgufModel::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const GgufTensor& t, std::string_view n) { return t.name < n; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> GgufModel::data(const GgufTensor& tensor) const {
  return files_[static_cast<std::size_t>(tensor.file)].data(tensor);
}

std::vector<CheckpointFile> GgufModel::take_files() && {
  std::vector<CheckpointFile> files;
  for (GgufFile& file : files_) files.push_back(std::move(file).take_file());
  return files;
}

}  // namespace sluice
