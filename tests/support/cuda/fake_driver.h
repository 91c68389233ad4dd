// FakeDriver: a CUDA driver that uses host memory and records its calls, for machines without a
// GPU. A call that breaks a rule fails. The rules: addresses are reserved before they are mapped,
// whole allocations are unmapped, access is set before use, a capture has no copies. Device
// addresses are real pages of this process. Launches are recorded and, with runs_kernels, run on
// the host (run_emulated.h); a trap is then a permanent fault. Submitted work runs at once or, with
// runs_late, as late as allowed: when the host waits for it or for later work. Streams run
// independently, except for events that one stream waits for on another. So tests detect a missing
// wait. Owner: a test; one at a time, because the driver's functions have no context argument.
// Threads: the test's.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "device/cuda/driver.h"
#include "device/cuda/kernel_set.h"

namespace sluice::cuda {

class FakeDriver {
 public:
  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // The table of driver functions; all of them use this fake.
  static DriverApi api();
  // For load_driver: finds the table's functions by the driver's symbols, except `missing`.
  static void* lookup(void* library, const char* symbol);

  struct Launch {
    KernelId kernel = KernelId::kEmbed;
    LaunchShape shape;
    std::vector<std::byte> params;
    std::function<void()> library;  // runs instead of a kernel of ours, if set
  };
  // Adds the launch to the running capture, or else submits and records it.
  void take(CUstream stream, Launch launch);
  void run(const Launch& launch);
  // Runs `work` when the stream reaches it.
  void submit(CUstream stream, std::function<void()> work);
  // Runs the stream's first `count` pieces of work, counted since the start, or all of them.
  void catch_up(CUstream stream, std::size_t count);
  void catch_up(CUstream stream);
  // The number of pieces of work, in all streams, that have not run.
  std::size_t outstanding() const;

  // Settings.
  bool runs_kernels = false;
  bool runs_late = false;       // work runs only when the host waits for it
  int queries_before_done = 2;  // queries of an event that return "not ready" first
  float milliseconds = 0;       // the time that events record
  int driver_version = 13000;
  int capability = 9;  // .0
  int devices = 1;
  int multiprocessors = 132;
  int shared_bytes_optin = 227 << 10;
  int blocks_that_fit = 8;  // a multiprocessor
  int virtual_memory = 1;
  int exportable = 1;
  bool refuses_read_only = false;  // access to memory, as other than read-write
  std::size_t granularity = std::size_t{2} << 20;
  std::size_t free_memory = std::size_t{1} << 30;
  std::string missing;                    // a symbol that lookup() does not find
  std::map<std::string, CUresult> fails;  // by function: the result of its next calls
  std::map<std::string, int> works;       // this many calls succeed before `fails` applies
  // The same for calls inside a capture. The failure breaks the capture: no call works until it
  // ends.
  std::map<std::string, CUresult> fails_in_capture;
  std::map<std::string, std::size_t> parameter_bytes;  // of kernels; default: what we pass
  std::vector<CUdeviceptr> taken;                      // bases that other processes hold

  // Recorded.
  std::map<std::string, int> calls;
  std::map<CUdeviceptr, std::size_t> reserved;
  struct Mapping {
    std::size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  };
  std::map<CUdeviceptr, Mapping> mapped;
  struct Allocation {
    std::size_t bytes = 0;
    std::size_t inode = 0;  // of the physical memory, which handles may share
    FileDescriptor memory;
    bool imported = false;  // a part of it may be mapped
  };
  std::map<CUmemGenericAllocationHandle, Allocation> allocations;
  // The physical memory mapped at an address; 0: none.
  std::size_t physical(CUdeviceptr address) const {
    const auto found = mapped.find(address);
    return found == mapped.end() ? 0 : allocations.at(found->second.handle).inode;
  }
  std::vector<Launch> launches;  // outside captures
  std::vector<Launch> captured;  // of the running capture
  std::map<std::size_t, std::vector<Launch>> graphs;
  std::map<std::size_t, std::vector<Launch>> executables;
  std::map<std::size_t, unsigned> shared_bytes;  // by function: the bytes requested
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
  CUresult fault = CUDA_SUCCESS;  // the result of every call after a trap
  std::vector<std::string> broken_rules;
};

// Memory as another process's fake driver exports it.
FileDescriptor make_exported_memory(std::size_t bytes);

}  // namespace sluice::cuda
