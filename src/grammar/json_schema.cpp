#include "grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/json_formats.h"
#include "grammar/json_grammar.h"
#include "grammar/json_pointer.h"
#include "grammar/one_of.h"
#include "grammar/regex_grammar.h"

namespace sluice {
namespace {

using Object = JsonValue::Object;

// Keywords that restrict values in ways that are not served.
constexpr auto kRefused = std::to_array<std::string_view>(
    {"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
     "patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "contains",
     "minContains", "maxContains", "additionalItems", "$dynamicRef", "$recursiveRef"});

// Keywords that read_type() looks at, by the type that they belong to.
constexpr auto kValueKeywords = std::to_array<std::string_view>({"type",
                                                                 "minLength",
                                                                 "maxLength",
                                                                 "pattern",
                                                                 "format",
                                                                 "minimum",
                                                                 "maximum",
                                                                 "exclusiveMinimum",
                                                                 "exclusiveMaximum",
                                                                 "multipleOf",
                                                                 "properties",
                                                                 "required",
                                                                 "additionalProperties",
                                                                 "minProperties",
                                                                 "maxProperties",
                                                                 "items",
                                                                 "prefixItems",
                                                                 "minItems",
                                                                 "maxItems",
                                                                 "uniqueItems",
                                                                 "enum",
                                                                 "const",
                                                                 "anyOf",
                                                                 "oneOf",
                                                                 "allOf",
                                                                 "$ref"});

bool has_type(const JsonValue& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.boolean() != nullptr;
  if (type == "string") return value.string() != nullptr;
  if (type == "array") return value.array() != nullptr;
  if (type == "object") return value.object() != nullptr;
  if (type == "integer") {
    return value.integer() != nullptr ||
           (value.decimal() != nullptr && value.decimal()->is_big_integer());
  }
  return value.integer() != nullptr || value.decimal() != nullptr;
}

class SchemaReader {
 public:
  explicit SchemaReader(const JsonValue& root) : root_(root), json_(grammar_) {}

  Result<Grammar> read() {
    grammar_.set_start(rule_of(root_, "#"));
    // References are read one after the other, so that a long chain of them does not nest.
    while (!open_.empty()) {
      const Open next = open_.front();
      open_.pop_front();
      ASSIGN_OR_RETURN(const ExprId body, read_schema(*next.schema, next.path, 0));
      grammar_.define(next.rule, body);
    }
    return std::move(grammar_);
  }

 private:
  struct Open {
    const JsonValue* schema = nullptr;
    std::string path;
    RuleId rule = -1;
  };

  static Error error(const std::string& path, std::string_view what) {
    return invalid_argument(fmt::format("at {}: {}", path, what));
  }

  RuleId rule_of(const JsonValue& schema, const std::string& path) {
    const auto [at, added] = rules_.try_emplace(&schema, -1);
    if (added) {
      at->second = grammar_.add_rule(path);
      open_.push_back({&schema, path, at->second});
    }
    return at->second;
  }

  Result<ExprId> read_schema(const JsonValue& schema, const std::string& path, int depth) {
    if (depth > kMaxSchemaDepth) {
      return error(path, fmt::format("is nested deeper than {}", kMaxSchemaDepth));
    }
    if (++parts_ > kMaxSchemaParts || grammar_.size() > 20 * kMaxSchemaParts) {
      return error(path, "the schema is too large; use fewer properties and alternatives");
    }
    if (const bool* flag = schema.boolean()) {
      return *flag ? json_.any_value() : grammar_.nothing();
    }
    if (schema.object() == nullptr) return error(path, "a schema must be an object or a boolean");
    const Object& object = *schema.object();
    for (const std::string_view name : kRefused) {
      if (find_member(object, name) != nullptr) {
        return error(path, fmt::format("the keyword {} is not served", name));
      }
    }
    if (find_member(object, "$ref") != nullptr) return read_reference(object, path);
    if (find_member(object, "const") != nullptr || find_member(object, "enum") != nullptr) {
      return read_constants(object, path);
    }
    for (const std::string_view name : {"anyOf", "oneOf", "allOf"}) {
      if (find_member(object, name) != nullptr) return read_branches(object, name, path, depth);
    }
    return read_types(object, path, depth);
  }

  // Other keywords that restrict values.
  static Status check_alone(const Object& object, std::string_view keyword, std::string_view also,
                            const std::string& path) {
    for (const JsonMember& member : object) {
      if (member.name == keyword || member.name == also) continue;
      if (std::ranges::find(kValueKeywords, member.name) == kValueKeywords.end()) continue;
      return error(path, fmt::format("{} beside {} is not served", member.name, keyword));
    }
    return {};
  }

  Result<const JsonValue*> resolve(const JsonValue& reference, const std::string& path) const {
    const std::string* text = reference.string();
    if (text == nullptr || text->empty() || text->front() != '#' ||
        (text->size() > 1 && (*text)[1] != '/')) {
      return error(path, "$ref must be # or begin with #/; other documents are not read");
    }
    const JsonValue* value = find_by_pointer(root_, std::string_view(*text).substr(1));
    if (value == nullptr) return error(path, fmt::format("$ref {} names nothing", *text));
    return value;
  }

  Result<ExprId> read_reference(const Object& object, const std::string& path) {
    RETURN_IF_ERROR(check_alone(object, "$ref", {}, path));
    const JsonValue& reference = *find_member(object, "$ref");
    ASSIGN_OR_RETURN(const JsonValue* target, resolve(reference, path));
    return grammar_.call(rule_of(*target, *reference.string()));
  }

  Result<std::vector<std::string>> types_of(const Object& object, const std::string& path) const {
    constexpr auto kKnown = std::to_array<std::string_view>(
        {"object", "array", "string", "number", "integer", "boolean", "null"});
    const JsonValue* type = find_member(object, "type");
    std::vector<std::string> types;
    if (type == nullptr) return types;
    const JsonValue::Array one = {*type};
    const JsonValue::Array& names = type->array() != nullptr ? *type->array() : one;
    for (const JsonValue& name : names) {
      if (name.string() == nullptr || std::ranges::find(kKnown, *name.string()) == kKnown.end()) {
        return error(path,
                     "type must be one of object, array, string, number, integer, boolean "
                     "and null, or an array of them");
      }
      types.push_back(*name.string());
    }
    if (types.empty()) return error(path, "type is an empty array");
    return types;
  }

  Result<ExprId> read_constants(const Object& object, const std::string& path) {
    const JsonValue* constant = find_member(object, "const");
    RETURN_IF_ERROR(check_alone(object, constant != nullptr ? "const" : "enum", "type", path));
    ASSIGN_OR_RETURN(const auto types, types_of(object, path));
    const JsonValue* listed = find_member(object, "enum");
    if (constant == nullptr && listed->array() == nullptr) {
      return error(path, "enum must be an array");
    }
    const JsonValue::Array one =
        constant != nullptr ? JsonValue::Array{*constant} : JsonValue::Array();
    std::vector<ExprId> ways;
    for (const JsonValue& value : constant != nullptr ? one : *listed->array()) {
      const bool fits = types.empty() || std::ranges::any_of(types, [&](const std::string& type) {
                          return has_type(value, type);
                        });
      if (fits) ways.push_back(json_.constant(value));
      if (++parts_ > kMaxSchemaParts) return error(path, "the schema is too large");
    }
    if (ways.empty()) return error(path, "enum has no value of the given type");
    return grammar_.choice(std::move(ways));
  }

  Result<ExprId> read_branches(const Object& object, std::string_view keyword,
                               const std::string& path, int depth) {
    const JsonValue& branches = *find_member(object, keyword);
    if (branches.array() == nullptr || branches.array()->empty()) {
      return error(path, fmt::format("{} must be an array with at least one schema", keyword));
    }
    if (keyword == "allOf" && branches.array()->size() > 1) {
      return error(path, "allOf with several schemas is not served; write one schema");
    }
    if (keyword == "oneOf") RETURN_IF_ERROR(check_disjoint(*branches.array(), path));
    std::vector<ExprId> ways;
    for (std::size_t i = 0; i < branches.array()->size(); ++i) {
      const std::string place = fmt::format("{}/{}/{}", path, keyword, i);
      ASSIGN_OR_RETURN(const JsonValue* branch,
                       with_siblings(object, keyword, (*branches.array())[i], place));
      ASSIGN_OR_RETURN(const ExprId way, read_schema(*branch, place, depth + 1));
      ways.push_back(way);
    }
    return grammar_.choice(std::move(ways));
  }

  // Every pair would take long for many branches.
  Status check_disjoint(const JsonValue::Array& branches, const std::string& path) const {
    constexpr std::size_t kMaxBranches = 256;
    if (branches.size() > kMaxBranches) {
      return error(path, fmt::format("oneOf has {} schemas; at most {} are served, use anyOf",
                                     branches.size(), kMaxBranches));
    }
    std::vector<const JsonValue*> targets;
    for (const JsonValue& branch : branches) {
      const JsonValue* target = &branch;
      // A reference to a reference is followed a few times; a cycle is refused as not disjoint.
      for (int hops = 0; hops < 8 && target->object() != nullptr; ++hops) {
        const JsonValue* reference = find_member(*target->object(), "$ref");
        if (reference == nullptr) break;
        ASSIGN_OR_RETURN(target, resolve(*reference, path));
      }
      targets.push_back(target);
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (provably_disjoint(*targets[i], *targets[j])) continue;
        return error(path, fmt::format("oneOf: a value may fit both schema {} and schema {}, which "
                                       "is not served; use anyOf, or give each a property with a "
                                       "const of its own",
                                       j, i));
      }
    }
    return {};
  }

  // The branch together with the keywords beside `anyOf`, if there are any.
  Result<const JsonValue*> with_siblings(const Object& object, std::string_view keyword,
                                         const JsonValue& branch, const std::string& path) {
    Object merged;
    for (const JsonMember& member : object) {
      if (member.name == keyword) continue;
      if (std::ranges::find(kValueKeywords, member.name) != kValueKeywords.end()) {
        merged.push_back(member);
      }
    }
    if (merged.empty()) return &branch;
    if (branch.object() == nullptr) return error(path, "must be an object");
    for (const JsonMember& member : *branch.object()) {
      const JsonValue* other = find_member(merged, member.name);
      const bool same_type = other != nullptr && member.name == "type" &&
                             other->string() != nullptr && member.value.string() != nullptr &&
                             *other->string() == *member.value.string();
      if (other != nullptr && !same_type) {
        return error(path, fmt::format("{} stands here and beside {}, which is not served",
                                       member.name, keyword));
      }
      if (other == nullptr) merged.push_back(member);
    }
    merged_.push_back(JsonValue{std::move(merged)});
    return &merged_.back();
  }

  Result<ExprId> read_types(const Object& object, const std::string& path, int depth) {
    ASSIGN_OR_RETURN(std::vector<std::string> types, types_of(object, path));
    if (types.empty()) {
      const auto has = [&](std::initializer_list<std::string_view> names) {
        return std::ranges::any_of(
            names, [&](std::string_view name) { return find_member(object, name) != nullptr; });
      };
      if (has({"properties", "required", "additionalProperties", "minProperties",
               "maxProperties"})) {
        types = {"object"};
      } else if (has({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"})) {
        types = {"array"};
      } else if (has({"minLength", "maxLength", "pattern", "format"})) {
        types = {"string"};
      } else if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                      "multipleOf"})) {
        types = {"number"};
      } else {
        return json_.any_value();
      }
    }
    std::vector<ExprId> ways;
    for (const std::string& type : types) {
      ASSIGN_OR_RETURN(const ExprId way, read_type(type, object, path, depth));
      ways.push_back(way);
    }
    return grammar_.choice(std::move(ways));
  }

  Result<ExprId> read_type(std::string_view type, const Object& object, const std::string& path,
                           int depth) {
    if (type == "null") return grammar_.literal("null");
    if (type == "boolean") {
      return grammar_.choice({grammar_.literal("true"), grammar_.literal("false")});
    }
    if (type == "string") return read_string(object, path);
    if (type == "object") return read_object(object, path, depth);
    if (type == "array") return read_array(object, path, depth);
    return read_number(object, type == "integer", path);
  }

  // A count such as minLength; nothing if it is absent.
  Result<std::optional<std::int32_t>> count(const Object& object, std::string_view name,
                                            const std::string& path) const {
    const JsonValue* value = find_member(object, name);
    if (value == nullptr) return std::optional<std::int32_t>();
    const std::int64_t* number = value->integer();
    if (number == nullptr || *number < 0 || *number > kMaxRepeatCount) {
      return error(path,
                   fmt::format("{} must be a whole number from 0 to {}", name, kMaxRepeatCount));
    }
    return std::optional<std::int32_t>(static_cast<std::int32_t>(*number));
  }

  Result<ExprId> read_string(const Object& object, const std::string& path) {
    ASSIGN_OR_RETURN(const auto min, count(object, "minLength", path));
    ASSIGN_OR_RETURN(const auto max, count(object, "maxLength", path));
    const JsonValue* pattern = find_member(object, "pattern");
    const JsonValue* format = find_member(object, "format");
    std::string format_text;
    if (format != nullptr) {
      if (format->string() == nullptr) return error(path, "format must be a string");
      format_text = format_pattern(*format->string());
    }
    if (pattern == nullptr && format_text.empty()) {
      if (!min && !max) return json_.any_string();
      if (max && *max < min.value_or(0)) return error(path, "maxLength is below minLength");
      return limited_string(min.value_or(0), max.value_or(-1));
    }
    if (min || max || (pattern != nullptr && !format_text.empty())) {
      return error(path,
                   "pattern, format and lengths together are not served; put all of it into "
                   "the pattern");
    }
    if (pattern != nullptr && pattern->string() == nullptr) {
      return error(path, "pattern must be a string");
    }
    const auto write = [&](Grammar&, CodePointSet set) { return json_.character(std::move(set)); };
    auto content = pattern != nullptr
                       ? parse_regex(*pattern->string(), RegexMatch::kAnywhere, write, grammar_)
                       : parse_regex(format_text, RegexMatch::kWhole, write, grammar_);
    if (!content) return with_context(fmt::format("at {}", path), std::move(content).error());
    return json_.quoted(*content);
  }

  // A rule of its own, which strings of the same lengths share.
  ExprId limited_string(std::int32_t min, std::int32_t max) {
    const auto [at, added] = strings_.try_emplace({min, max}, -1);
    if (added) {
      const ExprId character = json_.character({{0, kLastCodePoint}});
      at->second = grammar_.add_rule("JSON string of bounded length",
                                     json_.quoted(grammar_.repeat(character, min, max)));
    }
    return grammar_.call(at->second);
  }

  // A bound as a whole number: rounded up for a lower bound, down for an upper one.
  Result<std::optional<std::int64_t>> bound(const Object& object, std::string_view name,
                                            bool integer, bool lower, const std::string& path) {
    const JsonValue* value = find_member(object, name);
    if (value == nullptr) return std::optional<std::int64_t>();
    if (value->integer() != nullptr) return std::optional(*value->integer());
    if (value->decimal() == nullptr) return error(path, fmt::format("{} must be a number", name));
    const double number = value->decimal()->value();
    if (!integer && number != std::floor(number)) {
      return error(path, fmt::format("{} {} of a number that is no integer must be a whole number",
                                     name, value->decimal()->text));
    }
    const double rounded = lower ? std::ceil(number) : std::floor(number);
    constexpr double kLargest = 4e18;
    const auto clamped = static_cast<std::int64_t>(std::clamp(rounded, -kLargest, kLargest));
    // An exclusive bound between two integers excludes none of them.
    const bool exclusive = name.starts_with("exclusive") && rounded != number;
    return std::optional(exclusive ? clamped + (lower ? -1 : 1) : clamped);
  }

  Result<ExprId> read_number(const Object& object, bool integer, const std::string& path) {
    if (find_member(object, "multipleOf") != nullptr) {
      return error(path, "the keyword multipleOf is not served");
    }
    ASSIGN_OR_RETURN(const auto min, bound(object, "minimum", integer, true, path));
    ASSIGN_OR_RETURN(const auto max, bound(object, "maximum", integer, false, path));
    ASSIGN_OR_RETURN(const auto above, bound(object, "exclusiveMinimum", integer, true, path));
    ASSIGN_OR_RETURN(const auto below, bound(object, "exclusiveMaximum", integer, false, path));
    if (!min && !max && !above && !below) {
      return integer ? json_.any_integer() : json_.any_number();
    }
    std::int64_t low = std::max(min.value_or(-kMaxJsonInteger), -kMaxJsonInteger);
    std::int64_t high = std::min(max.value_or(kMaxJsonInteger), kMaxJsonInteger);
    if (above) low = std::max(low, std::min(*above, kMaxJsonInteger) + 1);
    if (below) high = std::min(high, std::max(*below, -kMaxJsonInteger) - 1);
    if (integer) {
      if (low > high) return error(path, "no integer lies within the bounds");
      return json_.integer(low, high);
    }
    if (low > high) {
      return error(path, "bounds of a number without a whole number between them are not served");
    }
    return grammar_.choice(decimals(low, high));
  }

  // Whole numbers from low to high, and fractions between two of them.
  std::vector<ExprId> decimals(std::int64_t low, std::int64_t high) {
    const ExprId digits = grammar_.repeat(grammar_.one_of({{'0', '9'}}), 1, 17);
    const ExprId fraction = grammar_.sequence({grammar_.literal("."), digits});
    std::vector<ExprId> ways = {json_.integer(low, high)};
    if (high > 0 && high > low) {
      ways.push_back(
          grammar_.sequence({json_.integer(std::max<std::int64_t>(low, 0), high - 1), fraction}));
    }
    if (low < 0 && high > low) {
      const std::int64_t last = std::min<std::int64_t>(high, 0);
      if (last == 0) ways.push_back(grammar_.sequence({grammar_.literal("-0"), fraction}));
      if (low + 1 <= std::min<std::int64_t>(last, -1)) {
        ways.push_back(grammar_.sequence(
            {json_.integer(low + 1, std::min<std::int64_t>(last, -1)), fraction}));
      }
    }
    return ways;
  }

  Result<ExprId> read_array(const Object& object, const std::string& path, int depth) {
    const JsonValue* unique = find_member(object, "uniqueItems");
    if (unique != nullptr && (unique->boolean() == nullptr || *unique->boolean())) {
      return error(path, "uniqueItems is not served");
    }
    ASSIGN_OR_RETURN(const auto min, count(object, "minItems", path));
    ASSIGN_OR_RETURN(const auto max, count(object, "maxItems", path));
    if (max && *max < min.value_or(0)) return error(path, "maxItems is below minItems");
    if (find_member(object, "prefixItems") != nullptr) {
      return read_tuple(object, min, max, path, depth);
    }
    const JsonValue* items = find_member(object, "items");
    if (items != nullptr && items->boolean() != nullptr && !*items->boolean()) {
      if (min.value_or(0) > 0) return error(path, "items is false, so minItems must be 0");
      return grammar_.literal("[]");
    }
    ExprId item = -1;
    if (items != nullptr) {
      ASSIGN_OR_RETURN(item, read_schema(*items, path + "/items", depth + 1));
    } else {
      item = json_.any_value();
    }
    return json_.array(item, min.value_or(0), max.value_or(-1));
  }

  // All items of prefixItems; further ones only with a schema for them.
  Result<ExprId> read_tuple(const Object& object, std::optional<std::int32_t> min,
                            std::optional<std::int32_t> max, const std::string& path, int depth) {
    const JsonValue& prefix = *find_member(object, "prefixItems");
    if (prefix.array() == nullptr) return error(path, "prefixItems must be an array");
    const auto size = static_cast<std::int32_t>(prefix.array()->size());
    const bool sized = min.value_or(size) <= size && max.value_or(size) >= size;
    if (!sized) return error(path, "minItems and maxItems must allow the length of prefixItems");
    std::vector<ExprId> parts = {grammar_.literal("[")};
    for (std::size_t i = 0; i < prefix.array()->size(); ++i) {
      if (i > 0) parts.push_back(json_.comma());
      ASSIGN_OR_RETURN(
          const ExprId item,
          read_schema((*prefix.array())[i], fmt::format("{}/prefixItems/{}", path, i), depth + 1));
      parts.push_back(item);
    }
    parts.push_back(grammar_.literal("]"));
    return grammar_.sequence(std::move(parts));
  }

  // The schema of properties that are not listed. Nothing: there are none.
  Result<std::optional<ExprId>> read_additional(const Object& object, bool closed,
                                                const std::string& path, int depth) {
    const JsonValue* additional = find_member(object, "additionalProperties");
    if (additional == nullptr) {
      return closed ? std::optional<ExprId>() : std::optional(json_.any_value());
    }
    const bool* flag = additional->boolean();
    if (flag != nullptr && !*flag) return std::optional<ExprId>();
    ASSIGN_OR_RETURN(const ExprId value,
                     read_schema(*additional, path + "/additionalProperties", depth + 1));
    return std::optional(grammar_.call(grammar_.add_rule(path + "/additionalProperties", value)));
  }

  Result<ExprId> read_object(const Object& object, const std::string& path, int depth) {
    static const Object kNone;
    const JsonValue* listed = find_member(object, "properties");
    if (listed != nullptr && listed->object() == nullptr) {
      return error(path, "properties must be an object");
    }
    const Object& properties = listed != nullptr ? *listed->object() : kNone;
    ASSIGN_OR_RETURN(const auto required, names(object, "required", path));
    ASSIGN_OR_RETURN(const auto min, count(object, "minProperties", path));
    ASSIGN_OR_RETURN(const auto max, count(object, "maxProperties", path));
    ASSIGN_OR_RETURN(const auto additional,
                     read_additional(object, !properties.empty(), path, depth));
    if (properties.empty() && required.empty()) {
      if (min.value_or(0) > 1) return error(path, "minProperties above 1 is not served");
      if (max && *max < min.value_or(0)) return error(path, "maxProperties is below minProperties");
      if (!additional) return json_.object(grammar_.nothing(), 0, 0);
      return json_.object(json_.member(json_.any_string(), *additional), min.value_or(0),
                          max.value_or(-1));
    }
    const bool enough = min.value_or(0) <= static_cast<std::int32_t>(required.size());
    if (!enough || max) {
      return error(path, "minProperties and maxProperties beside properties are not served");
    }
    std::vector<ListItem> items;
    std::set<std::string_view> known;
    for (const JsonMember& property : properties) {
      if (!known.insert(property.name).second) {
        return error(path, fmt::format("the property {} is listed twice", property.name));
      }
      ASSIGN_OR_RETURN(
          const ExprId value,
          read_schema(property.value, fmt::format("{}/properties/{}", path, property.name),
                      depth + 1));
      const bool needed = required.contains(property.name);
      items.push_back({json_.member(json_.text(property.name), value), needed, false});
    }
    for (const std::string_view name : required) {
      if (known.contains(name)) continue;
      if (!additional) {
        return error(path, fmt::format("requires the property {}, which it does not allow", name));
      }
      known.insert(name);
      items.push_back({json_.member(json_.text(name), *additional), true, false});
    }
    if (additional) {
      // The expression of all other names is nested as deep as a known name is long.
      if (std::ranges::any_of(known, [](auto name) { return name.size() > kMaxNameBytes; })) {
        return error(path, fmt::format("a property name of more than {} bytes is served only with "
                                       "additionalProperties false",
                                       kMaxNameBytes));
      }
      items.push_back(
          {json_.member(json_.other_text({known.begin(), known.end()}), *additional), false, true});
    }
    return json_.braced(grammar_.list(std::move(items), json_.comma()));
  }

  static Result<std::set<std::string_view>> names(const Object& object, std::string_view keyword,
                                                  const std::string& path) {
    std::set<std::string_view> out;
    const JsonValue* value = find_member(object, keyword);
    if (value == nullptr) return out;
    if (value->array() == nullptr) return error(path, fmt::format("{} must be an array", keyword));
    for (const JsonValue& item : *value->array()) {
      if (item.string() == nullptr) {
        return error(path, fmt::format("{} must be an array of strings", keyword));
      }
      out.insert(*item.string());
    }
    return out;
  }

  const JsonValue& root_;
  Grammar grammar_;
  JsonGrammar json_;
  std::map<const JsonValue*, RuleId> rules_;
  std::deque<Open> open_;
  std::deque<JsonValue> merged_;  // their addresses stay
  std::map<std::pair<std::int32_t, std::int32_t>, RuleId> strings_;
  std::size_t parts_ = 0;
};

}  // namespace

Result<Grammar> json_schema_grammar(const JsonValue& schema) { return SchemaReader(schema).read(); }

Grammar json_object_grammar() {
  Grammar grammar;
  JsonGrammar json(grammar);
  grammar.set_start(grammar.add_rule("root", json.any_object()));
  return grammar;
}

}  // namespace sluice
