// DiskTier: a tier in a folder on a disk. Blocks lie in segments (page_format.h), which are made as
// they are needed. Threads of its own move and check blocks; they use O_DIRECT where the filesystem
// has it, so that a block is not in memory a second time. Where the kernel allows io_uring, each
// thread has several reads under way (read_queue.h).
//
// One process at a time has the folder (a lock on DIR/lock). Segments of other identities stay
// until the room is needed; then the oldest go first. A page that fails its check is an error of
// that load; an error of the disk pauses saves for a while, with one line in the log. A segment
// that was removed while in use is made again; without DIR/lock nothing is saved any more, because
// another process may have the folder then.
//
// Limits: Options. Owner: the engine's executor. Threads: KvTier's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hmac.h"
#include "base/result.h"
#include "base/unix_time.h"
#include "offload/file_io.h"
#include "offload/kv_tier.h"
#include "offload/page_format.h"

namespace sluice {

class DiskTier final : public KvTier {
 public:
  struct Options {
    std::string folder;
    std::uint64_t max_bytes = 0;    // of all files in the folder
    std::uint64_t block_bytes = 0;  // of one block
    std::string identity;           // all that makes the bytes of a block what they are
    HmacKey secret{};
    Sealing sealing = Sealing::kTags;
    // Size of a file: a page at least. 0: segment_bytes_for(max_bytes).
    std::uint64_t segment_bytes = 0;
    std::uint64_t free_bytes = std::uint64_t{1} << 30;  // that the filesystem keeps free
    std::int64_t max_age_s = 30 * 24 * 3600;            // since a block's last use
    std::uint64_t daily_bytes = 0;                      // written a day (UTC); 0: no limit
    int threads = 2;
    // After a save beside steps, such saves rest for so many times its CPU time, because the
    // steps beside them need the same cores.
    int save_rests = 0;
    Duration pause = std::chrono::seconds(30);  // of saves, after an error
    bool direct = true;                         // O_DIRECT, where it is there
    bool uring = true;                          // reads by io_uring, where it is allowed
    // Replaced by tests. Options are copied, so the object is shared.
    std::shared_ptr<const FileIo> io = std::make_shared<FileIo>();  // shared with copies
    std::function<std::int64_t()> unix_time = unix_seconds;
  };

  // Makes the folder (mode 0700) if it is not there, and reads the records of its segments. Errors
  // name the folder: kResourceExhausted while another process has it, kInvalidArgument for one that
  // others may write, or without room for a page.
  static Result<std::unique_ptr<DiskTier>> open(const Options& options, const Clock& clock);
  ~DiskTier() override;  // ends loads and saves that have begun; drops the others

  std::int32_t num_pages() const override;
  std::vector<TierPage> take_stored() override;
  bool accepts_saves() const override;
  void save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) override;
  void load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) override;
  void touch(std::int32_t page) override;
  void erase(std::int32_t page) override;
  void poll(std::vector<TierMove>& ended) override;
  void wait(Duration at_most) override;
  Status flush(Duration at_most) override;

  std::int32_t num_damaged() const;  // records that were dropped at the start
  int reads_at_once() const;         // of each thread; 1: without io_uring

 private:
  struct Impl;
  explicit DiskTier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
