// host_name(): the name of this machine, as far as it may name a party. Any thread.
#pragma once

#include <string>

namespace sluice {

// 1 to kMaxMemberName characters of member names; `otherwise` if the host has none.
std::string host_name(const std::string& otherwise);

}  // namespace sluice
