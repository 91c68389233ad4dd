// Iterators over the built-in types.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat_template/object.h"
#include "chat_template/value.h"

namespace sluice::jinja {

class ItemsIterator final : public Iterator {
 public:
  ItemsIterator(std::span<const Value> items, std::string_view type_name)
      : Iterator(type_name), items_(items) {}
  Result<bool> next(Interpreter& interpreter, Value* out) override;

 private:
  std::span<const Value> items_;
  std::size_t next_ = 0;
};

// The code points of a string.
class TextIterator final : public Iterator {
 public:
  explicit TextIterator(std::string_view text) : Iterator("str_iterator"), text_(text) {}
  Result<bool> next(Interpreter& interpreter, Value* out) override;

 private:
  std::string_view text_;
  std::size_t next_ = 0;
};

class RangeIterator final : public Iterator {
 public:
  explicit RangeIterator(const Range& range) : Iterator("range_iterator"), range_(range) {}
  Result<bool> next(Interpreter& interpreter, Value* out) override;

 private:
  const Range& range_;
  std::int64_t next_ = 0;
};

class DictIterator final : public Iterator {
 public:
  DictIterator(const Dict& dict, DictView::Part part, std::string_view type_name)
      : Iterator(type_name), dict_(dict), part_(part) {}
  Result<bool> next(Interpreter& interpreter, Value* out) override;

 private:
  const Dict& dict_;
  DictView::Part part_;
  std::size_t next_ = 0;
};

// A generator made of a function that gives the next value or false at the end.
class Generator final : public Iterator {
 public:
  using Next = std::function<Result<bool>(Interpreter&, Value*)>;
  explicit Generator(Next next) : Iterator("generator"), next_(std::move(next)) {}
  Result<bool> next(Interpreter& interpreter, Value* out) override;

 private:
  Next next_;
};

}  // namespace sluice::jinja
