// Frames in both directions: whatever decodes encodes to the same bytes, and a batch that the
// server accepts names only the request that it sent, within the limits of that request.
#include "function/frames.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "function/outstanding.h"

namespace {

using namespace sluice;

template <class Message>
void same_again(const Message& message, std::span<const std::byte> body) {
  const auto bytes = encode_frame(message);
  CHECK(bytes.has_value());
  const auto again = std::span(*bytes).subspan(kFrameLengthBytes);
  CHECK(std::equal(again.begin(), again.end(), body.begin(), body.end()));
  CHECK(*frame_length(*bytes) == body.size());
}

void give_to_server(OutputBatch batch) {
  Request request;
  request.id = 1;
  request.prompt = {1, 2, 3};
  request.sampling.n = 2;
  request.sampling.max_tokens = 4;
  OutstandingRequests outstanding({.vocab_size = 100, .hidden_size = 8, .eos_ids = {}});
  outstanding.add(request);
  if (!outstanding.accept(batch, TimePoint{Duration(1000)})) return;
  for (const OutputEvent& event : batch.events) {
    CHECK(event.request == 1 && event.choice >= 0 && event.choice < 2);
    CHECK(batch.tokens_of(event).size() <= 4);
    CHECK(batch.embedding_of(event).empty());
    CHECK(batch.logprobs_of(event).empty() && batch.prompt_logprobs_of(event).empty());
    CHECK(event.time <= TimePoint{Duration(1000)});
  }
  for (const TokenId token : batch.tokens) CHECK(token >= 0 && token < 100);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto body = std::as_bytes(std::span(data, size));
  if (const auto message = decode_to_function(body)) same_again(*message, body);
  auto message = decode_from_function(body);
  if (!message) return 0;
  same_again(*message, body);
  if (auto* batch = std::get_if<OutputBatch>(&*message)) give_to_server(std::move(*batch));
  return 0;
}
