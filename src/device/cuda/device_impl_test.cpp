#include "device/cuda/device_impl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "device/arena.h"
#include "device/host_buffer.h"
#include "tests/support/cuda/fake_driver.h"

namespace sluice::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.runs_kernels = true;
    auto device = make_device(FakeDriver::api(), 0);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    const auto range = device_->reserve(1);
    ASSERT_TRUE(range);
    range_ = *range;
    ASSERT_TRUE(device_->back(range_, 0, range_.bytes, Backing::memory()));
  }
  // Releases everything; the fake driver has no resource left.
  void TearDown() override {
    device_->unback(range_, 0, range_.bytes);
    device_->release(range_);
    device_.reset();
    EXPECT_THAT(fake_.broken_rules, testing::IsEmpty());
    if (fake_.fault != CUDA_SUCCESS) return;  // then the driver gives nothing back
    EXPECT_EQ(fake_.contexts, 0);
    EXPECT_EQ(fake_.streams, 0);
    EXPECT_EQ(fake_.events, 0);
    EXPECT_EQ(fake_.pinned, 0);
    EXPECT_EQ(fake_.modules, 0);
    EXPECT_THAT(fake_.graphs, testing::IsEmpty());
    EXPECT_THAT(fake_.executables, testing::IsEmpty());
    EXPECT_THAT(fake_.allocations, testing::IsEmpty());
    EXPECT_THAT(fake_.reserved, testing::IsEmpty());
  }

  // Rows of a table of 4 by 8, which holds its indices.
  EmbedParams embed(std::vector<std::int32_t> ids) {
    std::vector<float> table(32);
    std::iota(table.begin(), table.end(), 0.0F);
    EXPECT_TRUE(device_->copy_to_device(range_.base, table.data(), 128));
    EXPECT_TRUE(device_->copy_to_device(range_.base + 1024, ids.data(), ids.size() * 4));
    const auto rows = static_cast<std::int32_t>(ids.size());
    return {matrix_view(range_.base, DType::kF32, 4, 8),
            reinterpret_cast<const std::int32_t*>(range_.base + 1024),
            matrix_view(range_.base + 4096, DType::kF32, rows, 8),
            {nullptr, rows}};
  }
  Result<std::unique_ptr<Graph>> capture(const EmbedParams& params) {
    EXPECT_TRUE(device_->begin_capture());
    device_->ops().run(params);
    return device_->end_capture();
  }
  void expect_graph_without_driver(std::string_view why);
  float first_of_row(std::size_t row) {
    float value = -1.0F;
    EXPECT_TRUE(device_->copy_to_host(&value, range_.base + 4096 + row * 32, 4));
    return value;
  }

  FakeDriver fake_;
  std::unique_ptr<Device> device_;
  AddressRange range_;
};

TEST_F(CudaDeviceTest, DescribesItself) {
  const DeviceTraits& traits = device_->traits();
  EXPECT_EQ(traits.name, "cuda:0");
  EXPECT_THAT(traits.description, HasSubstr("Fake GPU, capability 9.0"));
  EXPECT_FALSE(traits.host_accessible);
  EXPECT_FALSE(traits.maps_files);
  EXPECT_EQ(traits.granularity, std::size_t{64} << 20);
  EXPECT_EQ(device_->back(range_, 0, 1, Backing::file(0)).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(traits.no_fp8, "");
}

TEST_F(CudaDeviceTest, SaysWhyWeightsCannotBeInFp8) {
  fake_.capability = 8;
  const auto older = make_device(FakeDriver::api(), 0);
  ASSERT_TRUE(older) << older.error().message;
  EXPECT_EQ((*older)->traits().no_fp8,
            "cuda:0 has capability 8.0, and weights in FP8 need 9.0 or later");
}

TEST_F(CudaDeviceTest, MatmulsTakeInputsOfTheOtherWeightsDtypeWithFp8) {
  const DeviceTraits& traits = device_->traits();
  for (const DType others : {DType::kBF16, DType::kF16, DType::kF32}) {
    EXPECT_EQ(traits.matmul_input_dtype(DType::kF8E4M3, others), others);
  }
}

TEST_F(CudaDeviceTest, LargeCopiesGoThereAndBack) {
  std::vector<std::uint32_t> numbers((std::size_t{40} << 20) / 4 + 3);
  std::iota(numbers.begin(), numbers.end(), 7U);
  ASSERT_TRUE(device_->copy_to_device(range_.base + 4, numbers.data(), numbers.size() * 4));
  std::vector<std::uint32_t> back(numbers.size());
  ASSERT_TRUE(device_->copy_to_host(back.data(), range_.base + 4, back.size() * 4));
  EXPECT_TRUE(back == numbers);
  ASSERT_TRUE(device_->copy_to_device(range_.base, numbers.data(), 0));
}

TEST_F(CudaDeviceTest, CopiesOfHostMemoryRunWhileTheHostGoesOn) {
  EXPECT_TRUE(device_->traits().asynchronous);
  fake_.runs_late = true;
  auto source = HostBuffer::create(*device_, 64);
  auto target = HostBuffer::create(*device_, 64);
  ASSERT_TRUE(source && target);
  const auto number = [](const HostBuffer& buffer) {
    return reinterpret_cast<std::int32_t*>(buffer.data());
  };
  *number(*target) = -1;
  *number(*source) = 1;
  ASSERT_TRUE(device_->copy_to_device(range_.base, source->data(), 4));
  ASSERT_TRUE(device_->copy_to_host(target->data(), range_.base, 4));
  ASSERT_TRUE(device_->mark(Queue::kCompute, 0));
  ASSERT_TRUE(device_->copy_to_device(range_.base, source->data() + 4, 4));
  ASSERT_TRUE(device_->mark(Queue::kCompute, 1));
  EXPECT_EQ(*number(*target), -1) << "nothing has been waited for";
  ASSERT_TRUE(device_->wait(Queue::kCompute, 0));
  EXPECT_EQ(*number(*target), 1);
  EXPECT_FALSE((fake_.outstanding() == 0)) << "work submitted after the mark still runs";
  EXPECT_EQ(fake_.calls["cuStreamSynchronize"], 0);
  EXPECT_FALSE(device_->time_between(0, 1)) << "the second mark has not been reached";
  fake_.milliseconds = 2.5F;
  ASSERT_TRUE(device_->wait(Queue::kCompute, 1));
  EXPECT_TRUE((fake_.outstanding() == 0));
  const auto time = device_->time_between(0, 1);
  ASSERT_TRUE(time) << time.error().message;
  EXPECT_EQ(*time, std::chrono::microseconds(2500));
}

TEST_F(CudaDeviceTest, QueuesRunIndependentlyButForMarks) {
  fake_.runs_late = true;
  auto pinned = HostBuffer::create(*device_, 64);
  ASSERT_TRUE(pinned);
  auto* const words = reinterpret_cast<std::int32_t*>(pinned->data());
  words[0] = 1;
  const auto copy = [&](Queue queue, CopyKind kind, void* target, const void* source) {
    ASSERT_TRUE(device_->copy(queue, kind, target, source, 4));
  };
  copy(Queue::kCompute, CopyKind::kHostToDevice, range_.base, words);
  ASSERT_TRUE(device_->mark(Queue::kCompute, 2));
  copy(Queue::kTransfer, CopyKind::kDeviceToHost, words + 1, range_.base);
  words[1] = words[2] = -1;
  ASSERT_TRUE(device_->mark(Queue::kTransfer, 2));
  ASSERT_TRUE(device_->wait(Queue::kTransfer, 2));
  EXPECT_EQ(words[1], 0) << "the transfer has overtaken the copy before it";
  ASSERT_TRUE(device_->wait_in(Queue::kTransfer, Queue::kCompute, 2));
  copy(Queue::kTransfer, CopyKind::kDeviceToDevice, range_.base + 64, range_.base);
  copy(Queue::kTransfer, CopyKind::kDeviceToHost, words + 2, range_.base + 64);
  ASSERT_TRUE(device_->mark(Queue::kTransfer, 3));
  for (int i = 0; i < fake_.queries_before_done; ++i) {
    EXPECT_FALSE(device_->reached(Queue::kTransfer, 3).value_or(true));
    EXPECT_EQ(words[2], -1);
  }
  EXPECT_TRUE(device_->reached(Queue::kTransfer, 3).value_or(false));
  EXPECT_EQ(words[2], 1);
  ASSERT_TRUE(device_->synchronize());
}

TEST_F(CudaDeviceTest, TransfersIntoFreshMemoryRunAfterItWasZeroed) {
  fake_.runs_late = true;
  const auto fresh = device_->reserve(1);
  ASSERT_TRUE(fresh);
  const int before = fake_.calls["cuStreamWaitEvent"];
  ASSERT_TRUE(device_->back(*fresh, 0, fresh->bytes, Backing::memory()));
  EXPECT_EQ(fake_.calls["cuStreamWaitEvent"], before + 1);
  device_->unback(*fresh, 0, fresh->bytes);
  device_->release(*fresh);
}

TEST_F(CudaDeviceTest, AFaultShowsOnBothQueues) {
  device_->ops().run(embed({4}));  // the table has 4 rows
  EXPECT_FALSE(device_->synchronize(Queue::kCompute));
  EXPECT_EQ(device_->reached(Queue::kTransfer, 0).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(device_->synchronize(Queue::kTransfer));
}

TEST_F(CudaDeviceTest, CopiesOfOtherMemoryLeaveItToTheCaller) {
  fake_.runs_late = true;
  std::int32_t value = 7;
  ASSERT_TRUE(device_->copy_to_device(range_.base, &value, 4));
  value = 8;
  std::int32_t back = 0;
  ASSERT_TRUE(device_->copy_to_host(&back, range_.base, 4));
  EXPECT_EQ(back, 7);
}

TEST_F(CudaDeviceTest, AFaultShowsAtTheWaitForItsMark) {
  const EmbedParams good = embed({3});
  const EmbedParams bad = embed({4});  // the table has 4 rows
  fake_.runs_late = true;
  device_->ops().run(bad);
  ASSERT_TRUE(device_->mark(Queue::kCompute, 2));
  device_->ops().run(good);
  const auto waited = device_->wait(Queue::kCompute, 2);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(waited.error().message, HasSubstr("CUDA_ERROR_LAUNCH_FAILED"));
  EXPECT_FALSE(device_->synchronize());
}

TEST_F(CudaDeviceTest, ArenasLieOnIt) {
  ArenaPlan plan;
  plan.add(RegionKind::kWeights, "m/w", 100);
  plan.reserve(RegionKind::kKv, std::size_t{256} << 20);
  plan.finish(device_->traits().granularity);
  auto arena = Arena::create(*device_, std::move(plan));
  ASSERT_TRUE(arena) << arena.error().message;
  ASSERT_TRUE(arena->grow(RegionKind::kWeights, 100));
  ASSERT_TRUE(arena->grow(RegionKind::kKv, std::size_t{200} << 20));
  EXPECT_EQ(arena->backed_bytes(RegionKind::kKv), std::size_t{256} << 20);
  arena->shrink(RegionKind::kKv, std::size_t{100} << 20);
  EXPECT_EQ(arena->backed_bytes(RegionKind::kKv), std::size_t{128} << 20);
  ASSERT_TRUE(arena->protect(RegionKind::kWeights, Protection::kReadOnly));
}

TEST_F(CudaDeviceTest, OpsRunOnTheStream) {
  device_->ops().run(embed({2, 1}));
  EXPECT_EQ(first_of_row(0), 16.0F);
  EXPECT_EQ(first_of_row(1), 8.0F);
}

TEST_F(CudaDeviceTest, ACaptureRecordsAndAReplayRuns) {
  const EmbedParams params = embed({2, 1});
  {
    ASSERT_TRUE(device_->begin_capture());
    device_->ops().run(params);
    device_->ops().run(AllReduceParams{params.out, 1, params.rows});
    auto graph = device_->end_capture();
    ASSERT_TRUE(graph) << graph.error().message;
    EXPECT_THAT(fake_.launches, testing::IsEmpty());
    ASSERT_EQ((*graph)->ops().size(), 2U);
    EXPECT_EQ((*graph)->ops()[0].op, EmbedParams::kOp);
    EXPECT_EQ((*graph)->ops()[0].params.size(), sizeof(EmbedParams));
    EXPECT_EQ((*graph)->ops()[1].op, AllReduceParams::kOp)
        << "an op without a kernel is listed too";
    EXPECT_EQ(first_of_row(0), 0.0F);
    ASSERT_TRUE(device_->replay(**graph));
    EXPECT_EQ(first_of_row(0), 16.0F);
  }
  EXPECT_THAT(fake_.executables, testing::IsEmpty());
}

TEST_F(CudaDeviceTest, AListThatWasNotCapturedRunsAsAGraph) {
  OpList list;
  list.append(embed({2, 1}));
  auto graph = device_->make_graph(list);
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_THAT(fake_.launches, testing::IsEmpty()) << "making it runs nothing";
  EXPECT_EQ((*graph)->ops(), list);
  ASSERT_TRUE(device_->replay(**graph));
  EXPECT_EQ(first_of_row(0), 16.0F);
}

TEST_F(CudaDeviceTest, NothingElseWorksWhileCapturing) {
  ASSERT_TRUE(device_->begin_capture());
  int word = 0;
  EXPECT_EQ(device_->copy_to_device(range_.base, &word, 4).error().code, ErrorCode::kInternal);
  EXPECT_EQ(device_->copy_to_host(&word, range_.base, 4).error().code, ErrorCode::kInternal);
  EXPECT_FALSE(device_->begin_capture());
  EXPECT_FALSE(device_->synchronize());
  EXPECT_FALSE(device_->replay(Graph(OpList{})));
  EXPECT_FALSE(device_->make_graph(OpList{}));
  ASSERT_TRUE(device_->end_capture());
  EXPECT_FALSE(device_->end_capture());
  EXPECT_TRUE(device_->synchronize()) << "none of it harms the device";
}

TEST_F(CudaDeviceTest, GraphsOfOthersAreRefused) {
  const auto status = device_->replay(Graph(OpList{}));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(CudaDeviceTest, ATrapFailsTheDeviceForEver) {
  device_->ops().run(embed({4}));  // the table has 4 rows
  const auto status = device_->synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("embed"), HasSubstr("CUDA_ERROR_LAUNCH_FAILED")));
  const std::size_t launches = fake_.launches.size();
  device_->ops().run(EmbedParams{});
  EXPECT_EQ(fake_.launches.size(), launches) << "nothing is submitted any more";
  int word = 0;
  EXPECT_EQ(device_->copy_to_host(&word, range_.base, 4).error().message, status.error().message);
  EXPECT_EQ(device_->begin_capture().error().message, status.error().message);
}

TEST_F(CudaDeviceTest, AnOpThatCannotRunIsAnErrorNotAWrongResult) {
  device_->ops().run(AllReduceParams{{}, 2, {}});
  const auto status = device_->synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().message, HasSubstr("cuda:0: all_reduce: 2 ranks"));
}

TEST_F(CudaDeviceTest, ACaptureThatFailsSaysWhyAndLeavesNoGraph) {
  EmbedParams params = embed({2, 1});
  params.table.dtype = DType::kI8;
  const auto graph = capture(params);
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("embed: dtype int8"));
  EXPECT_FALSE(fake_.capturing);
}

// Captures one embedding, expects a warning that says `why`, and that the graph gives the result
// all the same.
void CudaDeviceTest::expect_graph_without_driver(std::string_view why) {
  const EmbedParams params = embed({2, 1});
  ASSERT_TRUE(device_->begin_capture());
  device_->ops().run(params);
  testing::internal::CaptureStderr();
  const auto graph = device_->end_capture();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr(why), HasSubstr("submitted one by one (slower)")));
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_FALSE(fake_.capturing);
  ASSERT_TRUE(device_->replay(**graph));
  EXPECT_EQ(first_of_row(0), 16.0F);
  EXPECT_EQ(fake_.calls["cuGraphLaunch"], 0);
}

// Each of these failures leaves the context whole: the ops run without a graph, and the next
// capture makes one.
TEST_F(CudaDeviceTest, ACaptureThatTheDriverRefusesRunsOpByOp) {
  fake_.fails_in_capture["cuLaunchKernel"] = CUDA_ERROR_INVALID_VALUE;
  expect_graph_without_driver("embed: CUDA_ERROR_INVALID_VALUE");
  fake_.fails_in_capture.clear();
  for (const char* function :
       {"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphUpload"}) {
    SCOPED_TRACE(function);
    fake_.fails[function] = CUDA_ERROR_OUT_OF_MEMORY;
    expect_graph_without_driver("CUDA_ERROR_OUT_OF_MEMORY");
    fake_.fails.clear();
  }
  EXPECT_TRUE(device_->synchronize());
  const EmbedParams params = embed({2, 1});
  const auto graph = capture(params);
  ASSERT_TRUE(graph);
  ASSERT_TRUE(device_->replay(**graph));
  EXPECT_EQ(fake_.calls["cuGraphLaunch"], 1);
}

TEST_F(CudaDeviceTest, AFaultInsideACaptureEndsTheDevice) {
  const EmbedParams params = embed({2, 1});
  ASSERT_TRUE(device_->begin_capture());
  device_->ops().run(params);
  fake_.fails_in_capture["cuLaunchKernel"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto graph = device_->end_capture();
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(device_->begin_capture().error().message, graph.error().message);
}

TEST_F(CudaDeviceTest, AGraphLaunchWithoutMemoryRunsOpByOp) {
  const EmbedParams params = embed({2, 1});
  const auto graph = capture(params);
  ASSERT_TRUE(graph);
  fake_.fails["cuGraphLaunch"] = CUDA_ERROR_OUT_OF_MEMORY;
  testing::internal::CaptureStderr();
  ASSERT_TRUE(device_->replay(**graph));
  ASSERT_TRUE(device_->replay(**graph));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("launching a graph: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"),
                    testing::Not(testing::ContainsRegex("launching(.|\n)*launching"))))
      << "reported once";
  EXPECT_EQ(first_of_row(0), 16.0F);
  EXPECT_EQ(fake_.launches.size(), 2U);
  fake_.fails.clear();
  ASSERT_TRUE(device_->replay(**graph));
  EXPECT_EQ(fake_.launches.size(), 2U) << "the graph is launched as soon as that works";
}

TEST_F(CudaDeviceTest, ALaunchThatFailsEndsOneStepAndNotTheDevice) {
  const EmbedParams params = embed({2, 1});
  const auto graph = capture(params);
  ASSERT_TRUE(graph);
  fake_.fails["cuGraphLaunch"] = CUDA_ERROR_OUT_OF_MEMORY;
  fake_.fails["cuLaunchKernel"] = CUDA_ERROR_OUT_OF_MEMORY;
  const auto status = device_->replay(**graph);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  device_->ops().run(params);
  device_->ops().run(params);
  EXPECT_EQ(fake_.calls["cuLaunchKernel"], 3) << "after an error nothing is submitted";
  EXPECT_FALSE(device_->mark(Queue::kCompute, 0));
  fake_.fails.clear();
  EXPECT_TRUE(device_->mark(Queue::kCompute, 0)) << "an error is returned once";
  ASSERT_TRUE(device_->replay(**graph));
  EXPECT_EQ(first_of_row(0), 16.0F);
}

TEST(MakeCudaDevice, GivesEverythingBackWhateverStepFails) {
  for (const char* function : {"cuDevicePrimaryCtxRetain", "cuStreamCreate",
                               "cuMemGetAllocationGranularity", "cuEventCreate", "cuModuleLoadData",
                               "cuModuleGetFunction", "cuFuncLoad", "cuFuncGetParamInfo"}) {
    FakeDriver fake;
    fake.fails[function] = CUDA_ERROR_INVALID_VALUE;
    fake.works[function] = 0;
    const auto device = make_device(FakeDriver::api(), 0);
    ASSERT_FALSE(device) << function;
    EXPECT_THAT(device.error().message,
                AllOf(HasSubstr("cuda:0"), HasSubstr("CUDA_ERROR_INVALID_VALUE")))
        << function;
    EXPECT_EQ(fake.contexts, 0) << function;
    EXPECT_EQ(fake.streams, 0) << function;
    EXPECT_EQ(fake.pinned, 0) << function;
    EXPECT_EQ(fake.events, 0) << function;
    EXPECT_EQ(fake.modules, 0) << function;
  }
}

}  // namespace
}  // namespace sluice::cuda
