#include "workload/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "workload/quote_field.h"
#include "workload/workload.h"

namespace sluice {

namespace {

// Takes the first line of `rest` without its end.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

Error CsvReader::at_line(std::string_view message) const {
  return invalid_argument(fmt::format("{}:{}: {}", name_, line_, message));
}

Error CsvReader::unexpected(std::size_t column, std::string_view expected) const {
  return at_line(fmt::format("column {}: got {}, expected {}", quote_field(columns_[column]),
                             quote_field(fields_[column]), expected));
}

// Fills fields_; its strings keep their memory from row to row.
Status CsvReader::split(std::string_view line) {
  std::size_t count = 0;
  while (true) {
    if (count == fields_.size()) fields_.emplace_back();
    std::string& field = fields_[count++];
    if (line.starts_with('"')) {
      field.clear();
      line.remove_prefix(1);
      while (true) {
        const std::size_t quote = line.find('"');
        if (quote == std::string_view::npos) {
          return at_line(
              fmt::format("field {} begins with a quote and has no closing one on this "
                          "line",
                          count));
        }
        field.append(line.substr(0, quote));
        line.remove_prefix(quote + 1);
        if (!line.starts_with('"')) break;
        field += '"';
        line.remove_prefix(1);
      }
      if (!line.empty() && line.front() != ',') {
        return at_line(fmt::format("field {}: got {} after the closing quote, expected a comma",
                                   count, quote_field(line.substr(0, 1))));
      }
    } else {
      field.assign(line.substr(0, line.find(',')));
      line.remove_prefix(field.size());
    }
    if (line.empty()) break;
    line.remove_prefix(1);
  }
  fields_.resize(count);
  return {};
}

Result<CsvReader> CsvReader::open(std::string_view text, std::string_view name) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  CsvReader reader(text, name);
  const std::string_view line = take_line(reader.rest_);
  reader.line_ = 1;
  if (line.empty()) return reader.at_line("is empty, expected a line of column names");
  RETURN_IF_ERROR(reader.split(line));
  reader.columns_ = reader.fields_;
  for (std::size_t i = 0; i < reader.columns_.size(); ++i) {
    const std::string& column = reader.columns_[i];
    if (reader.find(column) != i) {
      return reader.at_line(fmt::format("column {} is named twice", quote_field(column)));
    }
  }
  return reader;
}

std::optional<std::size_t> CsvReader::find(std::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  if (found == columns_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - columns_.begin());
}

Result<bool> CsvReader::next() {
  if (rest_.empty()) return false;
  const std::string_view line = take_line(rest_);
  ++line_;
  if (line.empty()) {
    if (rest_.find_first_not_of("\r\n") == std::string_view::npos) {
      rest_ = {};
      return false;
    }
    return at_line(fmt::format("is blank, expected {} fields", columns_.size()));
  }
  RETURN_IF_ERROR(split(line));
  if (fields_.size() != columns_.size()) {
    return at_line(fmt::format("got {} fields, expected {} as in the line of column names",
                               fields_.size(), columns_.size()));
  }
  return true;
}

Result<std::int32_t> CsvReader::length(std::size_t column) const {
  const std::string& text = fields_[column];
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > kMaxRequestTokens) {
    return unexpected(column,
                      fmt::format("a whole number of tokens from 1 to {}", kMaxRequestTokens));
  }
  return value;
}

}  // namespace sluice
