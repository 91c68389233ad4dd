// The functions file (functions.toml): backbones, adapters, tenants, aliases and budgets, as plain
// data. A function is what a tenant may call: an adapter of its own, or a backbone that is shared
// with it. docs/gateway.md describes every key.
//
// Indices are positions in the vectors of FunctionsFile. Directories are relative to the folder of
// the file; load_functions() makes them complete. Tenants' keys are kept as SHA-256 only.
// Errors name path, line, column and key. Pure except for load_functions(), which reads files; any
// thread. Limits: kMaxTomlBytes, kMaxFunctions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ed25519.h"
#include "base/result.h"
#include "base/sha256.h"
#include "serverless/toml_document.h"

namespace sluice {

inline constexpr std::size_t kMaxFunctions = 100'000;

enum class Batching : std::uint8_t { kWorkConserving, kFillOrExpire, kFixed };

// kFixed: a batch goes when it has `size` requests, or when its oldest one has waited for `delay`.
struct FixedBatch {
  std::int32_t size = 1;
  Duration delay{0};
};

// None: no limit.
struct Quotas {
  std::optional<std::int64_t> requests_per_minute;
  std::optional<std::int64_t> tokens_per_minute;  // of prompts and answers
  std::optional<std::int64_t> concurrency;        // requests at once
  std::optional<double> money_per_day;            // in the currency of the price list

  friend bool operator==(const Quotas&, const Quotas&) = default;
};

struct TenantSpec {
  std::string name;
  std::vector<Sha256Digest> keys;  // one or more; several while a tenant changes its key
  Quotas quotas;
};

struct BackboneSpec {
  std::string name;
  std::string directory;
  TomlPlace place;
};

struct FunctionSpec {
  std::string name;  // the adapter's name, or the backbone's
  std::int32_t tenant = 0;
  std::int32_t backbone = 0;
  std::string adapter;  // directory; empty: the backbone itself
  std::optional<Sha256Digest> adapter_digest;
  Duration ttft_slo{0};
  Duration idle{0};  // without a request for this long, the last instance ends
  TomlPlace place;
};

struct AliasSpec {
  std::string name;
  std::string target;  // a function's name, never an alias
};

struct FunctionsFile {
  std::vector<BackboneSpec> backbones;
  std::vector<TenantSpec> tenants;
  std::vector<FunctionSpec> functions;
  std::vector<AliasSpec> aliases;
  std::vector<Sha256Digest> admin_keys;  // see all tenants, change what is loaded; none: no key may
  Batching batching = Batching::kWorkConserving;
  FixedBatch fixed_batch;
  // One of them must have signed each adapter; none: adapters need no signature.
  std::vector<Ed25519PublicKey> signers;
  bool preload = true;  // artifacts are loaded before they are called
  // Bytes for artifacts that no request uses; none: as much as is free.
  std::optional<std::int64_t> host_memory;
  std::optional<std::int64_t> device_memory;  // of each device
};

// `path` is for messages.
Result<FunctionsFile> parse_functions(std::string_view text, std::string_view path);

// The same for the file of this path with another text, as load_functions() reads it.
Result<FunctionsFile> load_functions_text(std::string_view text, const std::string& path);

// Reads the file, completes the directories and checks that each is there and holds a checkpoint or
// an adapter, by its config.json or adapter_config.json.
Result<FunctionsFile> load_functions(const std::string& path);

// `error`, which loading this backbone of the file at `path` gave, with the file's line, and with
// what to give instead if the directory's content is to blame.
Error unloadable_backbone(std::string_view path, const BackboneSpec& backbone, Error error);

}  // namespace sluice
