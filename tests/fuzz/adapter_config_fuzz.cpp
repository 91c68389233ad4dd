// adapter_config.json. An accepted configuration gives each module a rank within the limits and a
// finite scale, or an error that names the file.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "adapter/adapter_config.h"
#include "base/check.h"
#include "base/log.h"
#include "device/op_params.h"

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  sluice::set_log_level(sluice::LogLevel::kError);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = sluice::AdapterConfig::parse(text);
  if (!config) {
    CHECK(config.error().message.starts_with("adapter_config.json: "));
    return 0;
  }
  for (const std::string_view module :
       {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj"}) {
    const auto lora = config->find(module);
    if (!lora || !*lora) continue;
    CHECK((*lora)->rank >= 1 && (*lora)->rank <= sluice::LoraTable::kMaxRank);
    CHECK(std::isfinite((*lora)->scale));
  }
  static_cast<void>(config->targets_outside_layers("lm_head"));
  return 0;
}
