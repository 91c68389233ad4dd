// Ops: the fused operations that a decoder is made of. Each op is one pure virtual run() for its
// struct of parameters (op_params.h), so an unfinished backend does not build.
//
// Ops run in call order on the device's compute queue; during a capture they are recorded instead.
// No op allocates. On the CPU each row's result is bitwise independent of the other rows in the
// call (fixed order along K and along KV).
// Threads: the engine's thread only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/op_types.h"
#include "device/padding.h"

namespace sluice {

// The interface of a list of ops: run(const Params&) for each.
template <class List>
class OpInterface;
template <>
class OpInterface<TypeList<>> {
 public:
  virtual ~OpInterface() = default;
  void run() = delete;
};
template <class First, class... Rest>
class OpInterface<TypeList<First, Rest...>> : public OpInterface<TypeList<Rest...>> {
 public:
  using OpInterface<TypeList<Rest...>>::run;
  virtual void run(const First& p) = 0;
};

class Ops : public OpInterface<OpTypes> {
 public:
  // Host work, never captured. plan_attention returns the number of bytes that it wrote; they must
  // be on the device when attention runs.
  virtual AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const = 0;
  virtual std::int64_t plan_attention(const AttentionPlanParams& p) = 0;

  // The work of one layer's attention in such a step: useful work, and computed work with padding.
  virtual Work attention_work(const AttentionPlanParams& p) const = 0;
  // The matrix products that were called since it was cleared, including calls in captures.
  ProductRows& products() { return products_; }

  // Device memory of DeviceTraits::library_workspace bytes, or null. It must stay backed while ops
  // and graphs that were captured with it run.
  void set_library_workspace(std::byte* memory) { library_workspace_ = memory; }
  std::byte* library_workspace() const { return library_workspace_; }

 private:
  ProductRows products_;
  std::byte* library_workspace_ = nullptr;
};

// Implements run() of every op by calling Self::execute(const Params&). A backend whose ops differ
// declares an execute() for each op with SLUICE_OPS(SLUICE_DECLARE_EXECUTE) and defines them next
// to its kernels; an op without a definition does not link. A backend that treats all ops alike
// defines one template.
#define SLUICE_DECLARE_EXECUTE(Params) void execute(const Params& p);
template <class Self, class List = OpTypes>
class OpsBase;
template <class Self>
class OpsBase<Self, TypeList<>> : public Ops {};
template <class Self, class First, class... Rest>
class OpsBase<Self, TypeList<First, Rest...>> : public OpsBase<Self, TypeList<Rest...>> {
 public:
  using OpsBase<Self, TypeList<Rest...>>::run;
  void run(const First& p) final { static_cast<Self*>(this)->execute(p); }
};

}  // namespace sluice
