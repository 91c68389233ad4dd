// Matrices that the packages compressed-tensors, autoawq and gptqmodel packed have the elements
// that these packages read back (tools/make_quantized_goldens.py), and what does not fit is
// refused.
#include "model/packed_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "model/packed_matrix.h"
#include "model/quantization_fields.h"
#include "tensor/gguf_blocks.h"
#include "tensor/half.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct GoldenMatrix {
  const char* name;
  DType type;
};

class GoldenMatrices : public ::testing::TestWithParam<GoldenMatrix> {};

TEST_P(GoldenMatrices, ElementsEqualThePackages) {
  const std::string directory = std::string("tests/golden/packed/") + GetParam().name;
  const auto text = read_file(directory + "/config.json", 1 << 16);
  ASSERT_TRUE(text) << text.error().message;
  const json config = json::parse(*text);
  const auto form = read_quantization(JsonFields(config, "config.json: "));
  ASSERT_TRUE(form && form->packing);
  auto stored = Checkpoint::open(directory);
  ASSERT_TRUE(stored) << stored.error().message;
  ThreadPool pool(2);
  const auto checkpoint =
      repack_checkpoint(*std::move(stored), *form->packing, pool, Repacking::kFull);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const TensorInfo* tensor = checkpoint->find("m.weight");
  const TensorInfo* order = checkpoint->find("m.weight_order");
  ASSERT_EQ(order != nullptr, std::string(GetParam().name).ends_with("-order"));
  ASSERT_EQ(checkpoint->tensors().size(), order != nullptr ? 3U : 2U) << "the parts are gone";
  const TensorInfo* expected = checkpoint->find("expected");
  ASSERT_TRUE(tensor != nullptr && expected != nullptr);
  ASSERT_EQ(tensor->shape, expected->shape);
  ASSERT_EQ(*weight_dtype(*tensor), GetParam().type);
  const auto* row = checkpoint->data(*tensor).data();
  const std::byte* value = checkpoint->data(*expected).data();
  // The place of a column of the file among those of the blocks.
  std::vector<std::int64_t> places(static_cast<std::size_t>(tensor->shape[1]));
  for (std::int64_t k = 0; k < tensor->shape[1]; ++k) {
    std::int32_t column = static_cast<std::int32_t>(k);
    if (order != nullptr) {
      std::memcpy(&column, checkpoint->data(*order).data() + 4 * k, sizeof(column));
    }
    places.at(static_cast<std::size_t>(column)) = k;
  }
  int different = 0;
  for (std::int64_t n = 0; n < tensor->shape[0]; ++n) {
    for (std::int64_t k = 0; k < tensor->shape[1]; ++k) {
      const float element =
          block_element(GetParam().type, row, places[static_cast<std::size_t>(k)]);
      const std::uint16_t rounded = float_to_bf16(element);
      const bool in_f32 = expected->dtype == StoredDType::kF32;
      const void* const bytes = in_f32 ? static_cast<const void*>(&element) : &rounded;
      const std::size_t size = in_f32 ? sizeof(element) : sizeof(rounded);
      different += std::memcmp(bytes, value, size) == 0 ? 0 : 1;
      value += size;
    }
    row += bytes_of(GetParam().type, tensor->shape[1]);
  }
  EXPECT_EQ(different, 0);
}

INSTANTIATE_TEST_SUITE_P(Packages, GoldenMatrices,
                         ::testing::Values(GoldenMatrix{"gptq-v1-128", DType::kU4G128},
                                           GoldenMatrix{"gptq-v1-32-zeros", DType::kU4G32},
                                           GoldenMatrix{"gptq-v2-64-zeros", DType::kU4G32},
                                           GoldenMatrix{"gptq-v2-rows", DType::kU4G128},
                                           GoldenMatrix{"gptq-v1-128-8bit", DType::kU8G128},
                                           GoldenMatrix{"gptq-v2-64-8bit", DType::kQ8_0},
                                           GoldenMatrix{"gptq-v1-128-order", DType::kU4G128},
                                           GoldenMatrix{"gptq-v2-32-order", DType::kU4G32},
                                           GoldenMatrix{"awq-128", DType::kU4G128},
                                           GoldenMatrix{"awq-64", DType::kU4G32},
                                           GoldenMatrix{"compressed-128", DType::kU4G128},
                                           GoldenMatrix{"compressed-128-zeros", DType::kU4G128},
                                           GoldenMatrix{"compressed-rows-8bit", DType::kU8G128},
                                           GoldenMatrix{"compressed-128-8bit-zeros",
                                                        DType::kU8G128},
                                           GoldenMatrix{"compressed-rows-int8", DType::kU8G128}));

// The tensors of one matrix by name, as dtype, shape and bytes; tests change them.
struct PartTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using PartTensors = std::map<std::string, PartTensor>;

template <class T>
std::string numbers(std::size_t count, T value) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

// [16, 64] in groups of 32.
PartTensors gptq_tensors() {
  std::string order = numbers<std::int32_t>(32, 0) + numbers<std::int32_t>(32, 1);
  return {{"m.qweight", {"I32", {8, 16}, numbers<std::uint32_t>(128, 0x76543210)}},
          {"m.qzeros", {"I32", {2, 2}, numbers<std::uint32_t>(4, 0x77777777)}},
          {"m.scales", {"F16", {2, 16}, numbers<std::uint16_t>(32, 0x3C00)}},
          {"m.g_idx", {"I32", {64}, order}}};
}

PartTensors compressed_tensors() {
  return {
      {"m.weight_packed", {"I32", {16, 8}, numbers<std::uint32_t>(128, 0x76543210)}},
      {"m.weight_shape", {"I64", {2}, numbers<std::int64_t>(1, 16) + numbers<std::int64_t>(1, 64)}},
      {"m.weight_scale", {"BF16", {16, 2}, numbers<std::uint16_t>(32, 0x3F80)}}};
}

constexpr WeightPacking kGptq32{Packing::kGptq, 4, 32};
constexpr WeightPacking kCompressed32{Packing::kCompressed, 4, 32, false};

std::string repack_error(const PartTensors& tensors, const WeightPacking& form) {
  json header = json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const TempDirectory directory;
  directory.write("model.safetensors", safetensors_bytes(header.dump(), data));
  auto stored = Checkpoint::open(directory.path());
  if (!stored) return stored.error().message;
  ThreadPool pool(1);
  const auto repacked = repack_checkpoint(*std::move(stored), form, pool, Repacking::kFull);
  return repacked ? "no error" : repacked.error().message;
}

TEST(RepackCheckpoint, RefusesPartsThatDoNotFit) {
  ASSERT_EQ(repack_error(gptq_tensors(), kGptq32), "no error");
  ASSERT_EQ(repack_error(compressed_tensors(), kCompressed32), "no error");
  const auto with = [](PartTensors tensors, const WeightPacking& form, const std::string& name,
                       const PartTensor& tensor) {
    tensors[name] = tensor;
    return repack_error(tensors, form);
  };
  EXPECT_THAT(repack_error({{"m.other", {"F16", {1}, "xx"}}}, kGptq32),
              HasSubstr("no tensor's name ends in \".qweight\""));
  for (const char* part : {"m.qzeros", "m.scales"}) {
    PartTensors tensors = gptq_tensors();
    tensors.erase(part);
    EXPECT_THAT(repack_error(tensors, kGptq32),
                HasSubstr("tensor \"" + std::string(part) + "\" is missing; \"m.qweight\""));
  }
  EXPECT_THAT(with(gptq_tensors(), kGptq32, "m.weight", {"F16", {1}, "xx"}),
              HasSubstr("tensors \"m.qweight\" and \"m.weight\" are both there"));
  EXPECT_THAT(with(gptq_tensors(), kGptq32, "m.qweight", {"I64", {1, 1}, numbers(1, 0L)}),
              HasSubstr("is I64 [1, 1]; expected I32 [rows, columns]"));
  EXPECT_THAT(with(gptq_tensors(), kGptq32, "m.qweight", {"I32", {0, 16}, ""}),
              HasSubstr("is I32 [0, 16]; expected I32 [rows, columns]"));
  EXPECT_THAT(with(gptq_tensors(), kGptq32, "m.qweight", {"I32", {8, 15}, numbers(120, 0)}),
              HasSubstr("expected a multiple of 8 outputs"));
  EXPECT_THAT(
      with(gptq_tensors(), kGptq32, "m.scales", {"F16", {3, 16}, numbers<std::uint16_t>(48, 0)}),
      HasSubstr("\"m.scales\" is F16 [3, 16]; expected F16 [2, 16]"));
  EXPECT_THAT(with(gptq_tensors(), kGptq32, "m.scales", {"I32", {2, 16}, numbers(32, 0)}),
              HasSubstr("\"m.scales\" is I32; expected F32, F16 or BF16"));
  EXPECT_THAT(with(compressed_tensors(), kCompressed32, "m.weight_shape",
                   {"I64", {2}, numbers<std::int64_t>(2, 16)}),
              HasSubstr("\"m.weight_shape\" says [16, 16], but \"m.weight_packed\" is [16, 8]"));
}

TEST(RepackCheckpoint, RefusesWhatNoTypeHolds) {
  PartTensors tensors = gptq_tensors();
  std::swap(tensors["m.g_idx"].bytes[0], tensors["m.g_idx"].bytes[4 * 63]);
  EXPECT_EQ(repack_error(tensors, kGptq32), "no error");
  for (const auto& [column, group] : {std::pair(0, 1), std::pair(63, 0), std::pair(5, 2)}) {
    tensors = gptq_tensors();
    tensors["m.g_idx"].bytes[static_cast<std::size_t>(4 * column)] = static_cast<char>(group);
    EXPECT_THAT(repack_error(tensors, kGptq32),
                AllOf(HasSubstr("\"m.g_idx\" puts column "),
                      HasSubstr("; expected 2 groups of 32 columns each")));
  }
  tensors = gptq_tensors();
  std::swap(tensors["m.g_idx"].bytes[0], tensors["m.g_idx"].bytes[4 * 63]);
  tensors["m.weight_order"] = {"I32", {64}, numbers<std::int32_t>(64, 1'000'000)};
  EXPECT_THAT(repack_error(tensors, kGptq32), HasSubstr("\"m.weight_order\" is not expected"));
  tensors = gptq_tensors();
  tensors["m.g_idx"].bytes = numbers<std::int32_t>(64, -1);
  EXPECT_THAT(repack_error(tensors, kGptq32), HasSubstr("puts column 0 into group -1"));
  tensors = compressed_tensors();
  tensors["m.weight_g_idx"] = {"I32", {64}, numbers<std::int32_t>(64, -1)};
  EXPECT_EQ(repack_error(tensors, kCompressed32), "no error");
  tensors = gptq_tensors();
  tensors["m.scales"].bytes = numbers<std::uint16_t>(32, 0x7C00);
  EXPECT_THAT(repack_error(tensors, kGptq32),
              HasSubstr("\"m\": a scale is inf; expected a finite"));
  tensors = compressed_tensors();
  tensors["m.weight_scale"].bytes = numbers<std::uint16_t>(32, 0x2001);
  EXPECT_THAT(repack_error(tensors, kCompressed32), HasSubstr("which F16 does not hold exactly"));
  WeightPacking with_zeros = kCompressed32;
  with_zeros.zero_points = true;
  tensors = compressed_tensors();
  tensors["m.weight_zero_point"] = {"I8", {16, 2}, numbers<std::int8_t>(32, 7)};
  EXPECT_EQ(repack_error(tensors, with_zeros), "no error");
  for (const int zero : {8, -9}) {
    tensors["m.weight_zero_point"].bytes = numbers(32, static_cast<std::int8_t>(zero));
    EXPECT_THAT(repack_error(tensors, with_zeros),
                HasSubstr(fmt::format("\"m\": a zero point is {}; expected -8 to 7", zero)));
  }
  tensors = gptq_tensors();
  tensors["m.scales"] = {"F16", {4, 16}, numbers<std::uint16_t>(64, 0x3C00)};
  tensors["m.qzeros"] = {"I32", {4, 2}, numbers<std::uint32_t>(8, 0x77777777)};
  tensors.erase("m.g_idx");
  EXPECT_THAT(repack_error(tensors, {Packing::kGptq, 4, 16}),
              HasSubstr("groups of 16 columns are not supported; expected a multiple of 32"));
}

// Zero points of kGptq are stored minus 1 as a word: where one is 0, the word borrows.
TEST(RepackCheckpoint, ZeroPointsOfGptqAreTheWordPlusOnes) {
  PackedMatrix m;
  m.form = kGptq32;
  m.rows = 8;
  m.cols = 32;
  const std::uint32_t word = 0x80000000U - 0x11111111U;  // of the zero points 0, ..., 0, 8
  m.zeros = std::as_bytes(std::span(&word, 1));
  for (int row = 0; row < 7; ++row) EXPECT_EQ(m.zero(row, 0), 0);
  EXPECT_EQ(m.zero(7, 0), 8);
}

}  // namespace
}  // namespace sluice
