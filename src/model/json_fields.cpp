#include "model/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/json_text.h"
#include "base/log.h"
#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

std::string shown(const nlohmann::json& value) {
  // Only scalars are shown: a container may be large.
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return quote_text(value.get_ref<const std::string&>());
  return dump_json(value);
}

}  // namespace

const nlohmann::json* JsonFields::find(std::string_view name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::is_null(std::string_view name) const {
  const auto found = object_->find(name);
  return found != object_->end() && found->is_null();
}

std::vector<std::string> JsonFields::names() const {
  std::vector<std::string> result;
  for (const auto& [name, value] : object_->items()) result.push_back(name);
  return result;
}

Error JsonFields::error(std::string_view name, std::string_view message) const {
  return invalid_argument(fmt::format("{}{}: {}", prefix_, name, message));
}

Error JsonFields::refusal(std::string_view name, std::string_view message) const {
  return unsupported(fmt::format("{}{}: {}", prefix_, name, message));
}

Result<std::optional<std::int64_t>> JsonFields::integer(std::string_view name, std::int64_t min,
                                                        std::int64_t max) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::optional<std::int64_t>();
  // An unsigned number beyond 2^63 would turn negative in get<int64_t>.
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (fits) {
    const auto number = value->get<std::int64_t>();
    if (number >= min && number <= max) return std::optional(number);
  }
  return error(name,
               fmt::format("{}; expected a whole number from {} to {}", shown(*value), min, max));
}

Result<std::int64_t> JsonFields::required_integer(std::string_view name, std::int64_t min,
                                                  std::int64_t max) const {
  ASSIGN_OR_RETURN(const auto value, integer(name, min, max));
  if (value) return *value;
  return error(name, fmt::format("is missing; expected a whole number from {} to {}", min, max));
}

Result<std::optional<double>> JsonFields::number(std::string_view name, double min,
                                                 double max) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::optional<double>();
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (std::isfinite(number) && number >= min && number <= max) return std::optional(number);
  }
  return error(name, fmt::format("{}; expected a number from {} to {}", shown(*value), min, max));
}

Result<double> JsonFields::required_number(std::string_view name, double min, double max) const {
  ASSIGN_OR_RETURN(const auto value, number(name, min, max));
  if (value) return *value;
  return error(name, fmt::format("is missing; expected a number from {} to {}", min, max));
}

Result<bool> JsonFields::boolean(std::string_view name, bool absent) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return absent;
  if (value->is_boolean()) return value->get<bool>();
  return error(name, fmt::format("{}; expected true or false", shown(*value)));
}

Result<std::optional<std::string>> JsonFields::string(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_string()) return std::optional(value->get<std::string>());
  return error(name, fmt::format("{}; expected a string", shown(*value)));
}

Result<std::optional<std::vector<std::string>>> JsonFields::strings(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::optional<std::vector<std::string>>();
  if (!value->is_array()) return error(name, shown(*value) + "; expected an array of strings");
  std::vector<std::string> result;
  for (const auto& item : *value) {
    if (!item.is_string()) {
      return error(name, fmt::format("holds {}; expected an array of strings", shown(item)));
    }
    result.push_back(item.get<std::string>());
  }
  return std::optional(std::move(result));
}

Result<std::vector<TokenId>> JsonFields::token_ids(std::string_view name,
                                                   std::int32_t vocab_size) const {
  std::vector<TokenId> result;
  const nlohmann::json* value = find(name);
  if (value == nullptr) return result;
  const std::size_t count = value->is_array() ? value->size() : 1;
  constexpr std::size_t kMaxIds = 1024;
  if (count > kMaxIds) return error(name, fmt::format("more than {} token ids", kMaxIds));
  for (std::size_t i = 0; i < count; ++i) {
    const nlohmann::json& item = value->is_array() ? (*value)[i] : *value;
    if (!item.is_number_integer()) {
      return error(name, fmt::format("{}; expected a token id or a list of them", shown(item)));
    }
    const bool in_range =
        item.is_number_unsigned()
            ? item.get<std::uint64_t>() < static_cast<std::uint64_t>(vocab_size)
            : item.get<std::int64_t>() >= 0 && item.get<std::int64_t>() < std::int64_t{vocab_size};
    if (in_range) {
      result.push_back(item.get<TokenId>());
    } else {
      log_warning(fmt::format("{}{}: {} is not in the vocabulary of {}; left out", prefix_, name,
                              shown(item), vocab_size));
    }
  }
  return result;
}

Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view file) {
  std::string storage;
  const auto strict = strict_json(text, storage);
  if (!strict) return with_context(file, strict.error());
  auto json = parse_json(*strict);
  if (json.is_discarded()) return invalid_argument(fmt::format("{}: not valid JSON", file));
  if (!json.is_object()) return invalid_argument(fmt::format("{}: expected an object", file));
  return json;
}

}  // namespace sluice
