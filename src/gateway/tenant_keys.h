// The keys and limits of a functions file, as the API service takes them, and the check of a file
// that replaces another one.
// Pure functions; any thread.
#pragma once

#include "base/result.h"
#include "server/api_keys.h"
#include "serverless/functions_file.h"

namespace sluice {

ApiKeys tenant_keys(const FunctionsFile& file);

// Backbones are loaded at the start: an error if a name or a directory differs.
Status check_same_backbones(const FunctionsFile& before, const FunctionsFile& after);

}  // namespace sluice
