#include "server/served_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"

namespace sluice {
namespace {

constexpr std::size_t kNamesInErrors = 16;

std::string served_names(const ServedModel& model) {
  std::string names = fmt::format("'{}'", model.name);
  if (model.adapters == nullptr) return names;
  const auto adapters = model.adapters->list();
  const std::size_t shown = std::min(adapters.size(), kNamesInErrors);
  for (std::size_t i = 0; i < shown; ++i) names += fmt::format(", '{}'", adapters[i]->name);
  if (shown < adapters.size()) names += fmt::format(" and {} more", adapters.size() - shown);
  return names;
}

}  // namespace

ApiError no_such_model(const ServedModel& model, std::string_view name) {
  ApiError error;
  error.status = 404;
  error.message =
      fmt::format("there is no model '{}' here; this server has {}", name, served_names(model));
  error.param = "model";
  error.code = "model_not_found";
  return error;
}

ApiResult<SharedAdapter> find_served(const ServedModel& model, std::string_view name) {
  if (name == model.name) return SharedAdapter();
  SharedAdapter adapter = model.adapters == nullptr ? nullptr : model.adapters->find(name);
  if (adapter == nullptr) return tl::unexpected(no_such_model(model, name));
  return adapter;
}

std::vector<ModelCard> served_cards(const ServedModel& model) {
  std::vector<ModelCard> cards;
  cards.push_back({model.name, model.created, model.limits.max_model_len, {}, {}});
  if (model.adapters == nullptr) return cards;
  for (const SharedAdapter& adapter : model.adapters->list()) {
    // Not the whole path, which is no client's business. A mix is its own root.
    const bool mixed = !parse_mix(adapter->source).empty();
    cards.push_back({adapter->name, model.created, model.limits.max_model_len,
                     mixed ? adapter->source : directory_name(adapter->source), model.name});
  }
  return cards;
}

}  // namespace sluice
