// FunctionModels: the models of a gateway. Each tenant has the names of its own functions, by the
// functions file; a name that does not exist and another tenant's name give the same 404. An
// adapter is read when its function is called and it is not in memory, after the checks that the
// file asks for (gateway/adapter_check.h). A file that asks for others makes it read again.
//
// Functions are numbered in the order in which files brought them. A later file may add, change and
// leave out functions; one that comes back has its number again.
// Owner: the command. Threads: add_backbone() and set_file() from the event loop's, the rest from
// any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"
#include "gateway/adapter_check.h"
#include "gateway/instance_host.h"
#include "server/served_models.h"
#include "serverless/functions_file.h"
#include "serverless/model_name.h"

namespace sluice {

class FunctionModels final : public ServedModels {
 public:
  // The model of the next backbone of the file. REQUIRES: it outlives this; it may have adapters.
  void add_backbone(const ServedModel& model) { backbones_.push_back(&model); }
  // Returns the number of each function of the file. REQUIRES: the file's backbones are those that
  // were added.
  std::vector<std::int32_t> set_file(FunctionsFile file);

  // "ft:BACKBONE:TENANT:NAME" or the backbone's name, by position in the last file.
  std::string full_name(std::size_t function) const;

  // The adapter of a function, by its number. None: it has none, was never read, or has left the
  // file.
  std::optional<AdapterState> adapter(std::int32_t number) const;
  // Null: it is not in memory.
  SharedContent adapter_content(std::int32_t number) const;
  // `stop`: called after each part of about a millisecond.
  Status load_adapter(std::int32_t number, const StopCheck& stop = {}) const;
  // Later calls read it again. Requests that hold it go on.
  void unload_adapter(std::int32_t number) const;

  ApiResult<NamedModel> find(std::string_view tenant,
                             std::optional<std::string_view> name) const override;
  std::vector<ModelCard> cards(std::string_view tenant) const override;
  ApiResult<ModelCard> card(std::string_view tenant, std::string_view name) const override;

 private:
  // One file; never changes.
  struct Table {
    Table(FunctionsFile functions, std::vector<std::int32_t> ids);
    std::optional<std::int32_t> tenant(std::string_view name) const;
    // The position of the function that a tenant calls by this name.
    ApiResult<std::int32_t> find(std::string_view tenant_name, std::string_view name) const;

    const FunctionsFile file;
    const ModelNames names;
    const std::vector<std::int32_t> numbers;                   // of the file's functions
    std::unordered_map<std::int32_t, std::int32_t> positions;  // in the file, by number
  };
  // An adapter that was read: its memory, the checks that it passed and the content that passed
  // them.
  struct ReadAdapter {
    AdapterState state;
    AdapterChecks checks;
    std::int32_t content = -1;
  };
  // Shared: a worker may still read a table when the next file replaces it.
  std::shared_ptr<const Table> table() const;
  Result<SharedAdapter> adapter_of(const Table& table, std::int32_t function,
                                   const StopCheck& stop = {}) const;
  bool may_use(const Adapter& adapter, const Table& table, std::int32_t function) const;

  std::vector<const ServedModel*> backbones_;
  std::map<std::pair<std::string, std::string>, std::int32_t> numbers_;  // tenant, full name
  mutable std::mutex mutex_;                                             // for the two below
  mutable std::unordered_map<std::int32_t, ReadAdapter> read_;           // by number
  std::shared_ptr<const Table> table_;  // shared with workers that read it
};

}  // namespace sluice
