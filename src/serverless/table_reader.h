// TableReader: reads the members of one TOML table with their types and ranges. It keeps the first
// error and returns defaults after it, so that a caller reads all members and asks finish() once.
// Errors are "path:line:column: what.key: what is wrong and what is expected". A key that was not
// asked for is an error that names the nearest known key, or all known keys.
// Owner: the caller, for as long as the table lives. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "serverless/toml_document.h"

namespace sluice {

class TableReader {
 public:
  // `what`: the kind of table for messages, such as "adapter"; empty for the root.
  TableReader(const TomlValue& table, std::string_view what, std::string_view path);

  std::string text(std::string_view key);  // REQUIRES the key; not empty
  std::optional<std::string> optional_text(std::string_view key);
  // A text or a list of texts; empty: the key is missing.
  std::vector<std::string> texts(std::string_view key);
  // `remedy` ends the message of a number that is not in the range.
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high,
                                      std::string_view remedy = "");
  std::optional<bool> boolean(std::string_view key);
  // A finite number above 0, at most `high`.
  std::optional<double> positive(std::string_view key, double high, std::string_view remedy = "");
  std::optional<double> non_negative(std::string_view key, double high);  // from 0 on
  // A size as text ("4GiB") or a whole number of bytes.
  std::optional<std::int64_t> memory_size(std::string_view key);
  // The tables of [[key]], or the one table of [key].
  std::vector<const TomlValue*> tables(std::string_view key);
  const TomlValue* table(std::string_view key);

  // An error at the value of `key`, or at the table if the key is missing. The first one is kept.
  void fail(std::string_view key, std::string_view message);
  bool failed() const { return !status_; }
  // Returns the place of `key`, or of the table if the key is missing.
  TomlPlace place_of(std::string_view key) const;
  // The first error, or that of a key that was not asked for.
  Status finish();
  // The same place and form, for errors that are found later.
  Error error_at(const TomlPlace& place, std::string_view key, std::string_view message) const;

 private:
  const TomlMember* find(std::string_view key);
  std::optional<double> number(std::string_view key, bool zero, double high,
                               std::string_view remedy);

  const TomlValue& table_;
  std::string_view what_;
  std::string_view path_;
  std::vector<std::string_view> known_;  // keys that were asked for
  Status status_;
};

// "; did you mean 'x'?" if a known name is near, else "".
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace sluice
