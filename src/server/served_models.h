// ServedModels: says which model a call's `model` names, and which models a caller sees. A server
// of one model has OneModel; in a server of many functions each tenant has names of its own.
// Owner: the command. Threads: any; find() may read an adapter's files, so a worker calls it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapter_store.h"
#include "front/served_model.h"
#include "server/api_error.h"
#include "server/response_json.h"

namespace sluice {

// The model, adapter and function that a name stands for.
struct NamedModel {
  const ServedModel* model = nullptr;  // never null in a result
  SharedAdapter adapter;               // null: the base model
  std::string name;                    // for the answer
  std::int32_t function = -1;          // Request::function
};

class ServedModels {
 public:
  virtual ~ServedModels() = default;

  // `tenant`: the name of the caller's key; empty: no key was needed. `name`: absent where a call
  // may leave it out. Errors: 404 for a name that the tenant may not call, 400 for a missing name
  // if there are several models.
  virtual ApiResult<NamedModel> find(std::string_view tenant,
                                     std::optional<std::string_view> name) const = 0;
  // For /v1/models. These read no files.
  virtual std::vector<ModelCard> cards(std::string_view tenant) const = 0;
  virtual ApiResult<ModelCard> card(std::string_view tenant, std::string_view name) const = 0;
};

// A model and its adapters, the same for all callers.
class OneModel final : public ServedModels {
 public:
  // REQUIRES: the model outlives it.
  explicit OneModel(const ServedModel& model) : model_(model) {}

  ApiResult<NamedModel> find(std::string_view tenant,
                             std::optional<std::string_view> name) const override;
  std::vector<ModelCard> cards(std::string_view tenant) const override;
  ApiResult<ModelCard> card(std::string_view tenant, std::string_view name) const override;

 private:
  const ServedModel& model_;
};

}  // namespace sluice
