#include "chat_template/heap.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>

#include "chat_template/ops.h"

namespace sluice::jinja {

namespace {

constexpr std::size_t kFirstChunk = 4096;
constexpr std::size_t kLargestChunk = 1 << 18;
// Below this number of entries a linear search is faster than hashing.
constexpr std::size_t kIndexFrom = 9;

}  // namespace

bool Heap::charge(std::size_t bytes) {
  if (bytes > bytes_left_) {
    set_exceeded("the limit of memory for values");
    return false;
  }
  bytes_left_ -= bytes;
  return true;
}

void* Heap::allocate(std::size_t bytes) {
  bytes = (bytes + 15) & ~std::size_t{15};
  if (bytes > room_) {
    const std::size_t grown =
        std::min(kLargestChunk, kFirstChunk << std::min<std::size_t>(chunks_.size(), 6));
    const std::size_t size = std::max(bytes, grown);
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    if (size > grown) return chunks_.back().get();  // its own chunk; keep filling the last one
    next_ = chunks_.back().get();
    room_ = size;
  }
  void* result = next_;
  next_ += bytes;
  room_ -= bytes;
  return result;
}

std::string_view Heap::store(std::string_view text) {
  if (text.empty() || !charge(text.size() + 16)) return "";
  auto* copy = static_cast<char*>(allocate(text.size()));
  std::memcpy(copy, text.data(), text.size());
  return {copy, text.size()};
}

std::span<const Value> Heap::store_values(std::span<const Value> items) {
  if (items.empty() || !charge(items.size_bytes() + 16)) return {};
  auto* copy = static_cast<Value*>(allocate(items.size_bytes()));
  std::uninitialized_copy(items.begin(), items.end(), copy);
  return {copy, items.size()};
}

Value Heap::make_undefined(const UndefinedInfo& info) {
  charge(sizeof(UndefinedInfo));
  return Value::undefined(new (allocate(sizeof(UndefinedInfo))) UndefinedInfo(info));
}

Value Heap::make_dict(std::span<const DictEntry> entries) {
  static const Dict kEmpty{};
  if (entries.empty()) return Value::dict(&kEmpty);
  const bool indexed = entries.size() >= kIndexFrom;
  std::size_t slots = 0;
  if (indexed) {
    slots = 16;
    while (slots < entries.size() * 2) slots *= 2;
  }
  step(entries.size());
  if (!charge(entries.size_bytes() + slots * sizeof(std::uint32_t) + sizeof(Dict) + 16)) {
    return Value::dict(&kEmpty);
  }
  auto* copy = static_cast<DictEntry*>(allocate(entries.size_bytes()));
  std::uint32_t* index = nullptr;
  if (indexed) {
    index = static_cast<std::uint32_t*>(allocate(slots * sizeof(std::uint32_t)));
    std::fill_n(index, slots, 0U);
  }
  std::uint32_t count = 0;
  for (const DictEntry& entry : entries) {
    std::uint32_t found = count;
    if (indexed) {
      std::size_t slot = hash_value(entry.key) & (slots - 1);
      while (index[slot] != 0 && !keys_equal(copy[index[slot] - 1].key, entry.key)) {
        slot = (slot + 1) & (slots - 1);
        step();  // so that the budget covers keys that collide
      }
      if (index[slot] != 0) {
        found = index[slot] - 1;
      } else {
        index[slot] = count + 1;
      }
    } else {
      for (std::uint32_t i = 0; i < count && found == count; ++i) {
        if (keys_equal(copy[i].key, entry.key)) found = i;
      }
    }
    if (found == count) {
      new (copy + count++) DictEntry(entry);
    } else {
      copy[found].value = entry.value;
    }
  }
  auto* dict = new (allocate(sizeof(Dict))) Dict();
  dict->entries = {copy, count};
  dict->index = {index, slots};
  return Value::dict(dict);
}

}  // namespace sluice::jinja
