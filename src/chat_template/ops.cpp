#include "chat_template/ops.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/keyed_hash.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

// Deeper nesting of lists and dicts ends the rendering; no real template needs it.
constexpr int kMaxValueDepth = 200;

bool too_deep(Heap& heap, int depth) {
  if (depth < kMaxValueDepth) return false;
  heap.set_exceeded("the limit of nesting of values");
  return true;
}

// -1, 0, 1; 2 when not ordered (NaN).
int compare_numbers(Value a, Value b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  }
  // A long double holds every 64-bit integer exactly.
  const auto wide = [](Value v) {
    return v.is(Kind::kFloat) ? static_cast<long double>(v.as_float())
                              : static_cast<long double>(v.as_int());
  };
  const long double x = wide(a);
  const long double y = wide(b);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

bool equals_at(Heap* heap, Value a, Value b, int depth);

bool dicts_equal(Heap* heap, const Dict& a, const Dict& b, int depth) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const DictEntry& entry) {
    const Value* other = find(b, entry.key);
    return other != nullptr && equals_at(heap, entry.value, *other, depth + 1);
  });
}

bool equals_at(Heap* heap, Value a, Value b, int depth) {
  if (heap != nullptr) {
    heap->step();
    if (!heap->exceeded().empty() || too_deep(*heap, depth)) return false;
  }
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
    case Kind::kBigInt:
      if (heap != nullptr && a.text().size() == b.text().size()) heap->scan(a.text().size());
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        [&](Value x, Value y) { return equals_at(heap, x, y, depth + 1); });
    case Kind::kDict: return dicts_equal(heap, a.as_dict(), b.as_dict(), depth);
    case Kind::kObject: {
      if (a.as_object() == b.as_object()) return true;
      if (a.as_object()->type() != ObjectType::kRange ||
          b.as_object()->type() != ObjectType::kRange) {
        return false;
      }
      const auto& x = static_cast<const Range&>(*a.as_object());
      const auto& y = static_cast<const Range&>(*b.as_object());
      return x.size() == y.size() &&
             (x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step)));
    }
    default: return false;
  }
}

Error not_supported(Order order, Value a, Value b) {
  static constexpr std::string_view kSymbols[] = {"<", "<=", ">", ">="};
  return type_error("'" + std::string(kSymbols[static_cast<int>(order)]) +
                    "' not supported between instances of '" + std::string(type_name(a)) +
                    "' and '" + std::string(type_name(b)) + "'");
}

bool holds(Order order, int sign) {
  switch (order) {
    case Order::kLess: return sign == -1;
    case Order::kLessEqual: return sign == -1 || sign == 0;
    case Order::kGreater: return sign == 1;
    case Order::kGreaterEqual: return sign == 1 || sign == 0;
  }
  return false;
}

Result<bool> compare_at(Heap& heap, Order order, Value a, Value b, int depth) {
  heap.step();
  if (too_deep(heap, depth)) return false;
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (a.is_number() && b.is_number()) return holds(order, compare_numbers(a, b));
  if (a.is_string() && b.is_string()) {
    heap.scan(std::min(a.text().size(), b.text().size()));
    const int sign = a.text().compare(b.text());
    return holds(order, sign < 0 ? -1 : sign > 0 ? 1 : 0);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::size_t common = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < common; ++i) {
      if (equals_at(&heap, a.items()[i], b.items()[i], depth + 1)) continue;
      return compare_at(heap, order, a.items()[i], b.items()[i], depth + 1);
    }
    return holds(order, a.items().size() < b.items().size()   ? -1
                        : a.items().size() > b.items().size() ? 1
                                                              : 0);
  }
  return not_supported(order, a, b);
}

void append_value(Heap& heap, TextBuilder& out, Value value, int depth);

void append_items(Heap& heap, TextBuilder& out, std::span<const Value> items, int depth) {
  bool first = true;
  for (const Value item : items) {
    if (!first) out.append(", ");
    first = false;
    append_value(heap, out, item, depth + 1);
    if (!heap.exceeded().empty()) return;
  }
}

void append_entries(Heap& heap, TextBuilder& out, std::span<const DictEntry> entries, int depth) {
  out.append("{");
  bool first = true;
  for (const DictEntry& entry : entries) {
    if (!first) out.append(", ");
    first = false;
    append_value(heap, out, entry.key, depth + 1);
    out.append(": ");
    append_value(heap, out, entry.value, depth + 1);
    if (!heap.exceeded().empty()) return;
  }
  out.append("}");
}

void append_view(Heap& heap, TextBuilder& out, const DictView& view, int depth) {
  out.append(view.type_name());
  out.append("([");
  bool first = true;
  for (const DictEntry& entry : view.dict->entries) {
    if (!first) out.append(", ");
    first = false;
    if (view.part == DictView::Part::kItems) {
      out.append("(");
      append_value(heap, out, entry.key, depth + 1);
      out.append(", ");
      append_value(heap, out, entry.value, depth + 1);
      out.append(")");
    } else {
      append_value(heap, out, view.part == DictView::Part::kKeys ? entry.key : entry.value,
                   depth + 1);
    }
    if (!heap.exceeded().empty()) return;
  }
  out.append("])");
}

void append_object(Heap& heap, TextBuilder& out, const Object& object, int depth) {
  switch (object.type()) {
    case ObjectType::kRange: {
      const auto& range = static_cast<const Range&>(object);
      out.append("range(" + std::to_string(range.start) + ", " + std::to_string(range.stop));
      if (range.step != 1) out.append(", " + std::to_string(range.step));
      out.append(")");
      return;
    }
    case ObjectType::kDictView:
      append_view(heap, out, static_cast<const DictView&>(object), depth);
      return;
    case ObjectType::kNamespace: {
      out.append("<Namespace {");
      bool first = true;
      for (const auto& [name, value] : static_cast<const Namespace&>(object).attributes) {
        if (!first) out.append(", ");
        first = false;
        out.append(quote(name));
        out.append(": ");
        append_value(heap, out, value, depth + 1);
        if (!heap.exceeded().empty()) return;
      }
      out.append("}>");
      return;
    }
    default: out.append(object.describe());
  }
}

void append_value(Heap& heap, TextBuilder& out, Value value, int depth) {
  heap.step();
  if (too_deep(heap, depth)) return;
  switch (value.kind()) {
    case Kind::kMissing: return;
    case Kind::kUndefined: out.append("Undefined"); return;
    case Kind::kNone: out.append("None"); return;
    case Kind::kBool: out.append(value.as_bool() ? "True" : "False"); return;
    case Kind::kInt: out.append(std::to_string(value.as_int())); return;
    case Kind::kBigInt: out.append(value.text()); return;
    case Kind::kFloat: out.append(float_text(value.as_float())); return;
    case Kind::kString:
      heap.scan(value.text().size());
      if (value.is_markup()) {
        out.append("Markup(");
        out.append(quote(value.text()));
        out.append(")");
      } else {
        out.append(quote(value.text()));
      }
      return;
    case Kind::kList:
      out.append("[");
      append_items(heap, out, value.items(), depth);
      out.append("]");
      return;
    case Kind::kTuple:
      out.append("(");
      append_items(heap, out, value.items(), depth);
      out.append(value.items().size() == 1 ? ",)" : ")");
      return;
    case Kind::kDict: append_entries(heap, out, value.as_dict().entries, depth); return;
    case Kind::kObject: append_object(heap, out, *value.as_object(), depth); return;
  }
}

// Tuples that are nested too deep are unhashable. This also bounds the recursion of hashing.
bool is_hashable_at(Value value, int depth) {
  if (value.is(Kind::kList) || value.is_dict() || depth >= kMaxValueDepth) return false;
  if (value.is(Kind::kTuple)) {
    return std::all_of(value.items().begin(), value.items().end(),
                       [&](Value item) { return is_hashable_at(item, depth + 1); });
  }
  return !(value.is(Kind::kObject) && value.as_object()->type() == ObjectType::kDictView);
}

}  // namespace

Error python_error(std::string_view type, std::string_view message) {
  return invalid_argument(std::string(type) + ": " + std::string(message));
}

std::string undefined_message(const UndefinedInfo& info) {
  if (!info.hint.empty()) return std::string(info.hint);
  // The names are printed with a budget of their own: the message must exist even past the limit.
  Heap scratch(1 << 16, 1 << 16);
  const std::string name = to_repr(scratch, info.name);
  if (info.object.is_missing()) return name + " is undefined";
  std::string type(info.object.is_none() ? "None" : type_name(info.object));
  if (info.object.is_markup()) type = "markupsafe.Markup";
  if (info.object.is(Kind::kObject)) {
    switch (info.object.as_object()->type()) {
      case ObjectType::kLoop:
      case ObjectType::kOther: type = "jinja2.runtime." + type; break;
      case ObjectType::kNamespace: type = "transformers.utils.chat_template_utils." + type; break;
      case ObjectType::kCallable:
        if (type == "Macro") type = "jinja2.runtime." + type;
        break;
      default: break;
    }
  }
  if (!info.object.is_none()) type += " object";
  if (!info.name.is_string()) return type + " has no element " + name;
  return "'" + type + "' has no attribute " + name;
}

Error undefined_error(Value value) {
  const UndefinedInfo& info = *value.as_undefined();
  return python_error(info.error_type, undefined_message(info));
}

std::string_view type_name(Value value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt:
    case Kind::kBigInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return value.is_markup() ? "Markup" : "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kObject: return value.as_object()->type_name();
  }
  return "object";
}

bool is_truthy(Value value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kBigInt: return true;
    case Kind::kFloat: return value.as_float() != 0;
    case Kind::kString: return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple: return !value.items().empty();
    case Kind::kDict: return !value.as_dict().entries.empty();
    case Kind::kObject: break;
  }
  const Object& object = *value.as_object();
  if (object.type() == ObjectType::kRange) return static_cast<const Range&>(object).size() > 0;
  if (object.type() == ObjectType::kDictView) {
    return !static_cast<const DictView&>(object).dict->entries.empty();
  }
  return true;
}

std::int64_t length_of(Heap& heap, Value value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString:
      heap.scan(value.text().size());
      return utf8::count_code_points(value.text());
    case Kind::kList:
    case Kind::kTuple: return static_cast<std::int64_t>(value.items().size());
    case Kind::kDict: return static_cast<std::int64_t>(value.as_dict().entries.size());
    case Kind::kObject: break;
    default: return -1;
  }
  const Object& object = *value.as_object();
  if (object.type() == ObjectType::kRange) return static_cast<const Range&>(object).size();
  if (object.type() == ObjectType::kDictView) {
    return static_cast<std::int64_t>(static_cast<const DictView&>(object).dict->entries.size());
  }
  return -1;
}

bool is_hashable(Value value) { return is_hashable_at(value, 0); }

std::size_t hash_value(Value key) {
  switch (key.kind()) {
    case Kind::kString:
    case Kind::kBigInt: return keyed_hash(key.text());
    case Kind::kBool:
    case Kind::kInt: return std::hash<double>()(static_cast<double>(key.as_int()));
    case Kind::kFloat: return std::hash<double>()(key.as_float());
    case Kind::kTuple: {
      std::size_t hash = 17;
      for (const Value item : key.items()) hash = hash * 31 + hash_value(item);
      return hash;
    }
    default: return static_cast<std::size_t>(key.kind());
  }
}

bool keys_equal(Value a, Value b) { return equals_at(nullptr, a, b, 0); }
bool equals(Heap& heap, Value a, Value b) { return equals_at(&heap, a, b, 0); }
Result<bool> compare(Heap& heap, Order order, Value a, Value b) {
  return compare_at(heap, order, a, b, 0);
}

const Value* find(const Dict& dict, Value key) {
  if (!dict.index.empty()) {
    const std::size_t mask = dict.index.size() - 1;
    for (std::size_t slot = hash_value(key) & mask; dict.index[slot] != 0;
         slot = (slot + 1) & mask) {
      const DictEntry& entry = dict.entries[dict.index[slot] - 1];
      if (keys_equal(entry.key, key)) return &entry.value;
    }
    return nullptr;
  }
  for (const DictEntry& entry : dict.entries) {
    if (keys_equal(entry.key, key)) return &entry.value;
  }
  return nullptr;
}

const Value* find(const Dict& dict, std::string_view key) { return find(dict, Value::string(key)); }

void append_text(Heap& heap, TextBuilder& out, Value value) {
  if (value.is_string()) {
    heap.scan(value.text().size());
    out.append(value.text());
  } else if (!value.is_undefined()) {
    append_value(heap, out, value, 0);
  }
}

std::string_view to_text(Heap& heap, Value value) {
  if (value.is_string()) return value.text();
  TextBuilder out(heap);
  append_text(heap, out, value);
  return out.finish().text();
}

std::string to_repr(Heap& heap, Value value) {
  TextBuilder out(heap);
  append_value(heap, out, value, 0);
  return std::string(out.view());
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out.push_back(c);
    }
  }
  return out;
}

}  // namespace sluice::jinja
