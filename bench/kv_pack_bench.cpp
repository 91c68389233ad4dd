// The code of --kv-ram on real KV blocks: kv_pack_bench FILE BLOCK_BYTES. FILE has whole blocks of
// BF16, one after another; tools/kv_compression_figures.py makes it. Prints the ratio, and bytes of
// KV per second of one core. Exits with 1 if a block does not come back.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/clock.h"
#include "offload/block_pack.h"

namespace sluice {
namespace {

constexpr int kRounds = 9;  // of each block; the fastest counts

int run(const std::string& path, std::size_t block_bytes) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> all((std::istreambuf_iterator<char>(file)), {});
  const auto bytes = std::as_bytes(std::span(all));
  const std::size_t blocks = block_bytes == 0 ? 0 : bytes.size() / block_bytes;
  if (blocks == 0) {
    fmt::print(stderr, "{}: has no block of {} bytes\n", path, block_bytes);
    return 1;
  }
  std::vector<std::byte> packed(packed_limit(block_bytes));
  std::vector<std::size_t> sizes(blocks);
  std::vector<std::byte> again(blocks * block_bytes);
  const SystemClock clock;
  Duration packing{0};
  Duration unpacking{0};
  bool good = true;
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto block = bytes.subspan(i * block_bytes, block_bytes);
    const auto out = std::span(again).subspan(i * block_bytes, block_bytes);
    Duration fastest_pack = Duration::max();
    Duration fastest_unpack = Duration::max();
    for (int round = 0; round < kRounds; ++round) {
      const TimePoint start = clock.now();
      sizes[i] = pack_block(block, packed);
      const TimePoint middle = clock.now();
      good = good && unpack_block(std::span(packed).first(sizes[i]), out);
      fastest_pack = std::min(fastest_pack, middle - start);
      fastest_unpack = std::min(fastest_unpack, clock.now() - middle);
    }
    packing += fastest_pack;
    unpacking += fastest_unpack;
  }
  if (!good || !std::ranges::equal(again, bytes.first(again.size()))) {
    fmt::print(stderr, "{}: a block did not come back as it was\n", path);
    return 1;
  }
  std::size_t sum = 0;
  for (const std::size_t size : sizes) sum += size;
  const auto raw = static_cast<double>(again.size());
  fmt::print("{:34} {:6.3f}  {:8.0f} MB/s  {:8.0f} MB/s\n", "codes of 2 to 4 bits (--kv-ram)",
             raw / static_cast<double>(sum), raw / to_seconds(packing) / 1e6,
             raw / to_seconds(unpacking) / 1e6);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: kv_pack_bench FILE BLOCK_BYTES\n");
    return 2;
  }
  return sluice::run(argv[1], std::strtoull(argv[2], nullptr, 10));
}
