// The file of `serve --config FILE`: YAML, one map from the names of options, without their dashes,
// to values:
//   model: models/demo
//   max-num-seqs: 64
//   enable-prefix-caching: true
//   adapter: [poet=DIR, pirate=DIR]
// Functions; one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

struct ConfigEntry {
  std::string name;                 // of the option: "max-num-seqs"; '_' stands for '-' too
  std::vector<std::string> values;  // texts; several: the option is given several times
  std::string where;                // "FILE:LINE", for messages
};

// kInvalidArgument: not YAML, not a map of such values, or a name that is given twice. Errors name
// file, line and key. Limit: 1 MiB.
Result<std::vector<ConfigEntry>> read_config_file(const std::string& path);
// The same from the file's text; `path` is for messages.
Result<std::vector<ConfigEntry>> parse_config(const std::string& text, std::string_view path);

}  // namespace sluice
