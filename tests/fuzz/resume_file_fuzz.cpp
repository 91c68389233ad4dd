// Files of saved answers: any bytes are refused or read without a crash, a sealed file comes back
// as it was, and a file with one changed byte does not. The input's first two bytes choose the
// byte.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "server/resume_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const auto input = std::as_bytes(std::span(data, size));
  const HmacKey key{};
  CHECK(!open_resume_file(key, "name", {input.begin(), input.end()}));
  if (size < 2 + 16) return 0;
  ResumeFile file;
  std::memcpy(&file.saved, data + 2, sizeof(file.saved));
  std::memcpy(&file.seed, data + 10, sizeof(file.seed));
  file.tokens.resize((size - 18) / sizeof(TokenId));
  if (!file.tokens.empty()) {
    std::memcpy(file.tokens.data(), data + 18, file.tokens.size() * sizeof(TokenId));
  }
  std::vector<std::byte> sealed = seal_resume_file(key, "name", file);
  CHECK(sealed.size() == resume_file_bytes(file.tokens.size()));
  const auto opened = open_resume_file(key, "name", sealed);
  CHECK(opened && opened->saved == file.saved && opened->seed == file.seed &&
        opened->tokens == file.tokens);
  CHECK(!open_resume_file(key, "other", sealed));
  const std::size_t at = (data[0] * std::size_t{256} + data[1]) % sealed.size();
  sealed[at] ^= std::byte{1};
  CHECK(!open_resume_file(key, "name", std::move(sealed)));
  return 0;
}
