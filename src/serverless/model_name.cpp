#include "serverless/model_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serverless/functions_file.h"

namespace sluice {
namespace {

constexpr std::string_view kFineTune = "ft:";

}  // namespace

bool is_model_name(std::string_view name, std::string_view extra) {
  const auto is_allowed = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || extra.find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kMaxModelName && std::ranges::all_of(name, is_allowed);
}

ModelNames::ModelNames(const FunctionsFile& file) {
  for (const TenantSpec& tenant : file.tenants) tenants_.push_back(tenant.name);
  for (const AliasSpec& alias : file.aliases) aliases_.push_back({alias.name, alias.target});
  std::ranges::sort(aliases_, {}, &Alias::name);
  std::int32_t index = 0;
  for (const FunctionSpec& function : file.functions) {
    entries_.push_back({function.tenant, function.name, index++});
    const std::string& backbone = file.backbones[static_cast<std::size_t>(function.backbone)].name;
    const std::string& tenant = tenants_[static_cast<std::size_t>(function.tenant)];
    full_names_.push_back(function.adapter.empty() ? function.name
                                                   : fmt::format("{}{}:{}:{}", kFineTune, backbone,
                                                                 tenant, function.name));
  }
  std::ranges::sort(entries_, [](const Entry& a, const Entry& b) {
    return std::tie(a.tenant, a.name) < std::tie(b.tenant, b.name);
  });
}

const ModelNames::Entry* ModelNames::find(std::int32_t tenant, std::string_view name) const {
  const auto is_before = [&](const Entry& entry) {
    return entry.tenant != tenant ? entry.tenant < tenant : entry.name < name;
  };
  const auto it = std::ranges::partition_point(entries_, is_before);
  const bool found = it != entries_.end() && it->tenant == tenant && it->name == name;
  return found ? &*it : nullptr;
}

// Names have no ':', so the last part is the function's name, and the whole text is compared.
const ModelNames::Entry* ModelNames::find_fine_tune(std::int32_t tenant,
                                                    std::string_view name) const {
  const Entry* entry = find(tenant, name.substr(name.rfind(':') + 1));
  if (entry == nullptr) return nullptr;
  return full_names_[static_cast<std::size_t>(entry->function)] == name ? entry : nullptr;
}

Result<std::int32_t> ModelNames::resolve(std::int32_t tenant, std::string_view name) const {
  const Entry* entry = nullptr;
  if (name.starts_with(kFineTune)) {
    entry = find_fine_tune(tenant, name);
  } else {
    const auto alias = std::ranges::lower_bound(aliases_, name, {}, &Alias::name);
    const bool is_alias = alias != aliases_.end() && alias->name == name;
    entry = find(tenant, is_alias ? std::string_view(alias->target) : name);
  }
  if (entry != nullptr) return entry->function;
  return not_found(fmt::format("there is no model '{}' for this key", name));
}

std::vector<std::int32_t> ModelNames::functions_of(std::int32_t tenant) const {
  std::vector<std::int32_t> functions;
  const auto range = std::ranges::equal_range(entries_, tenant, {}, &Entry::tenant);
  for (const Entry& entry : range) functions.push_back(entry.function);
  return functions;
}

std::string ModelNames::full_name(std::int32_t function) const {
  return full_names_[static_cast<std::size_t>(function)];
}

}  // namespace sluice
