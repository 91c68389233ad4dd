#include "request/finish_reason.h"

#include "base/check.h"

namespace sluice {

Error failure_of(FinishReason reason) {
  CHECK(is_failure(reason));
  switch (reason) {
    case FinishReason::kNoMemory:
      return unavailable(
          "the KV memory that is left is too small for this request; send it again later, or lower "
          "max_tokens");
    case FinishReason::kNoAdapter:
      return unavailable("the adapter could not be loaded; the server's log has the cause");
    case FinishReason::kLostKv:
      return unavailable(
          "the KV of this request, which does not fit into memory, could not be read from the disk "
          "or written to it; the server's log has the cause");
    default:
      return internal_error(
          "the model gave logits that are not finite, or the grammar, allowed_token_ids and "
          "bad_words of the request together leave no token, or the process that computed the "
          "request ended (the server's log says so)");
  }
}

}  // namespace sluice
