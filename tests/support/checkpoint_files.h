// Temporary directories and hand-made safetensors files for tests. Header only.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sluice {

// A new directory, removed with everything in it on destruction.
class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  void write(std::string_view name, std::string_view bytes) const {
    std::ofstream out(file(name), std::ios::binary);
    out << bytes;
    if (!out) throw std::runtime_error(file(name) + ": cannot be written");
  }

 private:
  std::string path_;
};

// Length, header and data as one file; `length` need not be the header's true length.
inline std::string safetensors_bytes(std::string_view header, std::string_view data,
                                     std::uint64_t length) {
  char raw[sizeof(length)];
  std::memcpy(raw, &length, sizeof(length));
  return std::string(raw, sizeof(raw)).append(header).append(data);
}
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return safetensors_bytes(header, data, header.size());
}

}  // namespace sluice
