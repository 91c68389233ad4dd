// Heap: the memory and the budget of one rendering, one parsed template or one JSON text. All
// memory is freed with the heap, so values need no reference counts and cycles cannot leak. The
// budget is cumulative and sticky: once `exceeded()` is set, every builder stops growing, and the
// interpreter reports the error at its next step. Owned by one thread while it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/stop_check.h"
#include "chat_template/object.h"
#include "chat_template/value.h"

namespace sluice::jinja {

class Heap {
 public:
  // max_bytes: text and containers created in all; max_steps: units of work in all.
  // `stop` is called as steps are spent; may be null.
  Heap(std::size_t max_bytes, std::uint64_t max_steps, const StopCheck* stop = nullptr)
      : bytes_left_(max_bytes), steps_left_(max_steps), meter_(stop) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Counts work: one step is about one evaluated node, or 64 bytes of scanned text.
  void step(std::uint64_t steps = 1) {
    if (steps > steps_left_) {
      steps_left_ = 0;
      set_exceeded("the limit of steps");
      return;
    }
    steps_left_ -= steps;
    if (Status going_on = meter_.spend(steps); !going_on) stop(std::move(going_on).error());
  }
  void scan(std::size_t bytes) { step(1 + bytes / 64); }
  // Counts bytes about to be created; false (and sticky) when they are too many.
  bool charge(std::size_t bytes);
  bool can_afford(std::size_t bytes) const { return bytes <= bytes_left_; }
  // Names the limit that was passed; empty within the limits.
  std::string_view exceeded() const { return exceeded_; }
  void set_exceeded(std::string_view which) {
    if (exceeded_.empty()) exceeded_ = which;
  }
  // The stop check's error, when that is what ended the work.
  const std::optional<Error>& stopped() const { return stopped_; }

  // Copies text into the heap. Past the budget the result is empty.
  std::string_view store(std::string_view text);
  Value make_string(std::string_view text, StringFlavor flavor = StringFlavor::kPlain) {
    return Value::string(store(text), flavor);
  }
  Value make_list(std::span<const Value> items) { return Value::list(store_values(items)); }
  Value make_tuple(std::span<const Value> items) { return Value::tuple(store_values(items)); }
  // Later entries of an equal key replace the value and keep the place of the first.
  // REQUIRES: every key is hashable (ops.h).
  Value make_dict(std::span<const DictEntry> entries);
  Value make_undefined(const UndefinedInfo& info);

  template <class T, class... Args>
  T* make_object(Args&&... args) {
    charge(sizeof(T) + 16);
    auto owned = std::make_unique<T>(std::forward<Args>(args)...);
    T* raw = owned.get();
    objects_.push_back(std::move(owned));
    return raw;
  }

 private:
  std::span<const Value> store_values(std::span<const Value> items);
  void* allocate(std::size_t bytes);
  void stop(Error error) {
    if (!stopped_) stopped_ = std::move(error);
    set_exceeded("the time for it");
  }

  std::size_t bytes_left_;
  std::uint64_t steps_left_;
  std::string_view exceeded_;
  StopMeter meter_;
  std::optional<Error> stopped_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::byte* next_ = nullptr;
  std::size_t room_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

// Text under construction, within the heap's budget.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap) {}
  void append(std::string_view text) {
    if (reserve(text.size())) text_.append(text);
  }
  void append(std::size_t count, char c) {
    if (reserve(count)) text_.append(count, c);
  }
  std::string_view view() const { return text_; }
  Value finish(StringFlavor flavor = StringFlavor::kPlain) {
    return heap_.make_string(text_, flavor);
  }

 private:
  bool reserve(std::size_t more) {
    if (heap_.can_afford(text_.size() + more)) return true;
    heap_.set_exceeded("the limit of memory for values");
    return false;
  }

  Heap& heap_;
  std::string text_;
};

}  // namespace sluice::jinja
