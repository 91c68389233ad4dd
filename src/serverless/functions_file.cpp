#include "serverless/functions_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "serverless/model_name.h"
#include "serverless/table_reader.h"

namespace sluice {
namespace {

constexpr std::int64_t kMostInBatch = 1000;
constexpr double kLongestSlo = 3.6e6;     // milliseconds
constexpr double kLongestIdle = 2.592e6;  // seconds: 30 days
constexpr std::int64_t kMostPerMinute = 1'000'000'000'000;
constexpr std::string_view kRename = "rename or remove one of them";

struct FunctionDefaults {
  Duration ttft_slo = std::chrono::milliseconds(2500);  // the paper's, for a model of 7B
  Duration idle = std::chrono::seconds(300);
};

// Reads the sections in the order of their dependencies: tenants, backbones, adapters, aliases.
class FunctionsParser {
 public:
  FunctionsParser(const TomlValue& root, std::string_view path)
      : path_(path), root_(root, "", path) {}

  Result<FunctionsFile> parse() &&;

 private:
  using Names = std::map<std::string, std::int32_t, std::less<>>;

  void read_batching();
  void read_signers();
  Status read_general();
  Status read_tenant(const TomlValue& table);
  std::vector<Sha256Digest> read_keys(TableReader& reader, const std::string& owner);
  Status read_backbone(const TomlValue& table);
  Status read_adapter(const TomlValue& table);
  Status read_aliases(const TomlValue& table);
  Result<std::string> end_of(const TomlValue& aliases, const TomlMember& first) const;
  void read_times(TableReader& reader, FunctionSpec& function) const;
  void read_directory(TableReader& reader, FunctionSpec& function) const;
  std::int32_t index_of(const Names& names, TableReader& reader, std::string_view key,
                        std::string_view kind, const std::string& name) const;
  void take_name(const std::string& name, TableReader& reader);

  std::string_view path_;
  TableReader root_;
  FunctionsFile file_;
  FunctionDefaults defaults_;
  Names tenants_;
  Names backbones_;
  std::set<std::pair<std::int32_t, std::string>> adapters_;  // tenant, name
  std::set<std::string, std::less<>> adapter_names_;
  std::map<Sha256Digest, std::string> keys_;  // to their owners, for messages
};

std::optional<Sha256Digest> digest_of(std::string_view hex) {
  Sha256Digest digest{};
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  const auto nibble = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const int high = nibble(hex[2 * i]);
    const int low = nibble(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return digest;
}

template <class Map>
std::vector<std::string_view> names_of(const Map& map) {
  std::vector<std::string_view> names;
  for (const auto& entry : map) {
    if constexpr (requires { entry.first; }) {
      names.push_back(entry.first);
    } else {
      names.push_back(entry);
    }
  }
  return names;
}

// The name of a model or of a tenant, checked.
std::string read_name(TableReader& reader, std::string_view extra) {
  std::string name = reader.text("name");
  if (!reader.failed() && !is_model_name(name, extra)) {
    reader.fail("name", fmt::format("'{}' must be 1 to {} letters, digits or any of '.-_{}'", name,
                                    kMaxModelName, extra));
  }
  return name;
}

Quotas read_quotas(TableReader& reader) {
  constexpr std::string_view kNone = "; leave the key out for no limit";
  constexpr std::int64_t kMostAtOnce = std::numeric_limits<std::int32_t>::max();
  Quotas quotas;
  quotas.requests_per_minute = reader.integer("requests_per_minute", 1, kMostPerMinute, kNone);
  quotas.tokens_per_minute = reader.integer("tokens_per_minute", 1, kMostPerMinute, kNone);
  quotas.concurrency = reader.integer("concurrency", 1, kMostAtOnce, kNone);
  quotas.money_per_day = reader.positive("money_per_day", 1e12, kNone);
  return quotas;
}

Duration milliseconds_of(double ms) { return from_seconds(ms / 1e3); }

void FunctionsParser::read_batching() {
  const auto batching = root_.optional_text("batching");
  if (batching == "fill-or-expire") {
    file_.batching = Batching::kFillOrExpire;
  } else if (batching == "fixed") {
    file_.batching = Batching::kFixed;
  } else if (batching && *batching != "work-conserving") {
    root_.fail("batching", "must be \"work-conserving\", \"fill-or-expire\" or \"fixed\"");
  }
  const auto size = root_.integer("batch_size", 1, kMostInBatch);
  const auto delay = root_.non_negative("batch_delay_ms", kLongestSlo);
  const bool fixed = file_.batching == Batching::kFixed;
  if (fixed && !size) root_.fail("batch_size", "is missing; batching = \"fixed\" needs it");
  if (!fixed && size) root_.fail("batch_size", "needs batching = \"fixed\"");
  if (!fixed && delay) root_.fail("batch_delay_ms", "needs batching = \"fixed\"");
  file_.fixed_batch = {static_cast<std::int32_t>(size.value_or(1)),
                       milliseconds_of(delay.value_or(0))};
}

void FunctionsParser::read_signers() {
  for (const std::string& text : root_.texts("require_signature")) {
    const auto key = parse_ed25519_public_key(text);
    if (!key) {
      return root_.fail("require_signature",
                        fmt::format("'{}' is not an Ed25519 public key in base64; give the line "
                                    "that `openssl pkey -pubout` prints between BEGIN and END",
                                    text));
    }
    if (std::ranges::find(file_.signers, *key) != file_.signers.end()) {
      return root_.fail("require_signature", fmt::format("'{}' is given twice", text));
    }
    file_.signers.push_back(*key);
  }
}

Status FunctionsParser::read_general() {
  read_batching();
  read_signers();
  if (const TomlValue* table = root_.table("memory")) {
    TableReader reader(*table, "memory", path_);
    file_.host_memory = reader.memory_size("host");
    file_.device_memory = reader.memory_size("device");
    file_.preload = reader.boolean("preload").value_or(true);
    RETURN_IF_ERROR(reader.finish());
  }
  if (const TomlValue* table = root_.table("admin")) {
    TableReader reader(*table, "admin", path_);
    file_.admin_keys = read_keys(reader, "the admin");
    RETURN_IF_ERROR(reader.finish());
  }
  if (const TomlValue* table = root_.table("defaults")) {
    TableReader reader(*table, "defaults", path_);
    if (const auto ms = reader.positive("ttft_slo_ms", kLongestSlo)) {
      defaults_.ttft_slo = milliseconds_of(*ms);
    }
    if (const auto s = reader.positive("idle_s", kLongestIdle)) defaults_.idle = from_seconds(*s);
    RETURN_IF_ERROR(reader.finish());
  }
  return {};
}

std::vector<Sha256Digest> FunctionsParser::read_keys(TableReader& reader,
                                                     const std::string& owner) {
  std::vector<Sha256Digest> digests;
  const auto keys = reader.texts("key_sha256");
  if (keys.empty()) reader.fail("key_sha256", "is missing; give the SHA-256 of a key");
  for (const std::string& hex : keys) {
    const auto digest = digest_of(hex);
    if (!digest) {
      reader.fail("key_sha256", "must be 64 digits of 0-9 and a-f: the SHA-256 of a key");
      break;
    }
    const auto [other, is_new] = keys_.emplace(*digest, owner);
    if (!is_new) {
      reader.fail("key_sha256",
                  fmt::format("{} has this key already; give each its own", other->second));
    }
    digests.push_back(*digest);
  }
  return digests;
}

Status FunctionsParser::read_tenant(const TomlValue& table) {
  TableReader reader(table, "tenant", path_);
  TenantSpec tenant;
  tenant.name = read_name(reader, "");
  tenant.keys = read_keys(reader, fmt::format("tenant '{}'", tenant.name));
  tenant.quotas = read_quotas(reader);
  const auto index = static_cast<std::int32_t>(file_.tenants.size());
  if (!tenants_.emplace(tenant.name, index).second) {
    reader.fail("name", fmt::format("there is a tenant '{}' already; {}", tenant.name, kRename));
  }
  file_.tenants.push_back(std::move(tenant));
  return reader.finish();
}

void FunctionsParser::read_times(TableReader& reader, FunctionSpec& function) const {
  const auto slo = reader.positive("ttft_slo_ms", kLongestSlo);
  const auto idle = reader.positive("idle_s", kLongestIdle);
  function.ttft_slo = slo ? milliseconds_of(*slo) : defaults_.ttft_slo;
  function.idle = idle ? from_seconds(*idle) : defaults_.idle;
}

// The index of a name that another section must have; 0 after an error.
std::int32_t FunctionsParser::index_of(const Names& names, TableReader& reader,
                                       std::string_view key, std::string_view kind,
                                       const std::string& name) const {
  const auto found = names.find(name);
  if (found != names.end()) return found->second;
  std::string remedy = did_you_mean(name, names_of(names));
  if (remedy.empty()) remedy = fmt::format("; add a [[{}]] of this name", kind);
  reader.fail(key, fmt::format("there is no {} '{}'{}", kind, name, remedy));
  return 0;
}

Status FunctionsParser::read_backbone(const TomlValue& table) {
  TableReader reader(table, "backbone", path_);
  BackboneSpec backbone;
  backbone.name = read_name(reader, "/");
  backbone.directory = reader.text("directory");
  backbone.place = reader.place_of("directory");
  const auto index = static_cast<std::int32_t>(file_.backbones.size());
  if (!backbones_.emplace(backbone.name, index).second) {
    reader.fail("name",
                fmt::format("there is a backbone '{}' already; {}", backbone.name, kRename));
  }
  FunctionSpec function;
  function.name = backbone.name;
  function.backbone = index;
  read_times(reader, function);
  const auto names = reader.texts("tenants");
  const bool for_all = names.size() == 1 && names.front() == "*";
  std::set<std::int32_t> tenants;
  for (std::int32_t i = 0; for_all && i < std::ssize(file_.tenants); ++i) tenants.insert(i);
  for (const std::string& name : names) {
    if (for_all || reader.failed()) break;
    if (!tenants.insert(index_of(tenants_, reader, "tenants", "tenant", name)).second) {
      reader.fail("tenants", fmt::format("'{}' is given twice", name));
    }
  }
  if (file_.functions.size() + tenants.size() > kMaxFunctions) {
    reader.fail("tenants", fmt::format("more than {} functions", kMaxFunctions));
    return reader.finish();
  }
  for (const std::int32_t tenant : tenants) {
    function.tenant = tenant;
    file_.functions.push_back(function);
  }
  file_.backbones.push_back(std::move(backbone));
  return reader.finish();
}

// "DIR" or "DIR@sha256:HEX".
void FunctionsParser::read_directory(TableReader& reader, FunctionSpec& function) const {
  constexpr std::string_view kMark = "@sha256:";
  function.adapter = reader.text("directory");
  const std::size_t mark = function.adapter.rfind(kMark);
  if (mark == std::string::npos) return;
  function.adapter_digest = digest_of(function.adapter.substr(mark + kMark.size()));
  function.adapter.resize(mark);
  if (!function.adapter_digest) {
    reader.fail("directory", "'@sha256:' must be followed by 64 digits of 0-9 and a-f");
  } else if (function.adapter.empty()) {
    reader.fail("directory", "names no directory before '@sha256:'");
  }
}

Status FunctionsParser::read_adapter(const TomlValue& table) {
  TableReader reader(table, "adapter", path_);
  FunctionSpec function;
  function.name = read_name(reader, "/");
  function.place = reader.place_of("directory");
  const std::string backbone = reader.text("backbone");
  const std::string tenant = reader.text("tenant");
  read_directory(reader, function);
  read_times(reader, function);
  if (!reader.failed()) {
    function.backbone = index_of(backbones_, reader, "backbone", "backbone", backbone);
    function.tenant = index_of(tenants_, reader, "tenant", "tenant", tenant);
  }
  if (backbones_.contains(function.name)) {
    reader.fail("name", fmt::format("'{}' is the name of a backbone; {}", function.name, kRename));
  }
  if (!reader.failed() && !adapters_.emplace(function.tenant, function.name).second) {
    reader.fail("name", fmt::format("tenant '{}' has an adapter '{}' already; {}", tenant,
                                    function.name, kRename));
  }
  if (file_.functions.size() >= kMaxFunctions) {
    reader.fail("", fmt::format("more than {} functions", kMaxFunctions));
  }
  adapter_names_.insert(function.name);
  file_.functions.push_back(std::move(function));
  return reader.finish();
}

// Follows aliases from `first` to the name of a function.
Result<std::string> FunctionsParser::end_of(const TomlValue& aliases,
                                            const TomlMember& first) const {
  const TableReader reader(aliases, "aliases", path_);
  std::string way = first.key;
  std::set<std::string_view> seen = {first.key};
  std::string_view name = first.value.text;
  while (!backbones_.contains(name) && !adapter_names_.contains(name)) {
    const auto next = std::ranges::lower_bound(aliases.members, name, {}, &TomlMember::key);
    if (next == aliases.members.end() || next->key != name) {
      auto known = names_of(backbones_);
      for (const std::string_view adapter : names_of(adapter_names_)) known.push_back(adapter);
      std::string remedy = did_you_mean(name, known);
      if (remedy.empty()) remedy = "; give the name of a [[backbone]], an [[adapter]] or an alias";
      return reader.error_at(first.place, first.key,
                             fmt::format("there is no model '{}'{}", name, remedy));
    }
    way += fmt::format(" -> {}", name);
    if (!seen.insert(name).second) {
      return reader.error_at(first.place, first.key,
                             fmt::format("a cycle: {}; one of them must name a [[backbone]] or an "
                                         "[[adapter]]",
                                         way));
    }
    name = next->value.text;
  }
  return std::string(name);
}

Status FunctionsParser::read_aliases(const TomlValue& table) {
  const TableReader reader(table, "aliases", path_);
  for (const TomlMember& member : table.members) {
    const std::string& name = member.key;
    if (member.value.kind != TomlValue::Kind::kText) {
      return reader.error_at(member.place, name, "must be the name of a model, as a text");
    }
    if (!is_model_name(name, "/")) {
      return reader.error_at(member.place, name,
                             fmt::format("an alias must be 1 to {} letters, digits or any of "
                                         "'.-_/'",
                                         kMaxModelName));
    }
    if (backbones_.contains(name) || adapter_names_.contains(name)) {
      return reader.error_at(
          member.place, name,
          fmt::format("is the name of a backbone or adapter already; {}", kRename));
    }
  }
  for (const TomlMember& member : table.members) {
    ASSIGN_OR_RETURN(std::string target, end_of(table, member));
    file_.aliases.push_back({member.key, std::move(target)});
  }
  return {};
}

Result<FunctionsFile> FunctionsParser::parse() && {
  RETURN_IF_ERROR(read_general());
  for (const TomlValue* table : root_.tables("tenant")) RETURN_IF_ERROR(read_tenant(*table));
  for (const TomlValue* table : root_.tables("backbone")) RETURN_IF_ERROR(read_backbone(*table));
  for (const TomlValue* table : root_.tables("adapter")) RETURN_IF_ERROR(read_adapter(*table));
  if (const TomlValue* table = root_.table("aliases")) RETURN_IF_ERROR(read_aliases(*table));
  RETURN_IF_ERROR(root_.finish());
  const auto needs = [&](bool has, std::string_view section) -> Status {
    if (has) return {};
    return invalid_argument(fmt::format("{}: has no [[{}]]; give one at least", path_, section));
  };
  RETURN_IF_ERROR(needs(!file_.tenants.empty(), "tenant"));
  RETURN_IF_ERROR(needs(!file_.backbones.empty(), "backbone"));
  if (file_.functions.empty()) {
    return invalid_argument(
        fmt::format("{}: has no function; add an [[adapter]] or give a backbone `tenants`", path_));
  }
  return std::move(file_);
}

// A directory that an entry of the file names, and the content that it must have.
struct Content {
  std::string_view key;
  std::string_view what;
  std::string_view file;  // that each such directory has
  std::string_view remedy;
};
constexpr Content kBackbone = {"backbone.directory", "checkpoint", "config.json",
                               "a Hugging Face checkpoint"};
constexpr Content kAdapter = {"adapter.directory", "adapter", "adapter_config.json",
                              "an adapter that PEFT's save_pretrained() has written"};

// Makes `directory` complete and checks that it is there and has the content.
Status complete(std::string_view path, const std::filesystem::path& folder, const Content& content,
                const TomlPlace& place, std::string& directory) {
  const std::filesystem::path full = (folder / directory).lexically_normal();
  std::error_code error;
  if (!std::filesystem::is_directory(full, error)) {
    return invalid_argument(fmt::format(
        "{}:{}:{}: {}: there is no directory '{}'; give one that exists, relative to this file or "
        "absolute",
        path, place.line, place.column, content.key, full.string()));
  }
  if (!std::filesystem::exists(full / content.file, error)) {
    return invalid_argument(
        fmt::format("{}:{}:{}: {}: '{}' holds no {}, since it has no {}; give the directory of {}",
                    path, place.line, place.column, content.key, full.string(), content.what,
                    content.file, content.remedy));
  }
  directory = full.string();
  return {};
}

}  // namespace

Error unloadable_backbone(std::string_view path, const BackboneSpec& backbone, Error error) {
  const bool of_the_files = error.code == ErrorCode::kInvalidArgument ||
                            error.code == ErrorCode::kNotFound ||
                            error.code == ErrorCode::kUnsupported;
  std::string message = fmt::format("{}:{}:{}: {}: '{}' of backbone '{}' cannot be loaded: {}",
                                    path, backbone.place.line, backbone.place.column, kBackbone.key,
                                    backbone.directory, backbone.name, error.message);
  if (of_the_files) message += fmt::format("; give the directory of {}", kBackbone.remedy);
  return {error.code, std::move(message)};
}

Result<FunctionsFile> parse_functions(std::string_view text, std::string_view path) {
  ASSIGN_OR_RETURN(const TomlValue root, parse_toml(text, path));
  return FunctionsParser(root, path).parse();
}

Result<FunctionsFile> load_functions(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxTomlBytes));
  return load_functions_text(text, path);
}

Result<FunctionsFile> load_functions_text(std::string_view text, const std::string& path) {
  ASSIGN_OR_RETURN(FunctionsFile file, parse_functions(text, path));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (BackboneSpec& backbone : file.backbones) {
    RETURN_IF_ERROR(complete(path, folder, kBackbone, backbone.place, backbone.directory));
  }
  for (FunctionSpec& function : file.functions) {
    if (function.adapter.empty()) continue;
    RETURN_IF_ERROR(complete(path, folder, kAdapter, function.place, function.adapter));
  }
  return file;
}

}  // namespace sluice
