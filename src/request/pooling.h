// Pooling: how the hidden states of a prompt become one vector. Plain; any thread.
#pragma once

#include <cstdint>

namespace sluice {

enum class Pooling : std::uint8_t {
  kNone,       // the request wants tokens
  kLastToken,  // the hidden state of the last token
  kMean,       // the mean over all tokens
};

}  // namespace sluice
