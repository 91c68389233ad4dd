// model.safetensors.index.json. No accepted file name may lead out of the directory.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "checkpoint/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto entries =
      sluice::parse_safetensors_index(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!entries) {
    CHECK(!entries.error().message.empty());
    return 0;
  }
  CHECK(!entries->empty());
  for (const auto& [tensor, file] : *entries) {
    CHECK(!file.empty() && file.front() != '.' && file.size() <= 255);
    for (const char c : file) CHECK(c != '/' && c != '\\' && c != '\0');
  }
  return 0;
}
