// Byte strings in units: against a simple model, with every byte that can be damaged.
#include "offload/unit_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

using UnitBytes = std::vector<std::byte>;

UnitBytes some_bytes(SplitMix64& random, std::size_t count) {
  UnitBytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

std::unique_ptr<UnitStore> make_store(std::int64_t bytes, std::int64_t unit, std::int32_t pages) {
  auto store = UnitStore::create(bytes, unit, pages);
  EXPECT_TRUE(store);
  return *std::move(store);
}

TEST(UnitStore, RefusesMemoryWithoutRoom) {
  EXPECT_EQ(UnitStore::create(63, 64, 4).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(UnitStore::create(64, 64, 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(UnitStore::create(std::int64_t{1} << 62, std::int64_t{1} << 40, 4).error().code,
            ErrorCode::kResourceExhausted);
}

TEST(UnitStore, AStringLargerThanTheMemoryIsRefusedAndThePageIsEmpty) {
  const auto store = make_store(256, 64, 4);
  std::vector<std::int32_t> dropped;
  SplitMix64 random(1);
  ASSERT_TRUE(store->put(1, some_bytes(random, 200), dropped));
  EXPECT_EQ(store->put(1, some_bytes(random, 257), dropped).error().code,
            ErrorCode::kResourceExhausted);
  UnitBytes out(300);
  EXPECT_EQ(store->get(1, out).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store->held_bytes(), 0);
}

TEST(UnitStore, KeptStringsMakeNoRoomUntilTheyAreReleased) {
  const auto store = make_store(256, 64, 8);
  std::vector<std::int32_t> dropped;
  SplitMix64 random(3);
  const UnitBytes first = some_bytes(random, 64);
  store->keep(0);
  ASSERT_TRUE(store->put(0, first, dropped));
  ASSERT_TRUE(store->put(1, some_bytes(random, 64), dropped));
  store->keep(1);
  store->touch(1);
  for (std::int32_t page = 2; page < 8; ++page) {
    ASSERT_TRUE(store->put(page, some_bytes(random, 64), dropped));
  }
  EXPECT_EQ(dropped, (std::vector<std::int32_t>{2, 3, 4, 5}));
  UnitBytes out(256);
  EXPECT_TRUE(store->get(0, out));
  EXPECT_EQ(store->put(7, some_bytes(random, 200), dropped).error().code,
            ErrorCode::kResourceExhausted)
      << "two of the four units are kept";
  store->release(0);
  store->release(1);
  dropped.clear();
  EXPECT_TRUE(store->put(7, some_bytes(random, 200), dropped));
  EXPECT_EQ(dropped, (std::vector<std::int32_t>{0, 1})) << "in the order of release";
  store->keep(7);
  store->clear(dropped);
  EXPECT_EQ(dropped.back(), 7);
}

TEST(UnitStore, EveryDamagedByteIsNoticed) {
  const auto store = make_store(1024, 64, 4);
  std::vector<std::int32_t> dropped;
  SplitMix64 random(2);
  const UnitBytes first = some_bytes(random, 300);
  const UnitBytes second = some_bytes(random, 640);
  ASSERT_TRUE(store->put(0, first, dropped));
  ASSERT_TRUE(store->put(1, second, dropped));
  UnitBytes out(1024);
  std::size_t damaged = 0;
  for (std::byte& byte : store->memory()) {
    byte ^= std::byte{0x10};
    for (const std::int32_t page : {0, 1}) {
      const auto got = store->get(page, out);
      if (got) continue;
      ++damaged;
      EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
    }
    byte ^= std::byte{0x10};
  }
  EXPECT_EQ(damaged, first.size() + second.size());
  EXPECT_EQ(store->get(0, out).value(), first.size());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), out.begin()));
}

TEST(UnitStore, GivesItsMemoryBack) {
  const auto store = make_store(1024, 64, 4);
  std::vector<std::int32_t> dropped;
  SplitMix64 random(3);
  ASSERT_TRUE(store->put(0, some_bytes(random, 100), dropped));
  store->clear(dropped);
  EXPECT_EQ(dropped, std::vector<std::int32_t>{0});
  EXPECT_EQ(store->held_bytes(), 0);
  EXPECT_TRUE(store->memory().empty());
  UnitBytes out(100);
  EXPECT_EQ(store->get(0, out).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store->put(0, out, dropped).error().code, ErrorCode::kResourceExhausted);
  store->touch(0);
  store->erase(0);
}

// The strings that fit, by time of use, as the header promises them.
class StoreModel {
 public:
  StoreModel(std::int64_t units, std::int64_t unit) : units_(units), unit_(unit) {}
  // Returns the pages that made room.
  std::vector<std::int32_t> put(std::int32_t page, const UnitBytes& bytes) {
    erase(page);
    std::vector<std::int32_t> dropped;
    const std::int64_t wanted = units_of(bytes);
    while (units_ - held() < wanted) {
      dropped.push_back(by_use_.front());
      erase(dropped.back());
    }
    strings_[page] = bytes;
    by_use_.push_back(page);
    return dropped;
  }
  void touch(std::int32_t page) {
    if (!strings_.contains(page)) return;
    by_use_.remove(page);
    by_use_.push_back(page);
  }
  void erase(std::int32_t page) {
    strings_.erase(page);
    by_use_.remove(page);
  }
  std::int64_t held() const {
    std::int64_t sum = 0;
    for (const auto& [page, bytes] : strings_) sum += units_of(bytes);
    return sum;
  }
  const UnitBytes* find(std::int32_t page) const {
    const auto found = strings_.find(page);
    return found == strings_.end() ? nullptr : &found->second;
  }

 private:
  std::int64_t units_of(const UnitBytes& bytes) const {
    return std::max<std::int64_t>((static_cast<std::int64_t>(bytes.size()) + unit_ - 1) / unit_, 1);
  }
  std::int64_t units_;
  std::int64_t unit_;
  std::map<std::int32_t, UnitBytes> strings_;
  std::list<std::int32_t> by_use_;
};

TEST(UnitStore, EqualsAModelUnderRandomUse) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SplitMix64 random(seed);
    const auto unit = static_cast<std::int64_t>(16 << random.below(3));
    const auto units = static_cast<std::int64_t>(8 + random.below(60));
    const auto store =
        make_store(unit * units + static_cast<std::int64_t>(random.below(16)), unit, 24);
    StoreModel model(units, unit);
    UnitBytes out(static_cast<std::size_t>(unit * units));
    std::vector<std::int32_t> dropped;
    for (int step = 0; step < 3000; ++step) {
      const auto page = static_cast<std::int32_t>(random.below(24));
      switch (random.below(4)) {
        case 0:
        case 1: {
          const UnitBytes bytes =
              some_bytes(random, random.below(static_cast<std::uint64_t>(unit) * 8));
          dropped.clear();
          ASSERT_TRUE(store->put(page, bytes, dropped));
          ASSERT_EQ(dropped, model.put(page, bytes)) << seed << " " << step;
          break;
        }
        case 2:
          store->touch(page);
          model.touch(page);
          break;
        default:
          store->erase(page);
          model.erase(page);
          break;
      }
      ASSERT_EQ(store->held_bytes(), model.held() * unit) << seed << " " << step;
      const auto other = static_cast<std::int32_t>(random.below(24));
      const auto got = store->get(other, out);
      const UnitBytes* const wanted = model.find(other);
      ASSERT_EQ(got.has_value(), wanted != nullptr) << seed << " " << step;
      if (wanted == nullptr) continue;
      ASSERT_EQ(*got, wanted->size());
      ASSERT_TRUE(std::equal(wanted->begin(), wanted->end(), out.begin()));
    }
  }
}

}  // namespace
}  // namespace sluice
