#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/quote_text.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                  std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

std::string open_error(std::string_view bytes) {
  const TempDirectory directory;
  directory.write("m.safetensors", bytes);
  auto file = SafetensorsFile::open(directory.file("m.safetensors"));
  if (file) return "no error";
  EXPECT_THAT(file.error().message, HasSubstr(directory.file("m.safetensors")));
  return file.error().message;
}

// A header over 64 bytes of data.
std::string header_error(std::string_view header) {
  return open_error(safetensors_bytes(header, std::string(64, 'x')));
}

TEST(SafetensorsFile, ReadsNamesShapesTypesAndBytes) {
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "BF16", "[2,3]", "[0,12]") + "," +
      entry("a", "F32", "[1]", "[12,16]") + "," + entry("scalar", "F16", "[]", "[16,18]") + "," +
      entry("none", "I64", "[0,7]", "[18,18]") + "}   ";
  const TempDirectory directory;
  directory.write("m.safetensors", safetensors_bytes(header, "0123456789abcdefgh"));
  auto file = SafetensorsFile::open(directory.file("m.safetensors"), 3);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 4U);
  EXPECT_EQ(file->tensors()[0].name, "a");
  const TensorInfo* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, StoredDType::kBF16);
  EXPECT_EQ(b->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(b->file, 3);
  EXPECT_EQ(b->offset, 8 + header.size());
  const auto bytes = file->data(*b);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "0123456789ab");
  EXPECT_EQ(file->data(*file->find("none")).size(), 0U);
  EXPECT_EQ(file->data(*file->find("scalar")).size(), 2U);
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_EQ(file->header(), header);
}

TEST(SafetensorsFile, ToleratesGapsBetweenTensors) {
  const std::string header =
      "{" + entry("a", "U8", "[4]", "[2,6]") + "," + entry("b", "U8", "[4]", "[10,14]") + "}";
  const TempDirectory directory;
  directory.write("m.safetensors", safetensors_bytes(header, std::string(64, 'x')));
  EXPECT_TRUE(SafetensorsFile::open(directory.file("m.safetensors")));
}

TEST(SafetensorsFile, RefusesFilesThatAreNot) {
  EXPECT_THAT(open_error(""), HasSubstr("0 bytes are too short"));
  EXPECT_THAT(open_error("short"), HasSubstr("too short"));
  EXPECT_THAT(open_error(safetensors_bytes("{}", "", 3)), HasSubstr("reaches beyond the file"));
  EXPECT_THAT(open_error(safetensors_bytes("{}", "", ~0ULL)), HasSubstr("beyond the limit"));
  EXPECT_THAT(open_error(safetensors_bytes("{}", "", ~0ULL - 7)), HasSubstr("beyond the limit"));
  EXPECT_THAT(open_error(safetensors_bytes("{}", "", 200'000'000)), HasSubstr("beyond the limit"));
  EXPECT_THAT(open_error(safetensors_bytes("", "{}", 0)), HasSubstr("not valid JSON"));
  auto missing = SafetensorsFile::open("/nonexistent/m.safetensors");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST(SafetensorsFile, RefusesHeadersThatAreNotObjects) {
  EXPECT_THAT(header_error("[]"), HasSubstr("header is an array; expected an object"));
  EXPECT_THAT(header_error("7"), HasSubstr("header is a number"));
  EXPECT_THAT(header_error("null"), HasSubstr("header is null"));
  EXPECT_THAT(header_error("\"x\""), HasSubstr("header is a string"));
  EXPECT_THAT(header_error("{\"a\":1}"), HasSubstr("tensor \"a\": is a number"));
  EXPECT_THAT(header_error("{\"a\":[]}"), HasSubstr("tensor \"a\": is an array"));
  EXPECT_THAT(header_error("{"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(header_error("{} x"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(header_error("{\"\xff\":{}}"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(header_error(std::string("{}\0garbage", 10)), HasSubstr("NUL"));
  EXPECT_THAT(header_error("{\"a\":" + std::string(100000, '[')), HasSubstr("is an array"));
  EXPECT_THAT(header_error("{\"__metadata__\":[1]}"), HasSubstr("__metadata__ holds an array"));
  EXPECT_THAT(header_error("{\"__metadata__\":{\"a\":1}}"), HasSubstr("__metadata__ holds"));
  EXPECT_THAT(header_error("{\"__metadata__\":{},\"__metadata__\":{}}"), HasSubstr("given twice"));
}

TEST(SafetensorsFile, RefusesWrongFields) {
  EXPECT_THAT(
      header_error("{" + entry("w", "BF17", "[1]", "[0,2]") + "}"),
      HasSubstr("tensor \"w\": unknown dtype \"BF17\"; expected F32, F16, BF16 or F8_E4M3"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "7", "[0,4]") + "}"), HasSubstr("shape holds"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[-1]", "[0,4]") + "}"),
              HasSubstr("tensor \"w\": negative number -1"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[1.5]", "[0,4]") + "}"),
              HasSubstr("where a whole number"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[1e3]", "[0,4]") + "}"),
              HasSubstr("where a whole number"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[99999999999999999999]", "[0,4]") + "}"),
              HasSubstr("where a whole number"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[18446744073709551615]", "[0,4]") + "}"),
              HasSubstr("beyond 63 bits"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[[1]]", "[0,4]") + "}"),
              HasSubstr("shape holds an array"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[1]", "[0]") + "}"),
              HasSubstr("data_offsets must be two numbers"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[1]", "[0,4,8]") + "}"),
              HasSubstr("more than two numbers"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[1]", "{}") + "}"),
              HasSubstr("data_offsets holds an object"));
  EXPECT_THAT(header_error(R"({"w":{"dtype":"F32","shape":[1]}})"),
              HasSubstr("data_offsets is missing"));
  EXPECT_THAT(header_error(R"({"w":{"dtype":7}})"), HasSubstr("dtype is a number"));
  EXPECT_THAT(header_error(R"({"w":{"dtype":"F32","dtype":"F32"}})"),
              HasSubstr("dtype is given twice"));
  EXPECT_THAT(header_error(R"({"w":{"strides":[1]}})"), HasSubstr("unknown field \"strides\""));
  EXPECT_THAT(header_error(R"({"":{}})"), HasSubstr("empty name"));
  std::string ones = "1";
  for (int i = 0; i < 16; ++i) ones += ",1";
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[" + ones + "]", "[0,4]") + "}"),
              HasSubstr("more than 16 dimensions"));
}

TEST(SafetensorsFile, RefusesRangesThatLie) {
  EXPECT_THAT(
      header_error("{" + entry("w", "F32", "[17]", "[0,68]") + "}"),
      HasSubstr("data_offsets [0, 68] lie outside the 64 bytes of data; was the file or its "
                "download cut off?"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[1]", "[8,4]") + "}"), HasSubstr("outside"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[1]", "[18446744073709551612,0]") + "}"),
              HasSubstr("outside"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[2]", "[0,4]") + "}"),
              HasSubstr("span 4 bytes, but shape [2] of F32 takes 8"));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[4294967296,4294967296]", "[0,0]") + "}"),
              HasSubstr("takes more than 2^63"));
  EXPECT_THAT(header_error("{" + entry("w", "F64", "[9223372036854775807]", "[0,8]") + "}"),
              HasSubstr("takes more than 2^63"));
  EXPECT_THAT(header_error("{" + entry("v", "F32", "[2]", "[0,8]") + "," +
                           entry("w", "F32", "[2]", "[4,12]") + "}"),
              HasSubstr("tensor \"w\": its bytes overlap those of tensor \"v\""));
  EXPECT_THAT(header_error("{" + entry("w", "F32", "[1]", "[0,4]") + "," +
                           entry("w", "F32", "[1]", "[4,8]") + "}"),
              HasSubstr("tensor \"w\": is given twice"));
}

TEST(SafetensorsFile, NamesAPointerOfGitLfs) {
  const TempDirectory directory;
  directory.write("m.safetensors",
                  "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 988097824\n");
  const auto file = SafetensorsFile::open(directory.file("m.safetensors"));
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("m.safetensors: is a Git LFS pointer"));
}

TEST(SafetensorsFile, EmptyTensorsMayHaveHugeDimensions) {
  const std::string header =
      "{" + entry("w", "F32", "[9223372036854775807,9223372036854775807,0]", "[0,0]") + "}";
  const TempDirectory directory;
  directory.write("m.safetensors", safetensors_bytes(header, ""));
  EXPECT_TRUE(SafetensorsFile::open(directory.file("m.safetensors")));
}

TEST(WeightDType, TakesFloatsAndRefusesOthersByName) {
  TensorInfo tensor;
  tensor.name = "w";
  for (const auto& [stored, dtype] :
       {std::pair(StoredDType::kF32, DType::kF32), std::pair(StoredDType::kF16, DType::kF16),
        std::pair(StoredDType::kBF16, DType::kBF16),
        std::pair(StoredDType::kF8E4M3, DType::kF8E4M3)}) {
    tensor.dtype = stored;
    EXPECT_EQ(*weight_dtype(tensor), dtype);
  }
  tensor.dtype = StoredDType::kF8E5M2;
  const auto refused = weight_dtype(tensor);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("\"w\": dtype F8_E5M2 is not supported"));
}

TEST(QuoteText, EscapesAndCuts) {
  EXPECT_EQ(quote_text("a\"b\\c\n"), "\"a\\\"b\\\\c\\x0a\"");
  EXPECT_EQ(quote_text(std::string(121, 'a')), "\"" + std::string(120, 'a') + "...\"");
  // Never half a character: 119 letters and a two-byte one that would be cut in the middle.
  EXPECT_EQ(quote_text(std::string(119, 'a') + "\xc3\xa9"), "\"" + std::string(119, 'a') + "...\"");
}

}  // namespace
}  // namespace sluice
