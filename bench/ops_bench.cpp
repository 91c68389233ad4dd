// Micro-benchmarks of the CPU ops on shapes of 0.6B, 1B and 8B models, with probes of what the
// machine can do:
//   ops_bench --benchmark_filter=... [--benchmark_min_time=1]
//   ops_bench --limits [THREADS]   the machine's limits alone, as JSON
//   ops_bench --device cuda:0      any device, as a table (device_table.h)
//   ops_bench --lora cpu           steps with adapters beside steps without (lora_table.h)
// SLUICE_BENCH_ISA=NAME takes other kernels than the best: a name of --isa but reference.
// SLUICE_BENCH_OFFSET=BYTES, a multiple of 8, is where weights begin in a line of memory, as in
// files, whose headers have any length; else they begin with one.
//
// Counters: GB/s of what must be read (weights, keys and values), GFLOP/s of useful arithmetic, and
// both in per cent of the limits that this machine has, measured before the benchmark, with as many
// threads: of_read of the read bandwidth, of_NAME of the peak of the fastest unit for the dtypes.
// Weights in blocks have of_vnni or of_avx_vnni, with tile registers too. avx2 and avx512 have no
// unit for products of bytes: they have of_fma, and may exceed it.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "apps/machine_limits.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/cpu_topology.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "bench/device_table.h"
#include "bench/lora_table.h"
#include "device/cpu/cpu_device.h"

namespace sluice::bench {
namespace {

// Weights of one benchmark: twice what the caches hold, and 256 MiB at least. A virtual machine may
// see the cache of the whole host.
std::int64_t cold_bytes() {
  static const std::int64_t kBytes = [] {
    constexpr std::int64_t kLeast = std::int64_t{256} << 20;
    return std::max(kLeast, 2 * static_cast<std::int64_t>(largest_cache_bytes("/")));
  }();
  return kBytes;
}

// Memory of a device, given back at the end of a benchmark.
class Memory {
 public:
  Memory(Device& device, std::int64_t bytes) : device_(device) {
    auto range = device.reserve(static_cast<std::size_t>(bytes) + (std::size_t{4} << 20));
    CHECK(range.has_value());
    range_ = *range;
    CHECK(device.back(range_, 0, range_.bytes, Backing::memory()).has_value());
  }
  ~Memory() { device_.release(range_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <class T>
  T* take(std::int64_t count) {
    used_ = (used_ + 63) / 64 * 64;
    auto* place = reinterpret_cast<T*>(range_.base + used_);
    used_ += static_cast<std::size_t>(count) * sizeof(T);
    CHECK(used_ <= range_.bytes);
    return place;
  }
  // A weight whose numbers are all harmless: small scales, and codes of any value but NaN.
  void* take_weight(std::int64_t rows, std::int64_t cols, DType dtype) {
    const std::int64_t count = rows * bytes_of(dtype, cols);
    auto* bytes = take<std::uint8_t>(weight_offset() + count) + weight_offset();
    if (is_float(dtype)) {
      fill(bytes, rows * cols, dtype);
      return bytes;
    }
    // Every pair of bytes is an F16 from 2^-7 to 2^-6 where a block has one, every four an F32 near
    // 2^-55.
    for (std::int64_t i = 0; i < count; ++i) {
      bytes[i] = static_cast<std::uint8_t>(0x20 + i % 4);
    }
    return bytes;
  }
  // Small numbers of any dtype.
  void* take_numbers(std::int64_t count, DType dtype) {
    auto* place = take<std::uint8_t>(bytes_of(dtype, count));
    fill(place, count, dtype);
    return place;
  }

 private:
  static std::int64_t weight_offset() {
    const char* const text = std::getenv("SLUICE_BENCH_OFFSET");
    return text == nullptr ? 0 : std::strtoll(text, nullptr, 10) / 8 * 8;
  }
  // Patterns with a harmless exponent.
  static void fill(void* place, std::int64_t count, DType dtype) {
    if (dtype == DType::kF32) {
      auto* values = static_cast<float*>(place);
      for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 17 - 8) * 0.125F;
      return;
    }
    auto* values = static_cast<std::uint16_t*>(place);
    const std::uint16_t base = dtype == DType::kBF16 ? 0x3E00 : 0x3000;
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<std::uint16_t>(base + i % 113 + (i % 2 == 0 ? 0x8000 : 0));
    }
  }

  Device& device_;
  AddressRange range_;
  std::size_t used_ = 0;
};

std::unique_ptr<Device> make_device(int threads) {
  CpuDeviceOptions options{.threads = threads};
  if (const char* name = std::getenv("SLUICE_BENCH_ISA")) {
    const auto isa = parse_cpu_isa(name);
    CHECK(isa.has_value());
    options.isa = *isa;
  }
  auto device = make_cpu_device(options);
  CHECK(device.has_value());
  return std::move(*device);
}

const MachineLimits& limits_of(int threads) {
  static std::map<int, MachineLimits> measured;
  const auto found = measured.find(threads);
  if (found != measured.end()) return found->second;
  const SystemClock clock;
  LimitsOptions options;
  options.threads = threads;
  return measured.emplace(threads, measure_limits(options, clock)).first->second;
}

// The fastest unit for products of these dtypes that the kernels may use.
MathUnit unit_for(DType x_type, DType w_type, const MachineLimits& limits) {
  const char* isa = std::getenv("SLUICE_BENCH_ISA");
  const auto fastest = [&](std::initializer_list<MathUnit> units) {
    MathUnit best = MathUnit::kFma;
    for (const MathUnit unit : units) {
      const std::string_view name = math_unit_name(unit);
      if (isa != nullptr && name.starts_with("amx") && !std::string_view(isa).starts_with("amx")) {
        continue;
      }
      if (limits.peak(unit) > limits.peak(best)) best = unit;
    }
    return best;
  };
  const std::string_view name = isa == nullptr ? "" : isa;
  if (name == "avx2" || name == "avx512") return MathUnit::kFma;
  const bool bytes_in_256_bits = name == "avx2_vnni";
  const MathUnit quads = bytes_in_256_bits || limits.peak(MathUnit::kInt8Quads) == 0
                             ? MathUnit::kAvxInt8Quads
                             : MathUnit::kInt8Quads;
  if (w_type == DType::kI8) return fastest({quads, MathUnit::kAmxInt8});
  if (is_blocks(w_type)) return fastest({quads});
  // Weights in other types are widened to BF16.
  if (x_type == DType::kBF16 && name != "avx2_vnni" && name != "avx512_vnni" &&
      name != "avx512_bf16_fma") {
    return fastest({MathUnit::kBf16Pairs, MathUnit::kAmxBf16});
  }
  return MathUnit::kFma;
}

// REQUIRES: the first argument is the number of threads.
void set_rates(benchmark::State& state, double bytes, double flops, DType x_type, DType w_type) {
  const auto rounds = static_cast<double>(state.iterations());
  const MachineLimits& limits = limits_of(static_cast<int>(state.range(0)));
  const auto rate = [&](const std::string& name, double value) {
    state.counters[name] = benchmark::Counter(value * rounds, benchmark::Counter::kIsRate);
  };
  if (bytes > 0) {
    rate("GB/s", bytes * 1e-9);
    rate("of_read%", 100 * bytes / limits.read);
  }
  if (flops > 0) {
    const MathUnit unit = unit_for(x_type, w_type, limits);
    rate("GFLOP/s", flops * 1e-9);
    rate(fmt::format("of_{}%", math_unit_name(unit)), 100 * flops / limits.peak(unit));
  }
}

void bench_matmul(benchmark::State& state, DType x_type, DType w_type) {
  const auto device = make_device(static_cast<int>(state.range(0)));
  const std::int64_t rows = state.range(1);
  const std::int64_t cols = state.range(2);
  const std::int64_t depth = state.range(3);
  const std::int64_t weight_bytes = cols * bytes_of(w_type, depth);
  // As --dtype makes them.
  const std::int64_t block = w_type == DType::kI8 ? depth : 128;
  const std::int64_t across = (depth + block - 1) / block;
  const std::vector<float> scales(static_cast<std::size_t>(cols * across), 0x1p-7F);
  // As in a model: each weight was last used long ago.
  const std::int64_t copies = std::max<std::int64_t>(1, cold_bytes() / weight_bytes);
  const std::int64_t stride = spaced_stride(cols, DType::kF32, device->traits().row_spacing);
  Memory memory(*device, copies * weight_bytes + 4 * rows * (depth + stride));
  std::vector<MatmulParams> ops(static_cast<std::size_t>(copies));
  // Weights first: how fast some kernels read a weight depends on where its rows lie in pages.
  for (MatmulParams& p : ops) {
    p.segments[0].weight =
        matrix_view(memory.take_weight(cols, depth, w_type), w_type, cols, depth);
    if (has_scales(w_type)) {
      p.segments[0].scales = {scales.data(), w_type == DType::kI8 ? 1 : 128,
                              static_cast<std::int32_t>(block), across};
    }
    p.num_segments = 1;
    p.rows = {nullptr, static_cast<std::int32_t>(rows)};
  }
  const TensorView x = matrix_view(memory.take_numbers(rows * depth, x_type), x_type, rows, depth);
  auto* const results = memory.take<float>(rows * stride);
  // As in a model: the system has given the pages already.
  std::fill_n(results, rows * stride, 0.0F);
  const TensorView out = matrix_view(results, DType::kF32, rows, cols, stride);
  for (MatmulParams& p : ops) {
    p.x = x;
    p.out = out;
  }
  std::size_t next = 0;
  for (auto _ : state) {
    device->ops().run(ops[next]);
    next = (next + 1) % ops.size();
  }
  set_rates(state, static_cast<double>(weight_bytes),
            2.0 * static_cast<double>(rows * cols * depth), x_type, w_type);
}

// `rows` sequences of `query` new tokens each, after `context`.
void bench_attention(benchmark::State& state, DType kv_type) {
  const auto device = make_device(static_cast<int>(state.range(0)));
  const auto rows = static_cast<std::int32_t>(state.range(1));
  const auto query = static_cast<std::int32_t>(state.range(2));
  const auto context = static_cast<std::int32_t>(state.range(3));
  const auto dim = static_cast<std::int32_t>(state.range(4));
  constexpr std::int32_t kHeads = 32;
  constexpr std::int32_t kKvHeads = 8;
  constexpr std::int32_t kBlockSize = 16;
  const std::int32_t blocks_per_row = (context + query + kBlockSize - 1) / kBlockSize;
  const std::int64_t half = std::int64_t{kKvHeads} * kBlockSize * dim;
  const std::int64_t cache = std::int64_t{rows} * blocks_per_row * 2 * half;
  const std::int64_t tokens = std::int64_t{rows} * query;
  const std::int64_t width = std::int64_t{kHeads} * dim;
  Memory memory(*device, cache * 4 + tokens * width * 8 + (std::int64_t{8} << 20));
  auto* base = static_cast<std::byte*>(memory.take_numbers(cache, kv_type));
  std::vector<std::int32_t> cu_seqlens(static_cast<std::size_t>(rows) + 1);
  for (std::int32_t r = 0; r <= rows; ++r) cu_seqlens[static_cast<std::size_t>(r)] = r * query;
  const std::vector<std::int32_t> seq_lens(static_cast<std::size_t>(rows), context + query);
  std::vector<std::int32_t> tables(static_cast<std::size_t>(rows * blocks_per_row));
  std::iota(tables.begin(), tables.end(), 0);
  SplitMix64 rng(1);
  for (std::size_t i = tables.size() - 1; i > 0; --i)
    std::swap(tables[i], tables[rng.below(i + 1)]);
  std::vector<std::int32_t> slots(static_cast<std::size_t>(rows));
  std::iota(slots.begin(), slots.end(), 0);
  const AttentionPlanLimits limits = {
      static_cast<std::int32_t>(tokens), rows, context + query, kHeads, kKvHeads, dim, 0};
  auto* plan = memory.take<std::byte>(device->ops().attention_plan_size(limits).device_bytes);
  device->ops().plan_attention({limits, cu_seqlens.data(), seq_lens.data(), rows, plan});
  AttentionParams p;
  p.q = matrix_view(memory.take_numbers(tokens * width, DType::kF32), DType::kF32, tokens, width);
  p.kv = {base,     base + half * static_cast<std::int64_t>(size_of(kv_type)),
          kv_type,  kBlockSize,
          2 * half, std::int64_t{kBlockSize} * dim,
          dim};
  p.cu_seqlens_q = cu_seqlens.data();
  p.seq_lens = seq_lens.data();
  p.block_tables = tables.data();
  p.row_slots = slots.data();
  p.table_stride = blocks_per_row;
  p.plan = plan;
  p.num_heads = kHeads;
  p.num_kv_heads = kKvHeads;
  p.head_dim = dim;
  p.scale = 1.0F / std::sqrt(static_cast<float>(dim));
  p.out = matrix_view(memory.take<float>(tokens * width), DType::kF32, tokens, width);
  p.seqs = {nullptr, rows};
  for (auto _ : state) device->ops().run(p);
  double keys = 0;  // seen, over all queries of a row
  for (std::int32_t i = 1; i <= query; ++i) keys += context + i;
  set_rates(state,
            2.0 * rows * (context + query) * kKvHeads * dim * static_cast<double>(size_of(kv_type)),
            4.0 * rows * keys * static_cast<double>(width), kv_type, kv_type);
}

void bench_rms_norm(benchmark::State& state) {
  const auto device = make_device(static_cast<int>(state.range(0)));
  const std::int64_t rows = state.range(1);
  constexpr std::int64_t kHidden = 2048;
  Memory memory(*device, rows * kHidden * 16);
  const auto matrix = [&](DType dtype) {
    return matrix_view(memory.take_numbers(rows * kHidden, dtype), dtype, rows, kHidden);
  };
  const RmsNormParams p = {
      matrix(DType::kF32),
      matrix(DType::kF32),
      vector_view(memory.take_numbers(kHidden, DType::kBF16), DType::kBF16, kHidden),
      matrix(DType::kBF16),
      1e-5F,
      {nullptr, static_cast<std::int32_t>(rows)}};
  for (auto _ : state) device->ops().run(p);
  set_rates(state, 14.0 * static_cast<double>(rows * kHidden), 0, DType::kF32, DType::kF32);
}

void bench_gated_activation(benchmark::State& state) {
  const auto device = make_device(static_cast<int>(state.range(0)));
  const std::int64_t rows = state.range(1);
  constexpr std::int64_t kWidth = 8192;
  Memory memory(*device, rows * kWidth * 12);
  const GatedActivationParams p = {
      matrix_view(memory.take_numbers(rows * 2 * kWidth, DType::kF32), DType::kF32, rows,
                  2 * kWidth),
      matrix_view(memory.take<std::uint16_t>(rows * kWidth), DType::kBF16, rows, kWidth),
      GatedActivation::kSilu,
      {nullptr, static_cast<std::int32_t>(rows)}};
  for (auto _ : state) device->ops().run(p);
  set_rates(state, 10.0 * static_cast<double>(rows * kWidth), 0, DType::kF32, DType::kF32);
}

// One thread goes by its CPU time, so that other work on the machine counts less.
template <class Function>
benchmark::internal::Benchmark* add(const std::string& name, std::int64_t threads,
                                    Function function) {
  auto* bench = benchmark::RegisterBenchmark(name.c_str(), function);
  if (threads > 1) bench->UseRealTime();
  return bench;
}

struct MatrixShape {
  const char* name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
// The matrices of Qwen3-0.6B, Llama-3.2-1B and Llama-3-8B. Gate and up are one product here.
constexpr MatrixShape kMatrices[] = {
    {"0.6b/qkv", 4096, 1024},    {"0.6b/o", 1024, 2048},      {"0.6b/gate_up", 6144, 1024},
    {"0.6b/down", 1024, 3072},   {"0.6b/head", 151936, 1024}, {"1b/qkv", 3072, 2048},
    {"1b/o", 2048, 2048},        {"1b/gate_up", 16384, 2048}, {"1b/down", 2048, 8192},
    {"1b/head", 128256, 2048},   {"8b/qkv", 6144, 4096},      {"8b/o", 4096, 4096},
    {"8b/gate_up", 28672, 4096}, {"8b/down", 4096, 14336},    {"8b/head", 128256, 4096},
};

void add_matmul(const std::string& types, DType x, DType w, std::int64_t threads) {
  for (const MatrixShape& shape : kMatrices) {
    auto* bench = add(fmt::format("matmul/{}/{}", types, shape.name), threads,
                      [=](benchmark::State& state) { bench_matmul(state, x, w); });
    bench->ArgNames({"threads", "M", "N", "K"});
    // Logits are for a row of each sequence at most.
    const bool head = std::string_view(shape.name).ends_with("head");
    for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 128, 512, 2048}) {
      if (!head || rows <= 32) bench->Args({threads, rows, shape.rows, shape.cols});
    }
  }
}

void add_attention(const std::string& type, DType kv, std::int64_t threads) {
  auto* bench = add("attention/" + type, threads,
                    [=](benchmark::State& state) { bench_attention(state, kv); });
  bench->ArgNames({"threads", "rows", "query", "context", "D"});
  for (const std::int64_t dim : {64, 128}) {
    bench->Args({threads, 1, 1, 4095, dim});
    bench->Args({threads, 32, 1, 1023, dim});
    bench->Args({threads, 512, 1, 95, dim});
    bench->Args({threads, 1, 512, 0, dim});
    bench->Args({threads, 1, 512, 3584, dim});
  }
}

void add_all() {
  for (const std::int64_t threads : {1, 2}) {
    add_matmul("bf16_bf16", DType::kBF16, DType::kBF16, threads);
    add_matmul("f32_bf16", DType::kF32, DType::kBF16, threads);
    add_matmul("f32_f16", DType::kF32, DType::kF16, threads);
    add_matmul("f32_f32", DType::kF32, DType::kF32, threads);
    add_matmul("bf16_int8", DType::kBF16, DType::kI8, threads);
    for (const DType weight : kBlockDTypes) {
      add_matmul(fmt::format("bf16_{}", dtype_name(weight)), DType::kBF16, weight, threads);
    }
    // Some instruction sets multiply FP8 with inputs in BF16, others with inputs in F32.
    const DType input = make_device(1)->traits().fp8_as_bf16 ? DType::kBF16 : DType::kF32;
    add_matmul(fmt::format("{}_fp8", dtype_name(input)), input, DType::kF8E4M3, threads);
    add_attention("bf16", DType::kBF16, threads);
    add_attention("f32", DType::kF32, threads);
    for (const std::int64_t rows : {1, 32, 512}) {
      add("rms_norm", threads, bench_rms_norm)
          ->ArgNames({"threads", "rows"})
          ->Args({threads, rows});
      add("gated_activation", threads, bench_gated_activation)
          ->ArgNames({"threads", "rows"})
          ->Args({threads, rows});
    }
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  if (argc >= 2 && std::string_view(argv[1]) == "--limits") {
    const int threads = argc == 3 ? std::atoi(argv[2]) : sluice::available_cpus();
    if (threads < 1 || argc > 3) {
      std::fprintf(stderr, "usage: ops_bench --limits [THREADS]\n");
      return 2;
    }
    std::printf("%s\n", limits_json(sluice::bench::limits_of(threads)).c_str());
    return 0;
  }
  const std::string table = argc >= 3 ? argv[1] : "";
  if (table == "--device" || table == "--lora") {
    const bool small = argc == 4 && std::string(argv[3]) == "--small";
    if (argc == 3 || small) {
      return table == "--lora" ? sluice::bench::print_lora_table(argv[2], small)
                               : sluice::bench::print_device_table(argv[2], small);
    }
    std::fprintf(stderr, "usage: ops_bench --device|--lora cpu|cuda:N [--small]\n");
    return 2;
  }
  sluice::bench::add_all();
  for (const int threads : {1, 2}) {
    benchmark::AddCustomContext(fmt::format("limits of {} threads", threads),
                                limits_text(sluice::bench::limits_of(threads)));
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
