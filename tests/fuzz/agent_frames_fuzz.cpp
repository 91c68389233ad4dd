// Binary messages between a gateway and its agents. A stream of commands reads the same however it
// is cut, and whatever decodes encodes to the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "agents/agent_frames.h"
#include "base/check.h"

namespace {

using namespace sluice;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The commands of the stream, written again, and whether it was right to its end.
std::string read_again(std::string_view stream, std::size_t cut, bool& right) {
  AgentCommandReader reader;
  std::string written;
  const auto take = [&](AgentCommand command) -> Status {
    const auto bytes = encode_command(command);
    CHECK(bytes.has_value());
    written += text_of(*bytes);
    return {};
  };
  right = reader.put(stream.substr(0, cut), take).has_value() &&
          reader.put(stream.substr(cut), take).has_value();
  return written;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool right = false;
  const std::string whole = read_again(text, size, right);
  CHECK(text.starts_with(whole));
  bool right_in_parts = false;
  CHECK(read_again(text, size / 2, right_in_parts) == whole && right_in_parts == right);
  auto outputs = decode_outputs(text);
  if (!outputs) return 0;
  std::string written;
  for (AgentOutput& output : *outputs) {
    written += text_of(*encode_output(output));
    if (auto* batch = std::get_if<OutputBatch>(&output.frame)) {
      shift_times(Duration::min(), *batch);
      shift_times(Duration::max(), *batch);
    }
  }
  CHECK(written == text);
  return 0;
}
