#include "gateway/function_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

namespace sluice {
namespace {

// The same for every name that this tenant may not call.
ApiError no_such_function(std::string_view name) {
  ApiError error;
  error.status = 404;
  error.message = fmt::format(
      "there is no model '{}' for this key; GET /v1/models lists those that there are", name);
  error.param = "model";
  error.code = "model_not_found";
  return error;
}

// A function of an adapter has its content in the store by its full name, since two tenants may
// use one name.
ModelCard card_of(const FunctionSpec& function, const ServedModel& model) {
  ModelCard card{function.name, model.created, model.limits.max_model_len, {}, {}};
  if (function.adapter.empty()) return card;
  card.root = directory_name(function.adapter);
  card.parent = model.name;
  return card;
}

}  // namespace

FunctionModels::Table::Table(FunctionsFile functions, std::vector<std::int32_t> ids)
    : file(std::move(functions)), names(file), numbers(std::move(ids)) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    positions.emplace(numbers[i], static_cast<std::int32_t>(i));
  }
}

std::optional<std::int32_t> FunctionModels::Table::tenant(std::string_view name) const {
  const auto found = std::ranges::find(file.tenants, name, &TenantSpec::name);
  if (found == file.tenants.end()) return std::nullopt;
  return static_cast<std::int32_t>(found - file.tenants.begin());
}

ApiResult<std::int32_t> FunctionModels::Table::find(std::string_view tenant_name,
                                                    std::string_view name) const {
  const auto caller = tenant(tenant_name);
  if (!caller) return tl::unexpected(no_such_function(name));
  const auto function = names.resolve(*caller, name);
  if (!function) return tl::unexpected(no_such_function(name));
  return *function;
}

std::vector<std::int32_t> FunctionModels::set_file(FunctionsFile file) {
  CHECK(file.backbones.size() == backbones_.size());
  const ModelNames names(file);
  std::vector<std::int32_t> numbers;
  for (std::int32_t i = 0; i < std::ssize(file.functions); ++i) {
    const FunctionSpec& function = file.functions[static_cast<std::size_t>(i)];
    const std::string& tenant = file.tenants[static_cast<std::size_t>(function.tenant)].name;
    const auto next = static_cast<std::int32_t>(numbers_.size());
    numbers.push_back(numbers_.try_emplace({tenant, names.full_name(i)}, next).first->second);
  }
  // Shared with workers that read it.
  auto made = std::make_shared<const Table>(std::move(file), numbers);
  const std::lock_guard lock(mutex_);
  table_ = std::move(made);
  return numbers;
}

// Shared, as the member is.
std::shared_ptr<const FunctionModels::Table> FunctionModels::table() const {
  const std::lock_guard lock(mutex_);
  CHECK(table_ != nullptr);
  return table_;
}

std::string FunctionModels::full_name(std::size_t function) const {
  return table()->names.full_name(static_cast<std::int32_t>(function));
}

// Whether it passed the checks of this file. Its content counts, too, because a call by an older
// file may have read another one meanwhile.
bool FunctionModels::may_use(const Adapter& adapter, const Table& table,
                             std::int32_t function) const {
  const FunctionSpec& spec = table.file.functions[static_cast<std::size_t>(function)];
  if (adapter.source != spec.adapter) return false;
  const std::lock_guard lock(mutex_);
  const auto read = read_.find(table.numbers[static_cast<std::size_t>(function)]);
  if (read == read_.end() || read->second.content != adapter.content->index) return false;
  const AdapterChecks& passed = read->second.checks;
  return passed.pinned == spec.adapter_digest && passed.signers == table.file.signers;
}

Result<SharedAdapter> FunctionModels::adapter_of(const Table& table, std::int32_t function,
                                                 const StopCheck& stop) const {
  const FunctionSpec& spec = table.file.functions[static_cast<std::size_t>(function)];
  if (spec.adapter.empty()) return SharedAdapter();
  AdapterStore& store = *backbones_[static_cast<std::size_t>(spec.backbone)]->adapters;
  const std::string name = table.names.full_name(function);
  SharedAdapter adapter = store.find(name);
  if (adapter != nullptr && may_use(*adapter, table, function)) return adapter;
  AdapterChecks checks{spec.adapter_digest, table.file.signers};
  const SystemClock clock;
  const TimePoint start = clock.now();
  Duration rested{0};  // what others need is no cost of this adapter
  StopCheck timed;
  if (stop) {
    timed = [&]() -> Status {
      const TimePoint begin = clock.now();
      Status status = stop();
      rested += clock.now() - begin;
      return status;
    };
  }
  RETURN_IF_ERROR(check_adapter(spec.adapter, checks, timed));
  ASSIGN_OR_RETURN(adapter, store.load(name, spec.adapter, timed));
  const std::lock_guard lock(mutex_);
  ReadAdapter& read = read_[table.numbers[static_cast<std::size_t>(function)]];
  read.state.bytes = static_cast<std::int64_t>(adapter->content->image.bytes.size());
  read.state.load = clock.now() - start - rested;
  read.checks = std::move(checks);
  read.content = adapter->content->index;
  return adapter;
}

std::optional<AdapterState> FunctionModels::adapter(std::int32_t number) const {
  const auto now = table();
  const auto position = now->positions.find(number);
  if (position == now->positions.end()) return std::nullopt;
  const FunctionSpec& spec = now->file.functions[static_cast<std::size_t>(position->second)];
  if (spec.adapter.empty()) return std::nullopt;
  AdapterState memory;
  {
    const std::lock_guard lock(mutex_);
    const auto read = read_.find(number);
    if (read == read_.end()) return std::nullopt;
    memory = read->second.state;
  }
  const AdapterStore& store = *backbones_[static_cast<std::size_t>(spec.backbone)]->adapters;
  memory.is_loaded = store.find(now->names.full_name(position->second)) != nullptr;
  return memory;
}

SharedContent FunctionModels::adapter_content(std::int32_t number) const {
  const auto now = table();
  const auto position = now->positions.find(number);
  if (position == now->positions.end()) return nullptr;
  const FunctionSpec& spec = now->file.functions[static_cast<std::size_t>(position->second)];
  if (spec.adapter.empty()) return nullptr;
  const AdapterStore& store = *backbones_[static_cast<std::size_t>(spec.backbone)]->adapters;
  const SharedAdapter adapter = store.find(now->names.full_name(position->second));
  return adapter == nullptr ? nullptr : adapter->content;
}

Status FunctionModels::load_adapter(std::int32_t number, const StopCheck& stop) const {
  const auto now = table();
  const auto position = now->positions.find(number);
  if (position == now->positions.end()) return {};  // a reload has left it out
  RETURN_IF_ERROR(adapter_of(*now, position->second, stop));
  return {};
}

void FunctionModels::unload_adapter(std::int32_t number) const {
  const auto now = table();
  const auto position = now->positions.find(number);
  if (position == now->positions.end()) return;
  const FunctionSpec& spec = now->file.functions[static_cast<std::size_t>(position->second)];
  backbones_[static_cast<std::size_t>(spec.backbone)]->adapters->remove(
      now->names.full_name(position->second));
}

ApiResult<NamedModel> FunctionModels::find(std::string_view tenant,
                                           std::optional<std::string_view> name) const {
  if (!name) {
    return tl::unexpected(bad_field("model", "model: is missing; this server has several"));
  }
  const auto now = table();
  const auto function = now->find(tenant, *name);
  if (!function) return tl::unexpected(function.error());
  auto adapter = adapter_of(*now, *function);
  if (!adapter) {
    // Its paths are the operator's business.
    log_error(with_context(*name, adapter.error()).message);
    return tl::unexpected(to_api_error(
        unavailable(fmt::format("the adapter of '{}' cannot be loaded; the operator's log has the "
                                "reason",
                                *name))));
  }
  const auto index = static_cast<std::size_t>(*function);
  const FunctionSpec& spec = now->file.functions[index];
  return NamedModel{backbones_[static_cast<std::size_t>(spec.backbone)], *std::move(adapter),
                    spec.name, now->numbers[index]};
}

ApiResult<ModelCard> FunctionModels::card(std::string_view tenant, std::string_view name) const {
  const auto now = table();
  const auto function = now->find(tenant, name);
  if (!function) return tl::unexpected(function.error());
  const FunctionSpec& spec = now->file.functions[static_cast<std::size_t>(*function)];
  return card_of(spec, *backbones_[static_cast<std::size_t>(spec.backbone)]);
}

std::vector<ModelCard> FunctionModels::cards(std::string_view tenant) const {
  const auto now = table();
  std::vector<ModelCard> cards;
  const auto caller = now->tenant(tenant);
  if (!caller) return cards;
  for (const std::int32_t function : now->names.functions_of(*caller)) {
    const FunctionSpec& spec = now->file.functions[static_cast<std::size_t>(function)];
    cards.push_back(card_of(spec, *backbones_[static_cast<std::size_t>(spec.backbone)]));
  }
  return cards;
}

}  // namespace sluice
