// The secret under which a tier's names and checksums are made. It lies in a file
// outside of the tier's folder, so that a reader of the folder cannot tell which prompts are in
// it, and a writer cannot make blocks that pass the checks.
// Functions; any thread.
#pragma once

#include <string>

#include "base/hmac.h"
#include "base/result.h"

namespace sluice {

// $XDG_STATE_HOME/sluice/kv-secret or ~/.local/state/sluice/kv-secret; empty when neither variable
// is an absolute path.
std::string default_secret_path();

// The secret of a file of this user that no other user can read. Errors name the path.
Result<HmacKey> read_tier_secret(const std::string& path);
// The same; a file that does not exist is made with 32 random bytes (mode 0600).
Result<HmacKey> load_tier_secret(const std::string& path);

// The secret derived from the key of --kv-disk-key: a file of this user that no other user can
// read, with 32 bytes, or 64 hexadecimal digits and a line end. Errors name the path.
Result<HmacKey> read_tier_key(const std::string& path);

}  // namespace sluice
