// Files of functions. Each function of an accepted file is found under its names by its own tenant
// and under none of them by another one, unless that tenant has a function of that name too.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serverless/functions_file.h"
#include "serverless/model_name.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const auto file =
      parse_functions(std::string_view(reinterpret_cast<const char*>(data), size), "f.toml");
  if (!file) {
    CHECK(file.error().message.starts_with("f.toml:"));
    return 0;
  }
  const ModelNames names(*file);
  const auto tenants = static_cast<std::int32_t>(file->tenants.size());
  for (std::size_t i = 0; i < file->functions.size(); ++i) {
    const FunctionSpec& function = file->functions[i];
    CHECK(function.tenant >= 0 && function.tenant < tenants);
    CHECK(static_cast<std::size_t>(function.backbone) < file->backbones.size());
    CHECK(function.ttft_slo.count() > 0 && function.idle.count() > 0);
    const auto index = static_cast<std::int32_t>(i);
    CHECK(*names.resolve(function.tenant, function.name) == index);
    CHECK(*names.resolve(function.tenant, names.full_name(index)) == index);
    if (function.adapter.empty()) continue;
    const std::int32_t other = (function.tenant + 1) % tenants;
    if (other != function.tenant) CHECK(!names.resolve(other, names.full_name(index)));
  }
  return 0;
}
