// Seeds of fuzz targets in binary formats: files that tests keep up to date with the format. With
// SLUICE_WRITE_SEEDS=1 the tests write the files. Header only.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace sluice {

// Checks that tests/fuzz/corpus/NAME, below the current folder, has these bytes.
inline void expect_fuzz_seed(const std::string& name, std::span<const std::byte> bytes) {
  const std::string path = "tests/fuzz/corpus/" + name;
  const std::string_view wanted(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (std::getenv("SLUICE_WRITE_SEEDS") != nullptr) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const Status written = write_file(path, wanted);
    ASSERT_TRUE(written) << written.error().message;
    return;
  }
  const auto stored = read_file(path, bytes.size() + 1);
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_TRUE(*stored == wanted) << path << " is not of this version of its format: run this test "
                                 << "with SLUICE_WRITE_SEEDS=1";
}

}  // namespace sluice
