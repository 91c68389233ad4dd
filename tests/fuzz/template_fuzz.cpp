// A template and its context, separated by the first NUL byte. For any input, parsing and rendering
// end with a text or an error, within small limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chat_template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t split = input.find('\0');
  const std::string_view source = input.substr(0, split);
  std::string_view context = "{}";
  if (split != std::string_view::npos) context = input.substr(split + 1);

  const auto parsed = sluice::ChatTemplate::parse(source, "fuzz");
  if (!parsed) return 0;
  auto variables = sluice::ChatContext::from_json(context, {});
  if (!variables) variables = sluice::ChatContext::from_json("{}", {});
  sluice::RenderLimits limits;
  limits.max_steps = 50'000;
  limits.max_value_bytes = std::size_t{4} << 20;
  limits.max_output_bytes = std::size_t{1} << 20;
  static_cast<void>(parsed->render(*variables, limits));
  return 0;
}
