#include "chat_template/json_value.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::jinja {

namespace {

constexpr std::size_t kMaxDepth = 150;

// Builds values directly from the parser's events, without a tree of the library.
class Builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  explicit Builder(Heap& heap) : heap_(heap) {}

  bool null() { return add(Value::none()); }
  bool boolean(bool b) { return add(Value::boolean(b)); }
  bool number_integer(number_integer_t i) { return add(Value::integer(i)); }
  bool number_unsigned(number_unsigned_t u) {
    if (u <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return add(Value::integer(static_cast<std::int64_t>(u)));
    }
    return add(Value::big_integer(heap_.store(std::to_string(u))));
  }
  bool number_float(number_float_t d, const string_t& text) {
    // The library reports integers beyond 64 bits as floats; their text has no point or exponent.
    if (text.find_first_of(".eE") == string_t::npos) {
      return add(Value::big_integer(heap_.store(text)));
    }
    return add(Value::real(d));
  }
  bool string(string_t& text) { return add(heap_.make_string(text)); }
  bool binary(binary_t&) { return false; }
  bool start_object(std::size_t) { return open(true); }
  bool key(string_t& name) {
    levels_.back().keys.push_back(heap_.make_string(name));
    return within_limits();
  }
  bool end_object() {
    const Level level = close();
    std::vector<DictEntry> entries;
    entries.reserve(level.keys.size());
    for (std::size_t i = 0; i < level.keys.size(); ++i) {
      entries.push_back({level.keys[i], level.values[i]});
    }
    return add(heap_.make_dict(entries));
  }
  bool start_array(std::size_t) { return open(false); }
  bool end_array() { return add(heap_.make_list(close().values)); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) {
    error_ = "at byte " + std::to_string(position) + ": " + e.what();
    return false;
  }

  Value result() const { return root_; }
  const std::string& error() const { return error_; }

 private:
  struct Level {
    bool is_object = false;
    std::vector<Value> keys;
    std::vector<Value> values;
  };

  bool within_limits() {
    if (heap_.exceeded().empty()) return true;
    error_ = "it passes " + std::string(heap_.exceeded());
    return false;
  }
  bool open(bool is_object) {
    if (levels_.size() >= kMaxDepth) {
      error_ = "it is nested deeper than " + std::to_string(kMaxDepth) + " levels";
      return false;
    }
    levels_.push_back({is_object, {}, {}});
    return true;
  }
  Level close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return level;
  }
  bool add(Value value) {
    heap_.step();
    if (levels_.empty()) {
      root_ = value;
    } else {
      levels_.back().values.push_back(value);
    }
    return within_limits();
  }

  Heap& heap_;
  std::vector<Level> levels_;
  Value root_;
  std::string error_;
};

Value number_of(const JsonDecimal& decimal) {
  return decimal.is_big_integer() ? Value::big_integer(decimal.text) : Value::real(decimal.value());
}

// Stops early once the heap's budget is exceeded.
Value value_of(const JsonValue& tree, Heap& heap) {
  heap.step();
  if (const bool* flag = tree.boolean()) return Value::boolean(*flag);
  if (const auto* integer = tree.integer()) return Value::integer(*integer);
  if (const auto* decimal = tree.decimal()) return number_of(*decimal);
  if (const auto* text = tree.string()) return Value::string(*text);
  if (const auto* array = tree.array()) {
    std::vector<Value> items;
    items.reserve(array->size());
    for (const JsonValue& item : *array) {
      if (!heap.exceeded().empty()) break;
      items.push_back(value_of(item, heap));
    }
    return heap.make_list(items);
  }
  if (const auto* object = tree.object()) {
    std::vector<DictEntry> entries;
    entries.reserve(object->size());
    for (const JsonMember& member : *object) {
      if (!heap.exceeded().empty()) break;
      entries.push_back({Value::string(member.name), value_of(member.value, heap)});
    }
    return heap.make_dict(entries);
  }
  return Value::none();
}

}  // namespace

Result<Value> from_tree(const JsonValue& tree, Heap& heap, std::string_view what) {
  const Value value = value_of(tree, heap);
  if (heap.stopped()) return *heap.stopped();
  if (heap.exceeded().empty()) return value;
  return invalid_argument(std::string(what) + ": it passes " + std::string(heap.exceeded()));
}

Result<Value> parse_json(std::string_view text, Heap& heap, std::string_view what) {
  Builder builder(heap);
  if (!nlohmann::json::sax_parse(text, &builder)) {
    if (heap.stopped()) return *heap.stopped();
    return invalid_argument(std::string(what) + ": not valid JSON: " + builder.error());
  }
  return builder.result();
}

}  // namespace sluice::jinja
