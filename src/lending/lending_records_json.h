// Records of a LendingBook as keys and JSON values of a store: `party/NAME` and `lease/PARTY/NAME`.
// Errors name the key and the field. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "lending/lending_book.h"

namespace sluice {

// A key, and its value; absent: the key is gone.
using StoredRecord = std::pair<std::string, std::optional<std::string>>;

std::vector<StoredRecord> stored_records(const LendingChanges& changes);

// Adds the record of one key to `records`.
Status read_stored_record(std::string_view key, std::string_view value, LendingRecords& records);

}  // namespace sluice
