// UsageStore: the rows of a UsageBook in a SQLite file. A row replaces the one of the same day,
// tenant and function, and all rows of a write() become visible together or not at all; so a crash
// loses what was not written, and nothing counts twice. One process at a time has the file.
// Amounts lie in it as decimal texts, because they do not fit 64 bits.
// Errors name the file. Owner: the gateway. Threads: one at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gateway/usage_row.h"

struct sqlite3;

namespace sluice {

class UsageStore {
 public:
  // Creates the file, for this user only, if there is none. kUnavailable: another process has it.
  static Result<std::unique_ptr<UsageStore>> open(const std::string& path);
  ~UsageStore();
  UsageStore(const UsageStore&) = delete;
  UsageStore& operator=(const UsageStore&) = delete;

  // A random name of this file, for as long as it is there: 16 hexadecimal digits. The first call
  // writes it.
  Result<std::string> id();
  Status write(std::span<const UsageRow> rows);
  // The rows of days from `first` to `last`, in order of day, tenant and function.
  Result<std::vector<UsageRow>> read(const std::string& first, const std::string& last);

 private:
  UsageStore(std::string path, sqlite3* db) : path_(std::move(path)), db_(db) {}
  Status run(const char* sql);
  Error error() const;
  Status prepare_file();
  Status write_rows(std::span<const UsageRow> rows);

  const std::string path_;
  sqlite3* const db_;
};

// An amount as a decimal text, and back. kInvalidArgument unless it is 1 to 38 digits.
std::string amount_text(Amount amount);
Result<Amount> parse_amount(std::string_view text);

}  // namespace sluice
