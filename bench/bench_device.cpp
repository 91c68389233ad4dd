#include "bench/bench_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda_device.h"

namespace sluice::bench {
namespace {

constexpr double kSeconds = 0.2;  // of a measurement, at least

}  // namespace

Result<std::unique_ptr<Device>> open_device(std::string_view name) {
  if (name == "cpu") return make_cpu_device({.threads = 0});
  int index = -1;
  if (name.starts_with("cuda:")) {
    std::from_chars(name.data() + 5, name.data() + name.size(), index);
  }
  if (index < 0) {
    return invalid_argument(fmt::format("--device {}: expected cpu or cuda:N", name));
  }
  return make_cuda_device(index);
}

void must(const Status& status) {
  if (!status) fmt::print(stderr, "{}\n", status.error().message);
  CHECK(status.has_value());
}

Memory::Memory(Device& device, std::int64_t bytes) : device_(device) {
  const std::size_t library_bytes = device.traits().library_workspace;
  range_ = must(
      device.reserve(static_cast<std::size_t>(bytes) + (std::size_t{16} << 20) + library_bytes));
  must(device.back(range_, 0, range_.bytes, Backing::memory()));
  if (library_bytes > 0)
    device.ops().set_library_workspace(take(static_cast<std::int64_t>(library_bytes)));
}

Memory::~Memory() {
  must(device_.synchronize());
  device_.ops().set_library_workspace(nullptr);
  device_.unback(range_, 0, range_.bytes);
  device_.release(range_);
}

std::byte* Memory::take(std::int64_t bytes) {
  used_ = (used_ + 255) / 256 * 256;
  std::byte* place = range_.base + used_;
  used_ += static_cast<std::size_t>(bytes);
  CHECK(used_ <= range_.bytes);
  return place;
}

std::byte* Memory::put_bytes(std::span<const std::byte> bytes) {
  std::byte* place = take(static_cast<std::int64_t>(bytes.size()));
  must(device_.copy_to_device(place, bytes.data(), bytes.size()));
  must(device_.synchronize());
  return place;
}

std::byte* Memory::take_numbers(std::int64_t bytes) {
  std::vector<std::uint16_t> numbers(std::size_t{1} << 22);
  SplitMix64 rng(1);
  for (std::uint16_t& number : numbers) {
    number = static_cast<std::uint16_t>(0x3C00 + rng.below(0x380) + (rng.below(2) << 15));
  }
  const std::span<const std::byte> piece = std::as_bytes(std::span(numbers));
  const auto piece_bytes = static_cast<std::int64_t>(piece.size());
  std::byte* place = take(bytes);
  must(device_.copy_to_device(place, piece.data(),
                              static_cast<std::size_t>(std::min(bytes, piece_bytes))));
  // The device repeats it: a host would take seconds for a large cache.
  std::vector<std::int32_t> pairs;
  for (std::int32_t i = 1; (i + 1) * piece_bytes <= bytes; ++i) pairs.insert(pairs.end(), {0, i});
  const auto count = static_cast<std::int32_t>(pairs.size() / 2);
  if (count > 0) {
    device_.ops().run(CopyBlocksParams{place, piece_bytes, put(pairs), {nullptr, count}});
  }
  if (const std::int64_t done = (count + 1) * piece_bytes; done < bytes) {
    must(
        device_.copy_to_device(place + done, piece.data(), static_cast<std::size_t>(bytes - done)));
  }
  must(device_.synchronize());
  return place;
}

TensorView Memory::matrix(DType dtype, std::int64_t rows, std::int64_t cols) {
  const std::int64_t bytes = rows * cols * static_cast<std::int64_t>(size_of(dtype));
  return matrix_view(take_numbers(bytes), dtype, rows, cols);
}

std::unique_ptr<Graph> capture(Device& device, FunctionRef<void()> submit) {
  must(device.begin_capture());
  submit();
  return must(device.end_capture());
}

double time_replays(Device& device, const Graph& graph, int times) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) must(device.replay(graph));
  must(device.synchronize());
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double time_ops(Device& device, int count, FunctionRef<void(int)> op) {
  const auto graph = capture(device, [&] {
    for (int i = 0; i < count; ++i) op(i);
  });
  time_replays(device, *graph, 1);
  const double once = time_replays(device, *graph, 1);
  const int times = std::clamp(static_cast<int>(kSeconds / once) + 1, 1, 1000);
  return time_replays(device, *graph, times) / times / count;
}

}  // namespace sluice::bench
