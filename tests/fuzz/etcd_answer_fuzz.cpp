// Answers of etcd's JSON gateway, and the values that a coordinator keeps there: no text breaks a
// parser, and records that are accepted make a book whose sums agree.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "etcd/etcd_message.h"
#include "lending/lending_records_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(parse_etcd_lease(text));
  static_cast<void>(parse_etcd_outcome(text));
  static_cast<void>(etcd_error_text(400, text));
  LendingRecords records;
  if (const auto range = parse_etcd_range(text)) {
    for (const EtcdPair& pair : range->pairs) {
      CHECK(!pair.key.empty());
      static_cast<void>(read_stored_record(pair.key, pair.value, records));
    }
  }
  static_cast<void>(read_stored_record("party/a", text, records));
  static_cast<void>(read_stored_record("lease/a/x", text, records));
  const LendingOptions options{.budgets = {{"cpu", 1000}}};
  for (const bool settled : {false, true}) {
    LendingBook book(options, TimePoint{}, records, settled);
    book.check_integrity();
    book.advance(TimePoint{options.expiry});
    book.check_integrity();
  }
  return 0;
}
