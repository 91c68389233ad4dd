#include "device/recorded_ops.h"

#include <cstring>
#include <span>

#include "base/check.h"

namespace sluice {

GraphNode RecordedOps::node(std::size_t index) const {
  CHECK(index < nodes_.size());
  const Node& node = nodes_[index];
  return {node.op, std::span(params_).subspan(node.offset, node.bytes)};
}

void RecordedOps::append_bytes(OpId op, const void* params, std::size_t bytes) {
  const std::size_t offset = params_.size();
  params_.resize(offset + bytes);
  std::memcpy(params_.data() + offset, params, bytes);
  nodes_.push_back({op, offset, bytes});
}

}  // namespace sluice
