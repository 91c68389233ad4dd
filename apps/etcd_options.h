// The options of commands that keep their state in etcd: addresses, prefix and certificates.
// Functions; one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "etcd/etcd_members.h"

namespace CLI {
class App;
}

namespace sluice {

// As given; empty = not given.
struct EtcdArguments {
  std::vector<std::string> urls = {};  // of the cluster's members
  std::string prefix = {};             // of keys; a command has its default
  std::string ssl_certfile = {};
  std::string ssl_keyfile = {};
  std::string ssl_cafile = {};
};

// `help`: of --etcd. `group`: of the options in the command's help.
void add_etcd_options(CLI::App& command, EtcdArguments& arguments, const std::string& help,
                      const std::string& group);

// Errors name the option.
Status check_etcd_prefix(const std::string& prefix);
// Null without --etcd. Certificates: all three files or none, and only where each address is https.
Result<std::unique_ptr<EtcdMembers>> etcd_members(const EtcdArguments& arguments);

}  // namespace sluice
