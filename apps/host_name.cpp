#include "apps/host_name.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "membership/member_table.h"

namespace sluice {

std::string host_name(const std::string& otherwise) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::string name(host.data());
  std::erase_if(name, [](char c) { return !is_member_name(std::string_view(&c, 1)); });
  name.resize(std::min(name.size(), kMaxMemberName));
  return name.empty() ? otherwise : name;
}

}  // namespace sluice
