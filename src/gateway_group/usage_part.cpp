#include "gateway_group/usage_part.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/content_hash.h"
#include "base/json_depth.h"
#include "gateway/usage_report.h"
#include "gateway/usage_store.h"
#include "server/field_reader.h"
#include "server/json_writer.h"
#include "server/request_json.h"

namespace sluice {
namespace {

constexpr int kPartDepth = 3;
constexpr std::size_t kMaxName = 1024;
constexpr std::size_t kMaxStore = 64;
// Far above any machine, so that the sums of a thousand gateways fit.
constexpr std::int64_t kMaxCount = 1'000'000'000'000'000;
constexpr std::size_t kMaxAmountDigits = 35;

constexpr std::size_t kTexts = 2;   // tenant, function
constexpr std::size_t kCounts = 3;  // requests, tokens of prompts and answers
constexpr std::size_t kAmounts = 1 + 2 * kMemoryKinds;

// The amounts of a usage in the order of a row.
template <class Usage>
auto amounts_of(Usage& usage) {
  std::array<decltype(&usage.core_ns), kAmounts> amounts{&usage.core_ns};
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    amounts[1 + 2 * k] = &usage.memory[k].active;
    amounts[2 + 2 * k] = &usage.memory[k].idle;
  }
  return amounts;
}

bool is_store(std::string_view text) {
  return !text.empty() && text.size() <= kMaxStore &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status read_row(const JsonValue::Array& fields, UsageRow& row) {
  if (fields.size() != kTexts + kCounts + kAmounts) {
    return invalid_argument(
        fmt::format("has {} fields, not {}", fields.size(), kTexts + kCounts + kAmounts));
  }
  std::size_t at = 0;
  for (std::string* out : {&row.tenant, &row.function}) {
    const std::string* text = fields[at++].string();
    if (text == nullptr || text->size() > kMaxName) {
      return invalid_argument(fmt::format("field {} is not a name", at));
    }
    *out = *text;
  }
  for (std::int64_t* out : {&row.usage.requests, &row.prompt_tokens, &row.output_tokens}) {
    const std::int64_t* count = fields[at++].integer();
    if (count == nullptr || *count < 0 || *count > kMaxCount) {
      return invalid_argument(fmt::format("field {} is not from 0 to {}", at, kMaxCount));
    }
    *out = *count;
  }
  for (Amount* out : amounts_of(row.usage)) {
    const std::string* text = fields[at++].string();
    if (text == nullptr || text->size() > kMaxAmountDigits) {
      return invalid_argument(fmt::format("field {} is not an amount", at));
    }
    ASSIGN_OR_RETURN(*out, parse_amount(*text));
  }
  return {};
}

}  // namespace

std::uint32_t usage_part_of(const UsageRow& row) {
  std::string name = row.tenant;
  name += '\0';
  name += row.function;
  return static_cast<std::uint32_t>(content_hash(name).low % kUsageParts);
}

std::string usage_day_prefix(const std::string& prefix, std::string_view day) {
  return day.empty() ? prefix + "/usage/" : fmt::format("{}/usage/{}/", prefix, day);
}

std::string usage_part_key(const std::string& prefix, const UsagePartKey& key) {
  return fmt::format("{}{}/{}", usage_day_prefix(prefix, key.day), key.store, key.part);
}

Result<UsagePartKey> parse_usage_part_key(const std::string& prefix, std::string_view key) {
  const std::string start = usage_day_prefix(prefix, {});
  const auto wrong = [key] { return invalid_argument(fmt::format("{}: is no key of usage", key)); };
  if (!key.starts_with(start)) return wrong();
  const std::string_view rest = key.substr(start.size());
  const std::size_t day_end = rest.find('/');
  const std::size_t part_start = rest.rfind('/');
  if (day_end == std::string_view::npos || part_start <= day_end) return wrong();
  UsagePartKey parsed;
  parsed.day = rest.substr(0, day_end);
  parsed.store = rest.substr(day_end + 1, part_start - day_end - 1);
  const std::string_view number = rest.substr(part_start + 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), parsed.part);
  const bool is_part = error == std::errc{} && end == number.data() + number.size() &&
                       parsed.part < kUsageParts && usage_part_key(prefix, parsed) == key;
  if (!is_part || !is_day(parsed.day) || !is_store(parsed.store)) return wrong();
  return parsed;
}

std::string usage_part_json(const UsagePartRows& rows) {
  std::string out = R"({"rows":)";
  append_json_list(rows, out, [&](const auto& entry) {
    const UsageRow& row = entry.second;
    out += '[';
    append_json_string(row.tenant, out);
    out += ',';
    append_json_string(row.function, out);
    for (const std::int64_t count : {row.usage.requests, row.prompt_tokens, row.output_tokens}) {
      out += ',';
      append_json_integer(count, out);
    }
    for (const Amount* amount : amounts_of(row.usage)) {
      out += fmt::format(R"(,"{}")", amount_text(*amount));
    }
    out += ']';
  });
  out += '}';
  return out;
}

Result<std::vector<UsageRow>> parse_usage_part(std::string_view text, const std::string& day) {
  if (text.size() > kMaxUsagePart) return invalid_argument("the text is longer than 1 MiB");
  if (json_deeper_than(text, kPartDepth)) return invalid_argument("the text is nested too deeply");
  const auto object = parse_request_json(text);
  if (!object) return invalid_argument(object.error().message);
  FieldReader reader(*object, "", nullptr);
  const JsonValue::Array* list = reader.array("rows");
  if (list == nullptr) reader.missing("rows", "a list");
  reader.check_unknown();
  if (reader.failed()) return invalid_argument(reader.error()->message);
  std::vector<UsageRow> rows;
  rows.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    const JsonValue::Array* fields = (*list)[i].array();
    UsageRow& row = rows.emplace_back();
    row.day = day;
    const Status status =
        fields == nullptr ? invalid_argument("is not a list") : read_row(*fields, row);
    if (!status) return with_context(fmt::format("rows[{}]", i), status.error());
  }
  return rows;
}

}  // namespace sluice
