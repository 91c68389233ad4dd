// OpList: ops with their parameters, in order. A capture records a list, and Device::make_graph
// makes a graph of any list.
//
// A list keeps a copy of each op's parameters in which padding is zero. Every op of a list is known
// and has all its parameters: append_bytes(), for lists that are read from a file, refuses others.
// Owner: a value. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "device/ops.h"

namespace sluice {

// One op of a list: its id and the bytes of its struct of parameters. Valid until the list changes.
struct OpCall {
  OpId op{};
  std::span<const std::byte> params;

  // The parameters of an op of this type. REQUIRES: op == Params::kOp.
  template <class Params>
  Params as() const {
    CHECK(op == Params::kOp);
    Params result;
    std::memcpy(static_cast<void*>(&result), params.data(), sizeof(result));
    return result;
  }
};

class OpList {
 public:
  template <class Params>
  void append(const Params& p) {
    append_fields(Params::kOp, reinterpret_cast<const std::byte*>(&p));
  }
  // kInvalidArgument for an unknown id or a wrong number of bytes.
  Status append_bytes(OpId op, std::span<const std::byte> params);

  std::size_t size() const { return calls_.size(); }
  OpCall operator[](std::size_t index) const;
  // The parameters of one op, to be changed in place.
  std::span<std::byte> params(std::size_t index);

  // Calls the ops in order.
  void run(Ops& ops) const;
  // Calls one of them. REQUIRES: index < size().
  void run(Ops& ops, std::size_t index) const;

  // Field by field.
  friend bool operator==(const OpList& a, const OpList& b);
  std::uint64_t hash() const;

 private:
  struct Call {
    OpId op{};
    std::size_t offset = 0;  // in bytes_
  };
  void append_fields(OpId op, const std::byte* params);

  std::vector<Call> calls_;
  std::vector<std::byte> bytes_;
};

// "matmul x.data=0x6000.. x.dtype=2 ...": every field that is not zero.
std::string to_string(const OpCall& call);

// The first op and field in which two lists differ: "op 3 (matmul): out.dims[0] is 4, expected 8".
// Empty where they are equal.
std::string first_difference(const OpList& list, const OpList& expected);

}  // namespace sluice
