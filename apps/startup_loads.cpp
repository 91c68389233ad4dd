#include "apps/startup_loads.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"

namespace sluice {

Status StartupLoads::load(const std::string& name, const std::function<Status()>& load,
                          std::function<void()> unload) {
  Status status = load();
  if (!status && status.error().code == ErrorCode::kResourceExhausted && !loaded_.empty()) {
    log_info(
        fmt::format("backbone '{}' has no room beside those before it, which leave memory", name));
    for (const auto& [other, unload_other] : std::exchange(loaded_, {})) unload_other();
    status = load();
  }
  if (status) loaded_[name] = std::move(unload);
  return status;
}

}  // namespace sluice
