#include "chat_template/json_text.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

constexpr int kMaxDepth = 200;

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style), out_(heap) {}

  Status write(Value value, int depth) {
    heap_.step();
    if (depth > kMaxDepth) heap_.set_exceeded("the limit of nesting of values");
    if (!heap_.exceeded().empty()) return {};
    switch (value.kind()) {
      case Kind::kNone: out_.append("null"); return {};
      case Kind::kBool: out_.append(value.as_bool() ? "true" : "false"); return {};
      case Kind::kInt: out_.append(std::to_string(value.as_int())); return {};
      case Kind::kBigInt: out_.append(value.text()); return {};
      case Kind::kFloat: out_.append(number(value.as_float())); return {};
      case Kind::kString: write_string(value.text()); return {};
      case Kind::kList:
      case Kind::kTuple: return write_list(value, depth);
      case Kind::kDict: return write_dict(value.as_dict(), depth);
      default:
        return type_error("Object of type " + std::string(type_name(value)) +
                          " is not JSON serializable");
    }
  }

  Value finish() { return out_.finish(); }

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_text(d);
  }

  void new_line(int depth) {
    if (!style_.has_indent) return;
    out_.append("\n");
    for (int i = 0; i < depth; ++i) out_.append(style_.indent);
  }

  void append_unit(unsigned unit) {
    static constexpr char kHex[] = "0123456789abcdef";
    const char text[] = {'\\',
                         'u',
                         kHex[(unit >> 12) & 15],
                         kHex[(unit >> 8) & 15],
                         kHex[(unit >> 4) & 15],
                         kHex[unit & 15]};
    out_.append(std::string_view(text, sizeof(text)));
  }

  void write_string(std::string_view text) {
    heap_.scan(text.size());
    out_.append("\"");
    std::size_t plain = 0;  // where the text not yet written begins
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t at = i;
      const char32_t c = next_code_point(text, &i);
      if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !style_.ascii_only)) continue;
      out_.append(text.substr(plain, at - plain));
      plain = i;
      switch (c) {
        case '"': out_.append("\\\""); break;
        case '\\': out_.append("\\\\"); break;
        case '\n': out_.append("\\n"); break;
        case '\r': out_.append("\\r"); break;
        case '\t': out_.append("\\t"); break;
        case '\f': out_.append("\\f"); break;
        case '\b': out_.append("\\b"); break;
        default:
          if (c >= 0x10000) {
            append_unit(0xD800 + static_cast<unsigned>((c - 0x10000) >> 10));
            append_unit(0xDC00 + static_cast<unsigned>((c - 0x10000) & 0x3FF));
          } else {
            append_unit(static_cast<unsigned>(c));
          }
      }
    }
    out_.append(text.substr(plain));
    out_.append("\"");
  }

  Status write_list(Value list, int depth) {
    if (list.items().empty()) {
      out_.append("[]");
      return {};
    }
    out_.append("[");
    bool first = true;
    for (const Value item : list.items()) {
      if (!first) out_.append(style_.item_separator);
      first = false;
      new_line(depth + 1);
      RETURN_IF_ERROR(write(item, depth + 1));
    }
    new_line(depth);
    out_.append("]");
    return {};
  }

  // The text of a key; false for keys that JSON cannot have.
  bool key_text(Value key, std::string* text) const {
    switch (key.kind()) {
      case Kind::kNone: *text = "null"; return true;
      case Kind::kBool: *text = key.as_bool() ? "true" : "false"; return true;
      case Kind::kInt: *text = std::to_string(key.as_int()); return true;
      case Kind::kBigInt:
      case Kind::kString: *text = key.text(); return true;
      case Kind::kFloat: *text = number(key.as_float()); return true;
      default: return false;
    }
  }

  Status write_dict(const Dict& dict, int depth) {
    if (dict.entries.empty()) {
      out_.append("{}");
      return {};
    }
    std::vector<DictEntry> entries(dict.entries.begin(), dict.entries.end());
    heap_.step(entries.size());
    if (style_.sort_keys) {
      Status failed;
      std::stable_sort(entries.begin(), entries.end(), [&](const DictEntry& a, const DictEntry& b) {
        const Result<bool> less = compare(heap_, Order::kLess, a.key, b.key);
        if (!less && failed) failed = less.error();
        return less && *less;
      });
      RETURN_IF_ERROR(std::move(failed));
    }
    out_.append("{");
    bool first = true;
    for (const DictEntry& entry : entries) {
      if (!first) out_.append(style_.item_separator);
      first = false;
      new_line(depth + 1);
      std::string key;
      if (!key_text(entry.key, &key)) {
        return type_error("keys must be str, int, float, bool or None, not " +
                          std::string(type_name(entry.key)));
      }
      write_string(key);
      out_.append(style_.key_separator);
      RETURN_IF_ERROR(write(entry.value, depth + 1));
    }
    new_line(depth);
    out_.append("}");
    return {};
  }

  Heap& heap_;
  const JsonStyle& style_;
  TextBuilder out_;
};

}  // namespace

Result<Value> dump_json(Heap& heap, Value value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  RETURN_IF_ERROR(writer.write(value, 0));
  return writer.finish();
}

}  // namespace sluice::jinja
