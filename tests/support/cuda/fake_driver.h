// FakeDriver: a CUDA driver made of host memory and books, for machines without a GPU. It holds the
// rules that our calls must keep (addresses reserved before they are mapped, whole allocations
// unmapped, access set before use, no copies in a capture) and says so by failing the call. Device
// addresses are real pages of this process, so copies copy; launches are noted and, if wanted, run
// on the host (run_emulated.h), where a trap is a fault that stays. What is submitted to a stream
// runs at once; or, if wanted, as late as it may: when something that was submitted behind it is
// waited for. Streams run independently of each other, but for events that one waits for on
// another. A missing wait then shows. Owner: a test. Threads: the test's. One at a time: the
// driver's functions have no context argument.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/kernel_set.h"

namespace sluice::cuda {

class FakeDriver {
 public:
  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // The table; all functions work on this fake.
  static DriverApi api();
  // For load_driver: finds the table's functions by the driver's symbols, but `missing`.
  static void* lookup(void* library, const char* symbol);

  struct Launch {
    KernelId kernel = KernelId::kEmbed;
    LaunchShape shape;
    std::vector<std::byte> params;
    std::function<void()> library;  // not a kernel of ours, but this
  };
  // Of a capture that is on, or submitted and noted.
  void take(CUstream stream, Launch launch);
  void run(const Launch& launch);
  // Does `work` when the stream comes to it.
  void submit(CUstream stream, std::function<void()> work);
  // Does what was submitted to a stream, up to a count of what was submitted to it since the start.
  void catch_up(CUstream stream, std::size_t count);
  void catch_up(CUstream stream);
  // Submitted to any stream and not run.
  std::size_t outstanding() const;

  // Settings.
  bool runs_kernels = false;
  bool runs_late = false;       // what is submitted waits until it is waited for
  int queries_before_done = 2;  // how often a query says no before what it asks for runs
  float milliseconds = 0;       // the time that events note
  int driver_version = 13000;
  int capability = 9;  // .0
  int devices = 1;
  int multiprocessors = 132;
  int shared_bytes_optin = 227 << 10;
  int blocks_that_fit = 8;  // a multiprocessor
  int virtual_memory = 1;
  int exportable = 1;
  std::size_t granularity = std::size_t{2} << 20;
  std::size_t free_memory = std::size_t{1} << 30;
  std::string missing;                    // a symbol that lookup() does not find
  std::map<std::string, CUresult> fails;  // by function: the result of its next calls
  std::map<std::string, int> works;       // so many calls still succeed before `fails` counts
  // As `fails`, for calls inside a capture, which they break: until it is ended, nothing works.
  std::map<std::string, CUresult> fails_in_capture;
  std::map<std::string, std::size_t> parameter_bytes;  // of kernels; default: what we pass
  std::vector<CUdeviceptr> taken;                      // bases that others hold

  // Books.
  std::map<std::string, int> calls;
  std::map<CUdeviceptr, std::size_t> reserved;
  struct Mapping {
    std::size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  };
  std::map<CUdeviceptr, Mapping> mapped;
  std::map<CUmemGenericAllocationHandle, std::size_t> allocations;
  std::map<int, std::size_t> exported;  // by descriptor: bytes
  std::vector<Launch> launches;         // outside captures
  std::vector<Launch> captured;         // of the capture that is on
  std::map<std::size_t, std::vector<Launch>> graphs;
  std::map<std::size_t, std::vector<Launch>> executables;
  std::map<std::size_t, unsigned> shared_bytes;  // by function, what was asked for
  struct Stream {
    std::deque<std::function<void()>> queue;  // submitted and not run
    std::size_t submitted = 0;
    std::size_t done() const { return submitted - queue.size(); }
  };
  std::map<CUstream, Stream> queues;
  struct Record {
    CUstream stream = nullptr;
    std::size_t submitted = 0;  // to the stream, when the event was recorded
    int queries = 0;            // since then
  };
  std::map<std::size_t, Record> recorded;  // by event
  std::map<std::size_t, float> reached;    // by event: `milliseconds` when the stream came to it
  int contexts = 0;
  int streams = 0;
  int events = 0;
  int pinned = 0;
  int modules = 0;
  bool current = false;
  bool capturing = false;
  bool capture_broken = false;
  CUmemAllocationProp last_properties = {};
  CUresult fault = CUDA_SUCCESS;  // what every call gives from a trap on
  std::vector<std::string> broken_rules;
};

}  // namespace sluice::cuda
