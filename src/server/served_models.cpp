#include "server/served_models.h"

#include <utility>

#include "server/served_names.h"

namespace sluice {

ApiResult<NamedModel> OneModel::find(std::string_view /*tenant*/,
                                     std::optional<std::string_view> name) const {
  auto adapter = find_served(model_, name.value_or(model_.name));
  if (!adapter) return tl::unexpected(std::move(adapter).error());
  const std::string& called = *adapter == nullptr ? model_.name : (*adapter)->name;
  return NamedModel{&model_, *adapter, called};
}

std::vector<ModelCard> OneModel::cards(std::string_view /*tenant*/) const {
  return served_cards(model_);
}

ApiResult<ModelCard> OneModel::card(std::string_view /*tenant*/, std::string_view name) const {
  for (ModelCard& one : served_cards(model_)) {
    if (one.id == name) return std::move(one);
  }
  return tl::unexpected(no_such_model(model_, name));
}

}  // namespace sluice
