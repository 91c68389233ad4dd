#include "device/op_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/op_fields.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// A forward of a few ops for any capacity, in arenas of one layout at different bases.
class OpImageTest : public testing::Test {
 protected:
  Arena make_arena(std::size_t table_bytes = 4096, const std::string& out = "m/out") {
    ArenaPlan plan;
    plan.add(RegionKind::kWeights, "m/table", table_bytes);
    plan.add(RegionKind::kInputs, "m/ids", 256);
    plan.add(RegionKind::kWorkspace, out, 1024);
    plan.finish(device_->traits().granularity);
    auto arena = Arena::create(*device_, std::move(plan));
    EXPECT_TRUE(arena);
    return *std::move(arena);
  }
  static OpList forward(const Arena& arena, std::int32_t capacity) {
    EmbedParams embed;
    embed.table = matrix_view(arena.address(RegionKind::kWeights, "m/table"), DType::kF32, 4, 8);
    embed.token_ids = reinterpret_cast<std::int32_t*>(arena.address(RegionKind::kInputs, "m/ids"));
    embed.out =
        matrix_view(arena.address(RegionKind::kWorkspace, "m/out"), DType::kF32, capacity, 8);
    embed.rows.capacity = capacity;
    OpList list;
    list.append(embed);
    for (int layer = 0; layer < 3; ++layer) {
      RmsNormParams norm;
      norm.residual = embed.out;
      norm.weight = vector_view(arena.address(RegionKind::kWeights, "m/table") + 256 * (layer + 1),
                                DType::kF32, 8);
      norm.out = embed.out;
      norm.epsilon = 1e-5F;
      norm.rows = embed.rows;
      list.append(norm);
    }
    return list;
  }
  static std::vector<OpList> forwards(const Arena& arena) {
    std::vector<OpList> lists;
    for (const int capacity : {1, 2, 4, 8}) lists.push_back(forward(arena, capacity));
    return lists;
  }
  static std::vector<std::byte> encode(const std::vector<OpList>& lists, const Arena& arena) {
    std::vector<const OpList*> pointers;
    for (const OpList& list : lists) pointers.push_back(&list);
    auto image = encode_op_lists(pointers, arena);
    EXPECT_TRUE(image) << image.error().message;
    return *std::move(image);
  }
  static std::string decode_error(std::span<const std::byte> image, const Arena& arena) {
    const auto lists = decode_op_lists(image, arena);
    return lists ? "decoded" : lists.error().message;
  }

  ThreadPool pool_{1};
  std::unique_ptr<Device> device_ = *make_cpu_device({&pool_, 0, {}});
  Arena arena_ = make_arena();
};

TEST_F(OpImageTest, GivesTheListsOfTheArenaThatItIsDecodedFor) {
  const Arena other = make_arena();
  ASSERT_NE(arena_.region_base(RegionKind::kWeights), other.region_base(RegionKind::kWeights));
  const std::vector<std::byte> image = encode(forwards(arena_), arena_);
  for (const Arena* arena : std::initializer_list<const Arena*>{&arena_, &other}) {
    const auto lists = decode_op_lists(image, *arena);
    ASSERT_TRUE(lists) << lists.error().message;
    const std::vector<OpList> expected = forwards(*arena);
    ASSERT_EQ(lists->size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(first_difference((*lists)[i], expected[i]), "");
    }
  }
  EXPECT_EQ(encode(forwards(other), other), image) << "no address is in the image";
}

TEST_F(OpImageTest, ListsOfMoreCapacitiesTakeFewBytes) {
  std::vector<OpList> lists;
  for (int capacity = 1; capacity <= 32; ++capacity) lists.push_back(forward(arena_, capacity));
  const std::size_t one = encode({lists.front()}, arena_).size();
  const std::size_t all = encode(lists, arena_).size();
  EXPECT_LT(all - one, 31 * 4 * 12U) << "12 bytes an op";
}

TEST_F(OpImageTest, APointerWithoutANameCannotBeStored) {
  std::int32_t elsewhere = 0;
  EmbedParams embed;
  embed.token_ids = &elsewhere;
  OpList list;
  list.append(embed);
  const OpList* const lists[] = {&list};
  const auto image = encode_op_lists(lists, arena_);
  ASSERT_FALSE(image);
  EXPECT_THAT(image.error().message, HasSubstr("op 0 (embed): token_ids"));
}

TEST_F(OpImageTest, RefusesWhatLiesOutsideOfItsBuffer) {
  const std::vector<std::byte> image = encode(forwards(arena_), arena_);
  EXPECT_THAT(decode_error(image, make_arena(4096, "m/other")), HasSubstr("no buffer 'm/out'"));
  EXPECT_THAT(decode_error(image, make_arena(300)), HasSubstr("list 0: op 2 (rms_norm)"));
  EXPECT_THAT(decode_error(image, make_arena(780)), HasSubstr("ends behind its buffer"));
}

TEST_F(OpImageTest, TruncatedImagesAreRefused) {
  const std::vector<std::byte> image = encode(forwards(arena_), arena_);
  for (std::size_t length = 0; length < image.size(); ++length) {
    EXPECT_NE(decode_error(std::span(image).first(length), arena_), "decoded") << length;
  }
  std::vector<std::byte> longer = image;
  longer.push_back(std::byte{0});
  EXPECT_THAT(decode_error(longer, arena_), HasSubstr("behind the last list"));
}

TEST_F(OpImageTest, AChangedByteIsRefusedOrGivesOtherLists) {
  const std::vector<OpList> expected = forwards(arena_);
  std::vector<std::byte> image = encode(expected, arena_);
  for (std::size_t i = 0; i < image.size(); ++i) {
    for (const std::byte flip : {std::byte{1}, std::byte{0x40}, std::byte{0xff}}) {
      image[i] ^= flip;
      const auto lists = decode_op_lists(image, arena_);
      EXPECT_FALSE(lists && *lists == expected) << i;
      image[i] ^= flip;
    }
  }
}

TEST_F(OpImageTest, KnowsTheTensorsOfEachOp) {
  EXPECT_EQ(op_tensors(EmbedParams::kOp).size(), 2U);
  EXPECT_EQ(op_tensors(EmbedParams::kOp)[1], offsetof(EmbedParams, out));
  EXPECT_EQ(op_tensors(OpId{}).size(), 0U);
}

}  // namespace
}  // namespace sluice
