#include "checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_files.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string gguf_error(std::string_view bytes) {
  const TempDirectory directory;
  directory.write("m.gguf", bytes);
  auto file = GgufFile::open(directory.file("m.gguf"));
  if (file) return "no error";
  EXPECT_THAT(file.error().message, HasSubstr(directory.file("m.gguf")));
  return file.error().message;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file with values of several kinds and two tensors.
GgufBuilder sample() {
  GgufBuilder builder;
  builder.text("general.architecture", "llama")
      .u32("llama.block_count", 2)
      .f32("llama.rope.freq_base", 1e4F)
      .value("tokenizer.ggml.add_bos_token", GgufValueType::kBool, "\1")
      .value("negative", GgufValueType::kI8, "\xFF")
      .value("large", GgufValueType::kU64, gguf_number(~std::uint64_t{0}))
      .texts("tokens", {"a", "", "bcd"})
      .array("types", GgufValueType::kI16, 2,
             gguf_number(std::int16_t{-3}) + std::string("\7\0", 2))
      .array("scores", GgufValueType::kF32, 1, gguf_number(0.5F))
      .array("none", GgufValueType::kText, 0, "")
      .tensor("b", {3, 2}, GgufTensorType::kF32, "012345678901234567890123")
      .tensor("a", {64, 1, 2}, GgufTensorType::kQ4_0, std::string(72, 'q'));
  return builder;
}

TEST(Gguf, ReadsMetadata) {
  const std::string bytes = sample().bytes();
  const auto header = parse_gguf(std::as_bytes(std::span(bytes)), 0);
  ASSERT_TRUE(header) << header.error().message;
  const GgufMetadata& metadata = header->metadata;
  EXPECT_EQ(metadata.entries().size(), 10U);
  EXPECT_EQ(**metadata.text("general.architecture"), "llama");
  EXPECT_EQ(**metadata.whole_number("llama.block_count"), 2U);
  EXPECT_EQ(**metadata.whole_number("large"), ~std::uint64_t{0});
  EXPECT_EQ(**metadata.real_number("llama.rope.freq_base"), 1e4);
  EXPECT_TRUE(**metadata.flag("tokenizer.ggml.add_bos_token"));
  EXPECT_THAT(**metadata.texts("tokens"), ElementsAre("a", "", "bcd"));
  EXPECT_THAT(**metadata.integers("types"), ElementsAre(-3, 7));
  EXPECT_THAT(**metadata.real_numbers("scores"), ElementsAre(0.5));
  EXPECT_TRUE((*metadata.texts("none"))->empty());
  EXPECT_FALSE(metadata.text("absent")->has_value());
  EXPECT_FALSE(metadata.integers("absent")->has_value());

  EXPECT_THAT(metadata.whole_number("negative").error().message,
              HasSubstr("metadata \"negative\": is -1; expected a number of at least 0"));
  EXPECT_THAT(metadata.whole_number("tokens").error().message,
              HasSubstr("metadata \"tokens\": is an array of text; expected a whole number"));
  EXPECT_THAT(metadata.real_number("llama.block_count").error().message, HasSubstr("is U32"));
  EXPECT_THAT(metadata.flag("negative").error().message, HasSubstr("expected a bool"));
  EXPECT_THAT(metadata.text("large").error().message, HasSubstr("is U64; expected a text"));
  EXPECT_THAT(metadata.texts("types").error().message, HasSubstr("expected an array of texts"));
  EXPECT_THAT(metadata.integers("scores").error().message, HasSubstr("an array of integers"));
  EXPECT_THAT(metadata.real_numbers("types").error().message, HasSubstr("an array of F32"));
}

TEST(Gguf, ReadsTensors) {
  const TempDirectory directory;
  const std::string bytes = sample().bytes();
  directory.write("m.gguf", bytes);
  auto file = GgufFile::open(directory.file("m.gguf"), 3);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 2U);
  const GgufTensor& a = file->tensors()[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(gguf_tensor_type_name(a.type), "Q4_0");
  EXPECT_THAT(a.shape, ElementsAre(2, 1, 64));
  EXPECT_EQ(a.file, 3);
  EXPECT_EQ(text_of(file->data(a)), std::string(72, 'q'));
  EXPECT_EQ(a.offset % 32, 0U);
  const GgufTensor& b = file->tensors()[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(text_of(file->data(b)), "012345678901234567890123");
  EXPECT_EQ(file->size(), bytes.size());
  EXPECT_GE(file->file().fd(), 0);
}

TEST(Gguf, FollowsTheAlignmentOfTheFile) {
  GgufBuilder builder;
  builder.alignment = 128;
  builder.u32("general.alignment", 128)
      .tensor("a", {1}, GgufTensorType::kF16, "xy")
      .tensor("b", {1}, GgufTensorType::kF16, "zw");
  const TempDirectory directory;
  directory.write("m.gguf", builder.bytes());
  auto file = GgufFile::open(directory.file("m.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(text_of(file->data(file->tensors()[0])), "xy");
  EXPECT_EQ(text_of(file->data(file->tensors()[1])), "zw");
  EXPECT_EQ(file->tensors()[0].offset % 128, 0U);
  EXPECT_THAT(gguf_error(GgufBuilder().u32("general.alignment", 24).bytes()),
              HasSubstr("metadata \"general.alignment\": is 24; expected a power of two"));
  EXPECT_THAT(gguf_error(GgufBuilder().u32("general.alignment", 0).bytes()), HasSubstr("is 0"));
}

// Every cut of the header, and of the data, is an error: nothing reads beyond the bytes.
TEST(Gguf, RefusesTruncatedFiles) {
  const std::string bytes = sample().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const auto header = parse_gguf(std::as_bytes(std::span(cut)), 0);
    ASSERT_FALSE(header) << size;
  }
  EXPECT_THAT(gguf_error(bytes.substr(0, bytes.size() - 1)),
              HasSubstr("tensor \"a\": 72 bytes from 32 lie outside the 103 bytes of data"));
  EXPECT_THAT(gguf_error(bytes.substr(0, 60)),
              HasSubstr("metadata \"general.architecture\": text reaches beyond the end"));
}

TEST(Gguf, RefusesFilesThatAreNot) {
  EXPECT_THAT(gguf_error(""), HasSubstr("not a GGUF file"));
  EXPECT_THAT(gguf_error("{\"a\": 1}"), HasSubstr("not a GGUF file"));
  EXPECT_THAT(gguf_error("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("git lfs pull"));
  GgufBuilder builder;
  builder.version = 1;
  EXPECT_THAT(gguf_error(builder.bytes()), HasSubstr("version 1 is not supported"));
  builder.version = 0x03000000;
  EXPECT_THAT(gguf_error(builder.bytes()), HasSubstr("big-endian"));
  EXPECT_THAT(gguf_error(GgufBuilder().bytes(2'000'000, 0)), HasSubstr("tensor count 2000000"));
  EXPECT_THAT(gguf_error(GgufBuilder().bytes(0, ~std::uint64_t{0})), HasSubstr("metadata count"));
  EXPECT_THAT(gguf_error(GgufBuilder().bytes(7, 0)), HasSubstr("tensor 1 of 7"));
}

TEST(Gguf, RefusesWrongMetadata) {
  const auto error = [](GgufValueType type, std::string_view raw) {
    return gguf_error(GgufBuilder().value("k", type, raw).bytes());
  };
  const auto huge = gguf_number(std::uint64_t{1} << 62);
  const std::string u64 = gguf_number(static_cast<std::uint32_t>(GgufValueType::kU64));
  const std::string array = gguf_number(static_cast<std::uint32_t>(GgufValueType::kArray));
  EXPECT_THAT(error(static_cast<GgufValueType>(13), ""),
              HasSubstr("metadata \"k\": unknown type 13"));
  EXPECT_THAT(error(GgufValueType::kText, huge), HasSubstr("\"k\": text reaches beyond"));
  EXPECT_THAT(error(GgufValueType::kText, gguf_number(~std::uint64_t{0})), HasSubstr("beyond"));
  EXPECT_THAT(error(GgufValueType::kArray, u64 + huge), HasSubstr("\"k\": value reaches beyond"));
  EXPECT_THAT(error(GgufValueType::kArray, array + huge), HasSubstr("array of arrays"));
  EXPECT_THAT(error(GgufValueType::kBool, "\2"), HasSubstr("bool with the byte 2"));
  EXPECT_THAT(gguf_error(GgufBuilder().u32("", 1).bytes()), HasSubstr("is 0 bytes long"));
  EXPECT_THAT(gguf_error(GgufBuilder().u32("k", 1).u32("k", 1).bytes()),
              HasSubstr("metadata \"k\": is given twice"));
}

TEST(Gguf, RefusesWrongTensors) {
  const auto error = [](const std::vector<std::uint64_t>& dims, std::uint32_t type,
                        std::uint64_t offset) {
    GgufBuilder builder;
    builder.tensor("full", {16}, GgufTensorType::kF32, std::string(64, 'x'));
    return gguf_error(builder.tensor_at("w", dims, type, offset).bytes());
  };
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 62;
  EXPECT_THAT(error({}, 0, 0), HasSubstr("tensor \"w\": rank 0; expected 1 to 4"));
  EXPECT_THAT(error({1, 1, 1, 1, 1}, 0, 0), HasSubstr("rank 5"));
  EXPECT_THAT(error({0}, 0, 0), HasSubstr("dimension 0"));
  EXPECT_THAT(error({~std::uint64_t{0}}, 0, 0), HasSubstr("dimension 18446744073709551615"));
  EXPECT_THAT(error({1}, 4, 0), HasSubstr("type 4 is not known; expected F32"));
  EXPECT_THAT(error({48}, 2, 0), HasSubstr("rows of 48 elements are no multiple of a Q4_0 block"));
  EXPECT_THAT(error({kLarge}, 0, 0), HasSubstr("takes more than 2^63 bytes"));
  EXPECT_THAT(error({32, kLarge, 4}, 8, 0), HasSubstr("takes more than 2^63 bytes"));
  EXPECT_THAT(error({1}, 0, 8), HasSubstr("offset 8 is no multiple of 32"));
  EXPECT_THAT(error({16}, 0, 32), HasSubstr("64 bytes from 32 lie outside the 64 bytes of data"));
  EXPECT_THAT(error({1}, 0, kLarge), HasSubstr("lie outside"));
  EXPECT_THAT(error({1}, 0, 32),
              HasSubstr("tensor \"w\": its bytes overlap those of tensor \"full\""));
  EXPECT_THAT(gguf_error(GgufBuilder()
                             .tensor("w", {1}, GgufTensorType::kF32, "abcd")
                             .tensor("w", {1}, GgufTensorType::kF32, "abcd")
                             .bytes()),
              HasSubstr("tensor \"w\": is given twice"));
  EXPECT_THAT(gguf_error(GgufBuilder().tensor_at(std::string(65, 'n'), {1}, 0, 0).bytes()),
              HasSubstr("name of 65 bytes"));
}

// The part `number` of 2, with one tensor.
std::string part(std::uint16_t number, std::string_view tensor, std::string_view bytes,
                 std::int32_t total = 2) {
  return GgufBuilder()
      .value("split.no", GgufValueType::kU16, gguf_number(number))
      .value("split.count", GgufValueType::kU16, gguf_number(std::uint16_t{2}))
      .value("split.tensors.count", GgufValueType::kI32, gguf_number(total))
      .tensor(tensor, {1}, GgufTensorType::kF32, bytes)
      .bytes();
}

TEST(GgufModel, OpensAllPartsOfAModel) {
  const TempDirectory directory;
  directory.write("m-00001-of-00002.gguf", part(0, "b", "0000"));
  directory.write("m-00002-of-00002.gguf", part(1, "a", "1111"));
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    auto model = GgufModel::open(directory.file(name));
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->files().size(), 2U);
    EXPECT_EQ(**model->metadata().whole_number("split.no"), 0U);
    ASSERT_EQ(model->tensors().size(), 2U);
    EXPECT_EQ(text_of(model->data(*model->find("a"))), "1111");
    EXPECT_EQ(text_of(model->data(*model->find("b"))), "0000");
    EXPECT_EQ(model->find("c"), nullptr);
  }
  directory.write("one.gguf", sample().bytes());
  auto one = GgufModel::open(directory.file("one.gguf"));
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->tensors().size(), 2U);
}

TEST(GgufModel, RefusesPartsThatDoNotFit) {
  const auto error = [](std::string_view name, std::string_view first, std::string_view second) {
    const TempDirectory directory;
    directory.write(name, first);
    if (!second.empty()) directory.write("m-00002-of-00002.gguf", second);
    auto model = GgufModel::open(directory.file(name));
    return model ? std::string("no error") : model.error().message;
  };
  const std::string first = "m-00001-of-00002.gguf";
  EXPECT_THAT(error(first, part(0, "a", "0000"), ""), HasSubstr("m-00002-of-00002.gguf"));
  EXPECT_THAT(error("m.gguf", part(0, "a", "0000"), ""),
              HasSubstr("part 1 of 2, so that its name must end in -00001-of-00002.gguf"));
  EXPECT_THAT(error(first, part(0, "a", "0000"), part(0, "b", "1111")),
              HasSubstr("its metadata says part 1 of 2, its name part 2 of 2"));
  EXPECT_THAT(error(first, part(0, "a", "0000"), part(1, "a", "1111")),
              HasSubstr("tensor \"a\": another part holds it too"));
  EXPECT_THAT(error(first, part(0, "a", "0000", 3), part(1, "b", "1111")),
              HasSubstr("\"split.tensors.count\" is 3, but the parts hold 2 tensors"));
  EXPECT_THAT(error(first, part(2, "a", "0000"), ""), HasSubstr("\"split.no\": expected a number"));
}

}  // namespace
}  // namespace sluice
