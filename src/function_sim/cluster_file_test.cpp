#include "function_sim/cluster_file.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

constexpr const char* kGood = R"(
[machine]
devices = 2
device_memory = "40GiB"
worker_s = 1.5

[[model]]
backbone = "m"
memory = 1000
disk_s = 2
copy_s = 0.5
instance_memory = 10
kernels_s = 0.25
adapter_memory = 5
prefill_token_s = 0.001
)";

std::string error_of(const std::string& text) {
  const auto cluster = parse_cluster(text, "c.toml");
  return cluster ? "" : cluster.error().message;
}

TEST(ClusterFileTest, ReadsMachineAndModels) {
  const auto cluster = parse_cluster(kGood, "c.toml");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->devices, 2);
  EXPECT_EQ(cluster->device_bytes, 40LL << 30);
  EXPECT_EQ(cluster->worker.seconds, 1.5);
  ASSERT_EQ(cluster->models.size(), 1U);
  const ModelTimes& model = cluster->models[0];
  EXPECT_EQ(model.weights.host.seconds, 2);
  EXPECT_EQ(model.weights.device.bytes, 1000);
  EXPECT_EQ(model.instance.seconds, 0.25);
  EXPECT_EQ(model.adapter_device.bytes, 5);
}

TEST(ClusterFileTest, ErrorsNameLineAndKey) {
  const std::string good = kGood;
  EXPECT_NE(error_of("").find("machine"), std::string::npos);
  EXPECT_NE(error_of(good + "speed = 1\n").find("speed"), std::string::npos);
  EXPECT_NE(error_of(good + "[[model]]\nbackbone = \"m\"\n").find("twice"), std::string::npos);
  EXPECT_NE(error_of("[machine]\ndevices = 0\ndevice_memory = 1\n").find("c.toml:2"),
            std::string::npos);
  EXPECT_NE(error_of("[machine]\ndevice_memory = 1\n[[model]]\nbackbone = \"m\"\nmemory = 2\n")
                .find("device_memory"),
            std::string::npos);
  EXPECT_NE(error_of("[machine]\ncores = 2\ndevices = 1\nhost_memory = 9\n").find("cores"),
            std::string::npos);
  EXPECT_NE(error_of("[machine]\ncores = 2\n").find("host_memory"), std::string::npos);
  EXPECT_NE(error_of("[machine]\ncores = 2\nhost_memory = 1\n[[model]]\nbackbone = \"m\"\n"
                     "memory = 2\n")
                .find("is more than host_memory"),
            std::string::npos);
}

TEST(ClusterFileTest, SomeKeysAreOfMachinesOfCoresOnly) {
  const std::string cores = "[machine]\ncores = 2\nhost_memory = 9\n";
  const std::string model = "[[model]]\nbackbone = \"m\"\n";
  const auto cluster = parse_cluster(
      cores + "wake_s = 0.5\nhttp_s = 0.25\nhandover_s = 0.75\ncall_cpu_s = 2\n" + model +
          "decode_step_s = 0.125\nprefill_pair_s = 1e-6\nwake_token_s = 1e-4\nstep_margin = 1.5\n"
          "handover_token_s = 2e-4\n"
          "token_memory = 1024\nkv_memory = \"1MiB\"\n",
      "c.toml");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->wake_s, 0.5);
  EXPECT_EQ(cluster->http_s, 0.25);
  EXPECT_EQ(cluster->handover_s, 0.75);
  EXPECT_EQ(cluster->call_cpu_s, 2);
  EXPECT_EQ(cluster->models[0].prefill_pair_s, 1e-6);
  EXPECT_EQ(cluster->models[0].wake_token_s, 1e-4);
  EXPECT_EQ(cluster->models[0].handover_token_s, 2e-4);
  EXPECT_EQ(cluster->models[0].step_margin, 1.5);
  EXPECT_EQ(cluster->models[0].prefill.step_s, 0.125);
  EXPECT_EQ(cluster->models[0].token_bytes, 1024);
  EXPECT_EQ(cluster->models[0].kv_bytes, 1 << 20);
  EXPECT_NE(error_of(cores + model + "prefill_step_s = 1\n").find("prefill_step_s"),
            std::string::npos);
  for (const std::string margin : {"0.5", "3.5"}) {
    EXPECT_NE(error_of(cores + model + "step_margin = " + margin + "\n").find("step_margin"),
              std::string::npos);
  }
  for (const std::string key :
       {"token_memory", "wake_token_s", "handover_token_s", "step_margin"}) {
    EXPECT_NE(error_of(std::string(kGood) + key + " = 1\n").find("need cores"), std::string::npos);
  }
  for (const std::string key : {"wake_s", "handover_s", "call_cpu_s"}) {
    EXPECT_NE(error_of("[machine]\ndevice_memory = 9\n" + key + " = 1\n").find(key),
              std::string::npos);
  }
}

TEST(ClusterFileTest, RestsAreOfMachinesOfCoresAndInOrder) {
  const std::string cores = "[machine]\ncores = 2\nhost_memory = 9\n";
  const std::string first = "[[rest]]\nseconds = 0.05\nfactor = 1\n";
  const auto cluster = parse_cluster(
      cores + "http_s = 0.25\n" + first + "[[rest]]\nseconds = 1\nfactor = 2.5\nhttp_s = 0.5\n",
      "c.toml");
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_EQ(cluster->rests.size(), 2U);
  EXPECT_EQ(cluster->rests[1].seconds, 1);
  EXPECT_EQ(cluster->rests[1].factor, 2.5);
  EXPECT_EQ(cluster->rests[0].http_s, 0.25) << "the machine's";
  EXPECT_EQ(cluster->rests[1].http_s, 0.5);
  EXPECT_NE(error_of(cores + first + first).find("rest.seconds: must be above"), std::string::npos);
  EXPECT_NE(error_of(cores + "[[rest]]\nseconds = 1\n").find("rest.factor: is missing"),
            std::string::npos);
  EXPECT_NE(error_of(cores + "[[rest]]\nfactor = 1\n").find("rest.seconds: is missing"),
            std::string::npos);
  EXPECT_NE(error_of("[machine]\ndevice_memory = 9\n" + first).find("of a machine of cores"),
            std::string::npos);
}

TEST(ClusterFileTest, AMachineOfCoresHasNoDevices) {
  const auto cluster = parse_cluster(
      "[machine]\ncores = 2\nhost_memory = 9\n[[model]]\nbackbone = \"m\"\n"
      "memory = 8\n",
      "c.toml");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->cores, 2);
  EXPECT_EQ(cluster->devices, 0);
  EXPECT_EQ(cluster->host_bytes, 9);
}

}  // namespace
}  // namespace sluice
