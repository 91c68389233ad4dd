// CsvReader: the rows of a comma-separated text with a line of column names, one by one.
// A field may be quoted ("a ""b"""), lines may end with CR LF, a byte-order mark and blank lines at
// the end are skipped. A quoted field ends on its line, and every row has as many fields as the
// first; everything else is an error. The text and the name outlive the reader. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

class CsvReader {
 public:
  // Reads the column names. `name` stands for the file in messages.
  static Result<CsvReader> open(std::string_view text, std::string_view name);

  const std::vector<std::string>& columns() const { return columns_; }
  std::optional<std::size_t> find(std::string_view column) const;

  // Goes to the next row; false at the end.
  Result<bool> next();
  std::int64_t line() const { return line_; }  // from 1
  const std::string& field(std::size_t column) const { return fields_[column]; }
  // A whole number of `column` from 1 to kMaxRequestTokens.
  Result<std::int32_t> length(std::size_t column) const;
  // FILE:LINE: column "X": got "field", expected ...
  Error unexpected(std::size_t column, std::string_view expected) const;

 private:
  CsvReader(std::string_view text, std::string_view name) : rest_(text), name_(name) {}
  Status split(std::string_view line);
  Error at_line(std::string_view message) const;

  std::string_view rest_;
  std::string_view name_;
  std::int64_t line_ = 0;
  std::vector<std::string> columns_;
  std::vector<std::string> fields_;
};

}  // namespace sluice
