#include "serverless/table_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/memory_size.h"
#include "base/nearest_name.h"

namespace sluice {

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& known) {
  const std::string_view nearest = nearest_name(name, known);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

TableReader::TableReader(const TomlValue& table, std::string_view what, std::string_view path)
    : table_(table), what_(what), path_(path) {}

Error TableReader::error_at(const TomlPlace& place, std::string_view key,
                            std::string_view message) const {
  const std::string_view dot = what_.empty() || key.empty() ? "" : ".";
  return invalid_argument(fmt::format("{}:{}:{}: {}{}{}: {}", path_, place.line, place.column,
                                      what_, dot, key, message));
}

void TableReader::fail(std::string_view key, std::string_view message) {
  if (!status_) return;
  status_ = error_at(place_of(key), key, message);
}

TomlPlace TableReader::place_of(std::string_view key) const {
  const auto it = std::ranges::find(table_.members, key, &TomlMember::key);
  return it == table_.members.end() ? table_.place : it->place;
}

const TomlMember* TableReader::find(std::string_view key) {
  known_.push_back(key);
  const auto it = std::ranges::find(table_.members, key, &TomlMember::key);
  return it == table_.members.end() ? nullptr : &*it;
}

std::string TableReader::text(std::string_view key) {
  auto found = optional_text(key);
  if (!found) fail(key, "is missing; give a text");
  return found.value_or("");
}

std::optional<std::string> TableReader::optional_text(std::string_view key) {
  const TomlMember* member = find(key);
  if (member == nullptr) return std::nullopt;
  if (member->value.kind != TomlValue::Kind::kText || member->value.text.empty()) {
    fail(key, "must be a text that is not empty");
  }
  return member->value.text;
}

std::vector<std::string> TableReader::texts(std::string_view key) {
  const TomlMember* member = find(key);
  if (member == nullptr) return {};
  std::vector<std::string> texts;
  const bool one = member->value.kind == TomlValue::Kind::kText;
  if (one) texts.push_back(member->value.text);
  for (const TomlValue& item : member->value.items) texts.push_back(item.text);
  if (texts.empty() || std::ranges::any_of(texts, &std::string::empty)) {
    fail(key, "must be a text or a list of texts, none of them empty");
  }
  return texts;
}

std::optional<std::int64_t> TableReader::integer(std::string_view key, std::int64_t low,
                                                 std::int64_t high, std::string_view remedy) {
  const TomlMember* member = find(key);
  if (member == nullptr) return std::nullopt;
  const TomlValue& value = member->value;
  if (value.kind != TomlValue::Kind::kInteger || value.integer < low || value.integer > high) {
    fail(key, fmt::format("must be a whole number between {} and {}{}", low, high, remedy));
  }
  return value.integer;
}

std::optional<bool> TableReader::boolean(std::string_view key) {
  const TomlMember* member = find(key);
  if (member == nullptr) return std::nullopt;
  if (member->value.kind != TomlValue::Kind::kBoolean) fail(key, "must be true or false");
  return member->value.boolean;
}

std::optional<double> TableReader::number(std::string_view key, bool zero, double high,
                                          std::string_view remedy) {
  const TomlMember* member = find(key);
  if (member == nullptr) return std::nullopt;
  const TomlValue& value = member->value;
  const bool is_number =
      value.kind == TomlValue::Kind::kInteger || value.kind == TomlValue::Kind::kNumber;
  const bool is_high_enough = zero ? value.number >= 0 : value.number > 0;
  if (!is_number || !is_high_enough || !(value.number <= high)) {
    fail(key, fmt::format("must be a number {} and at most {}{}",
                          zero ? "of at least 0" : "above 0", high, remedy));
  }
  return value.number;
}

std::optional<double> TableReader::positive(std::string_view key, double high,
                                            std::string_view remedy) {
  return number(key, false, high, remedy);
}

std::optional<double> TableReader::non_negative(std::string_view key, double high) {
  return number(key, true, high, "");
}

std::optional<std::int64_t> TableReader::memory_size(std::string_view key) {
  const TomlMember* member = find(key);
  if (member == nullptr) return std::nullopt;
  const TomlValue& value = member->value;
  if (value.kind == TomlValue::Kind::kInteger && value.integer > 0) return value.integer;
  if (value.kind == TomlValue::Kind::kText) {
    const auto bytes = read_memory_size(value.text);
    if (bytes) return *bytes;
    fail(key, bytes.error().message);
    return std::nullopt;
  }
  fail(key, "must be a size such as \"4GiB\", \"512MiB\" or a number of bytes above 0");
  return std::nullopt;
}

std::vector<const TomlValue*> TableReader::tables(std::string_view key) {
  const TomlMember* member = find(key);
  if (member == nullptr) return {};
  std::vector<const TomlValue*> tables;
  const TomlValue& value = member->value;
  if (value.kind == TomlValue::Kind::kTable) tables.push_back(&value);
  for (const TomlValue& item : value.items) {
    if (item.kind == TomlValue::Kind::kTable) tables.push_back(&item);
  }
  const bool is_one = value.kind == TomlValue::Kind::kTable;
  if (!is_one && (value.kind != TomlValue::Kind::kList || tables.size() != value.items.size())) {
    fail(key, fmt::format("must be a table: write [[{}]]", key));
  }
  return tables;
}

const TomlValue* TableReader::table(std::string_view key) {
  const TomlMember* member = find(key);
  if (member == nullptr) return nullptr;
  if (member->value.kind == TomlValue::Kind::kTable) return &member->value;
  fail(key, fmt::format("must be a table: write [{}]", key));
  return nullptr;
}

Status TableReader::finish() {
  for (const TomlMember& member : table_.members) {
    if (!status_) break;
    if (std::ranges::find(known_, member.key) != known_.end()) continue;
    std::string remedy = did_you_mean(member.key, known_);
    if (remedy.empty()) remedy = fmt::format("; the keys here are {}", fmt::join(known_, ", "));
    status_ = error_at(member.place, member.key, "is not a known key" + remedy);
  }
  return std::exchange(status_, Status());
}

}  // namespace sluice
