// CostModel: predicts a step's time on a deployment with a roofline for each operation.
// - A GEMM takes the longer of two times: for its bytes, and for its tiles of 128 x 128, which run
//   on the SMs in whole waves.
// - Attention takes the longer of the times for its operations and for the KV that it reads.
// - Other kernels take the time for their bytes. A few microseconds pass between kernels.
// - The ranks of a layer sum their results over NVLink, PCIe or a network. The host adds its own
//   costs (hardware.h).
// docs/simulator.md derives every term.
//
// No term is fitted, and the form differs from the scheduler's linear predictor. So a predictor
// tested in simulation has errors like those on a real machine.
//
// Threads: one at a time, because a table grows with the largest step seen. O(rows) per step.
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
  Duration collective_time(const BatchPlan& plan) override;

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
  double flops_ = 0;            // achievable in GEMMs
  double attention_flops_ = 0;  // achievable in attention
  double bandwidth_ = 0;        // achievable
  std::array<Matmul, 4> layer_ops_;
  Matmul head_;
  // By number of 128-token tiles: the compute time of each of a layer's GEMMs.
  std::vector<std::array<double, 4>> tile_times_;
};

}  // namespace sluice
