#include "lending/lending_message.h"

#include <array>

namespace sluice {
namespace {

constexpr std::array kFaults = {LendFault::kBadRequest, LendFault::kUnknownParty,
                                LendFault::kStaleEpoch, LendFault::kUnknownLease,
                                LendFault::kKeyReused,  LendFault::kTooMany,
                                LendFault::kNotLeading};

}  // namespace

std::span<const LendFault> lend_faults() { return kFaults; }

std::string_view lend_kind_name(LendKind kind) {
  return kind == LendKind::kPages ? "pages" : "budget";
}

std::string_view lend_fault_name(LendFault fault) {
  switch (fault) {
    case LendFault::kNone: return "none";
    case LendFault::kBadRequest: return "bad_request";
    case LendFault::kUnknownParty: return "unknown_party";
    case LendFault::kStaleEpoch: return "stale_epoch";
    case LendFault::kUnknownLease: return "unknown_lease";
    case LendFault::kKeyReused: return "key_reused";
    case LendFault::kTooMany: return "too_many";
    case LendFault::kNotLeading: return "not_leading";
  }
  return "";
}

int lend_fault_status(LendFault fault) {
  switch (fault) {
    case LendFault::kNone: return 200;
    case LendFault::kBadRequest: return 400;
    case LendFault::kUnknownParty:
    case LendFault::kUnknownLease: return 404;
    case LendFault::kStaleEpoch:
    case LendFault::kKeyReused: return 409;
    case LendFault::kTooMany: return 429;
    case LendFault::kNotLeading: return 503;
  }
  return 500;
}

}  // namespace sluice
