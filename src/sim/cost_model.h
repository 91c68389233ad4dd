// CostModel: a step's time on a deployment by a roofline of each operation. A GEMM takes the longer
// of its bytes and its tiles of 128 x 128, whole waves of which run on the SMs; attention its
// operations or the KV it reads; everything else its bytes. Between kernels pass microseconds, the
// ranks of a layer sum their results over NVLink, PCIe or a network, and the host has costs of its
// own (hardware.h). docs/simulator.md derives every term.
//
// Nothing here is fitted, and the form differs from the scheduler's linear predictor, so that a
// predictor tried in simulation is wrong in the ways that a real one is.
//
// Threads: one at a time: a table grows with the largest step seen. O(rows) per step.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/deployment.h"
#include "sim/step_cost.h"

namespace sluice {

// Seconds of one layer on one rank.
struct LayerTime {
  double matmul = 0;
  double attention = 0;
  double other = 0;  // norms, activations, rotary positions
  double all_reduce = 0;

  double total() const { return matmul + attention + other + all_reduce; }
};

class CostModel final : public StepCost {
 public:
  // REQUIRES: check_deployment(deployment).
  explicit CostModel(const Deployment& deployment);

  std::int32_t num_stages() const override { return deployment_.pp; }
  void stage_times(const BatchPlan& plan, std::span<Duration> stages) override;
  Duration send_time(const BatchPlan& plan) const override;

  LayerTime layer_time(const BatchPlan& plan);

  const Deployment& deployment() const { return deployment_; }

 private:
  // One GEMM of [tokens, k] x [k, n].
  struct Matmul {
    double n = 0;
    double k = 0;
  };

  double compute_time(const Matmul& op, std::int64_t tile_rows) const;
  double matmul_time(const Matmul& op, double tokens) const;
  double layer_matmul_time(std::int64_t tokens);
  double attention_time(const BatchPlan& plan) const;
  double all_reduce_time(double bytes) const;
  double head_time(double rows) const;

  Deployment deployment_;
  double flops_ = 0;            // achievable, of GEMMs
  double attention_flops_ = 0;  // and of attention
  double bandwidth_ = 0;        // achievable
  std::array<Matmul, 4> layer_ops_;
  Matmul head_;
  // By tiles of 128 tokens: the time of the tiles of each of a layer's GEMMs.
  std::vector<std::array<double, 4>> tile_times_;
};

}  // namespace sluice
