// The options of `serve --kv-cache-memory MIN-MAX` and of --lend, as given and as read.
// Values: plain; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "http/base_url.h"
#include "membership/bearer_token.h"
#include "offload/lent_memory.h"

namespace sluice {

// As given; empty = not given.
struct LendArguments {
  std::string url;
  std::string token_file;
  std::string device;
  std::string lend_pages;
  std::string borrow_pages;
};

struct LendSettings {
  http::BaseUrl url;  // without --lend: not meaningful
  std::string url_text;
  std::optional<BearerToken> token;  // absent without --lend
  std::string device;
  std::int64_t least = 0;  // MIN and MAX of --kv-cache-memory
  std::int64_t most = 0;
  std::int64_t lend_pages = 0;                     // 0: without
  std::optional<std::int32_t> gpu = std::nullopt;  // whose memory pages are; absent: the machine's
  std::shared_ptr<LentMemory> borrowed = nullptr;  // --borrow-pages: shared with the tier
};

}  // namespace sluice
