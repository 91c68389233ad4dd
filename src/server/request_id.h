// Request ids: the server keeps a client's X-Request-Id if it is valid, and makes one otherwise.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// 1 to 128 letters, digits and any of - _ . : which are safe in headers and logs.
bool is_sane_request_id(std::string_view id);

// 64 bits from the system's generator: for ids, and for seeds of requests without one.
std::uint64_t random_bits();

// `prefix` and 24 hexadecimal digits.
std::string make_request_id(std::string_view prefix);

}  // namespace sluice
