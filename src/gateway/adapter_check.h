// The operator's checks of an adapter's files, before they are used: a pinned digest, and a
// signature in the file adapter.sig beside them. The signed text is
// "sluice adapter sha256:" and the digest in 64 hexadecimal digits, so that a signature of another
// text with the same key has no meaning here. Functions; any thread. They read files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ed25519.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/stop_check.h"

namespace sluice {

struct AdapterChecks {
  std::optional<Sha256Digest> pinned;
  std::vector<Ed25519PublicKey> signers;  // none: no signature is needed

  friend bool operator==(const AdapterChecks&, const AdapterChecks&) = default;
};

// The digest of an adapter: SHA-256 of adapter_config.json followed by the adapter's tensors, as
// `cat adapter_config.json adapter_model.safetensors | sha256sum` prints it. `stop`: called after
// each part of about a millisecond.
Result<Sha256Digest> adapter_files_digest(const std::string& directory, const StopCheck& stop = {});

// kUnavailable if the files are not what `checks` ask for; the message says how to mend it. `stop`:
// as above.
Status check_adapter(const std::string& directory, const AdapterChecks& checks,
                     const StopCheck& stop = {});

struct SignedAdapter {
  Sha256Digest digest{};
  Ed25519PublicKey key{};
};

// Writes adapter.sig. `key_file`: a private key (base/ed25519.h).
Result<SignedAdapter> sign_adapter(const std::string& directory, const std::string& key_file);

}  // namespace sluice
