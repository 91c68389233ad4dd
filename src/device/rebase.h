// Moves a list of ops from one arena to another: each pointer is translated to the same offset of
// the same buffer there. So a list that was captured at one base can run at another
// (Device::make_graph), in this process or another one.
// Pure function; any thread.
#pragma once

#include "base/result.h"
#include "device/arena.h"
#include "device/op_list.h"

namespace sluice {

// Null pointers stay null. kInternal, naming op and field, for a pointer into no buffer of `from`
// or into a buffer that `to` does not have in the same length.
Result<OpList> rebase(const OpList& ops, const Arena& from, const Arena& to);

}  // namespace sluice
