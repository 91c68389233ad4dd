#include "offload/disk_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "offload/file_io.h"
#include "offload/page_format.h"
#include "offload/page_reads.h"
#include "offload/page_writes.h"
#include "offload/read_queue.h"
#include "offload/save_pace.h"
#include "offload/segment_check.h"
#include "offload/segment_file.h"
#include "offload/tier_folder.h"
#include "offload/write_budget.h"

namespace sluice {
namespace {

// The beginning of the names of an identity's segments.
std::string prefix_of(const SegmentIdentity& identity) {
  std::string text;
  for (std::size_t i = 0; i < 8; ++i) {
    text += fmt::format("{:02x}", static_cast<unsigned>(identity[i]));
  }
  return text + "-";
}

SegmentShape shape_of(const DiskTier::Options& options) {
  SegmentShape shape{options.block_bytes, 1};
  const std::uint64_t bytes =
      options.segment_bytes > 0 ? options.segment_bytes : segment_bytes_for(options.max_bytes);
  const std::uint64_t fit = bytes / (shape.page_bytes() + kRecordBytes);
  shape.num_pages = static_cast<std::uint32_t>(std::max<std::uint64_t>(fit, 1));
  return shape;
}

}  // namespace

struct DiskTier::Impl {
  enum class Kind : std::uint8_t { kLoad, kSave };
  struct Job {
    Kind kind = Kind::kLoad;
    std::uint64_t id = 0;
    TierPage page;
    std::byte* target = nullptr;        // kLoad
    const std::byte* source = nullptr;  // kSave
  };

  Impl(const Options& tier_options, const Clock& tier_clock)
      : options(tier_options),
        clock(tier_clock),
        shape(shape_of(tier_options)),
        identity(
            segment_identity(tier_options.secret, tier_options.sealing, tier_options.identity)),
        prefix(prefix_of(identity)),
        budget(tier_options.daily_bytes) {}

  PageFormat make_format() const { return {options.secret, options.sealing, identity}; }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work.notify_all();
    for (std::thread& thread : threads) thread.join();
    write_times();
    budget.write_file(budget.noted());
  }

  // ---------------------------------------------------------------- opening

  Status open() {
    ASSIGN_OR_RETURN(lock_file, lock_tier_folder(options.folder));
    // A last segment that is not full is smaller.
    num_pages = static_cast<std::int32_t>(std::min<std::uint64_t>(
        options.max_bytes / (shape.page_bytes() + kRecordBytes), std::uint64_t{1} << 30));
    if (num_pages < 1) {
      return invalid_argument(
          fmt::format("{}: {} bytes have no room for a block of {} bytes; give a larger SIZE",
                      options.folder, options.max_bytes, options.block_bytes));
    }
    records.resize(static_cast<std::size_t>(num_pages));
    segments.resize((static_cast<std::size_t>(num_pages) + shape.num_pages - 1) / shape.num_pages);
    budget.open(options.folder + "/written", options.unix_time());
    RETURN_IF_ERROR(read_segments());
    // From a time when the folder might be larger.
    remove_segments_after(options.folder, prefix, segment_name(prefix, segments.size() - 1));
    for (int i = 0; i < options.threads; ++i) {
      auto queue = make_read_queue(*options.io, options.uring && reads_at_once != 1,
                                   shape.page_bytes(), options.folder);
      reads_at_once = queue->depth();
      threads.emplace_back([this, queue = std::move(queue)]() mutable { run(std::move(queue)); });
    }
    return {};
  }

  std::string path_of(std::size_t segment) const {
    return options.folder + "/" + segment_name(prefix, segment);
  }

  // Takes what can be read; all else is as if it were not there.
  Status read_segments() {
    PageFormat format = make_format();
    std::vector<std::byte> bytes(shape.records_offset() + shape.records_bytes());
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const std::string path = path_of(s);
      if (::access(path.c_str(), F_OK) != 0) continue;
      // An error may pass, and the blocks are good then: the start fails, and the file stays.
      ASSIGN_OR_RETURN(Segment segment, open_file(path, 0));
      struct stat facts{};
      if (::fstat(segment.records.get(), &facts) != 0) return file_error("cannot be read", path);
      const auto size = static_cast<std::uint64_t>(facts.st_size);
      const bool has_records = size >= bytes.size();
      if (has_records && !options.io->read(segment.records.get(), bytes, 0)) {
        return file_error("cannot be read", path);
      }
      if (!has_records || !format.is_header(std::span(bytes).first(kDiskAlignment), shape)) {
        log_warning(
            fmt::format("{}: is damaged or of another format or SIZE; it is made again", path));
        ::unlink(path.c_str());
        continue;
      }
      const std::uint64_t missing_from = restore_size(segment, path, size, pages_in(s), shape);
      segments[s] = share(std::move(segment));
      const std::size_t first = s * shape.num_pages;
      const SegmentRecords found =
          decode_records(std::span(bytes).subspan(shape.records_offset()), first, format);
      damaged += found.damaged;
      for (std::size_t i = 0; i < found.records.size() && first + i < records.size(); ++i) {
        if (shape.page_offset(static_cast<std::uint32_t>(i) + 1) > missing_from) {
          changed.insert(
              static_cast<std::int32_t>(first + i));  // its record goes at the next flush
          continue;
        }
        PageRecord record = found.records[i];
        if (is_old(record)) continue;
        // Else a block from a time when the clock was years ahead would never be too old.
        record.used = std::min(record.used, options.unix_time());
        records[first + i] = record;
      }
    }
    if (damaged > 0) {
      log_warning(fmt::format("{}: {} damaged records are left out", options.folder, damaged));
    }
    return {};
  }

  // The pages beyond the end of a file that was cut are empty. A file is also too short when the
  // folder was smaller. Returns the size that the file had.
  static std::uint64_t restore_size(const Segment& segment, const std::string& path,
                                    std::uint64_t size, std::uint32_t pages,
                                    const SegmentShape& shape) {
    const std::uint64_t wanted = shape.page_offset(pages);
    if (size >= wanted) return wanted;
    log_warning(fmt::format("{}: has {} of {} bytes; the blocks beyond its end are lost", path,
                            size, wanted));
    // Without room the disk says so when a page is written.
    if (!reserve_file(segment, wanted)) {
      static_cast<void>(::ftruncate(segment.records.get(), static_cast<off_t>(wanted)));
    }
    return size;
  }

  bool is_old(const PageRecord& record) const {
    return record.used < options.unix_time() - options.max_age_s;
  }

  Result<Segment> open_file(const std::string& path, int flags) {
    const bool direct = options.direct && !no_direct;
    ASSIGN_OR_RETURN(Segment segment, open_segment(path, flags, direct));
    if (direct && !segment.direct && !no_direct.exchange(true)) {
      log_warning(options.folder +
                  ": its filesystem has no O_DIRECT; blocks also pass through the page cache");
    }
    return segment;
  }

  // ---------------------------------------------------------------- the threads

  struct Load {
    Job job;
    PageRecord record;
    SegmentPtr segment;
  };
  using Reads = PageReads<Load>;

  void run(std::unique_ptr<ReadQueue> queue) {
    PageFormat format = make_format();
    Reads reads(std::move(queue), shape.page_bytes());
    PageWrites writes(shape);
    std::vector<Job> batch;
    std::unique_lock lock(mutex);
    for (;;) {
      if (reads.under_way() == 0) {
        pace.wait(
            work, lock, [&] { return stopping || !loads.empty(); }, [&] { return saves.size(); });
        if (stopping) return;
      }
      if (may_begin_load(reads)) {
        const Job job = take_job(loads);
        ++reading;
        lock.unlock();
        Status begun = begin_load(job, reads);
        lock.lock();
        if (!begun) end_job(job.id, std::move(begun), &reading);
      } else if (reads.under_way() > 0) {
        lock.unlock();
        TierMove move = end_load(reads, format);
        lock.lock();
        end_job(move.id, std::move(move.status), &reading);
      } else if (pace.may_begin(saves.size())) {
        take_saves(writes.most(), batch);
        const SavePace::Save turn = pace.begin(saves.size());
        lock.unlock();
        const Status status = save_pages(batch, format, writes);
        lock.lock();
        pace.end(turn);
        for (const Job& job : batch) end_job(job.id, status, nullptr);
      }
    }
  }

  // Under `mutex`. Threads divide the loads, because each block is also checked.
  bool may_begin_load(const Reads& reads) const {
    if (stopping || loads.empty() || reads.is_full()) return false;
    const std::size_t all = loads.size() + static_cast<std::size_t>(reading);
    const auto count = static_cast<std::size_t>(options.threads);
    return static_cast<std::size_t>(reads.under_way()) < (all + count - 1) / count;
  }

  // Under `mutex`.
  Job take_job(std::deque<Job>& queue) {
    const Job job = queue.front();
    queue.pop_front();
    ++busy;
    return job;
  }
  // The next save, and those behind it whose pages follow in the same segment.
  void take_saves(std::size_t most, std::vector<Job>& batch) {
    batch.assign(1, take_job(saves));
    while (batch.size() < most && !saves.empty() &&
           saves.front().page.page == batch.back().page.page + 1 &&
           static_cast<std::size_t>(saves.front().page.page) % shape.num_pages != 0) {
      batch.push_back(take_job(saves));
    }
  }
  void end_job(std::uint64_t id, Status status, int* kind) {
    --busy;
    if (kind != nullptr) --*kind;
    ended.push_back({id, std::move(status)});
    done.notify_all();
  }

  template <class Byte>
  std::span<Byte> block_span(Byte* block) const {
    return {block, static_cast<std::size_t>(options.block_bytes)};
  }

  // Only finds the page; end_load() has the outcome.
  Status begin_load(const Job& job, Reads& reads) {
    const auto number = static_cast<std::size_t>(job.page.page);
    Load load{job, {}, {}};
    {
      const std::lock_guard lock(mutex);
      load.record = records[number];
      load.segment = segments[number / shape.num_pages];
    }
    if (!load.segment || load.record.name != job.page.name ||
        load.record.group != static_cast<std::uint32_t>(job.page.group)) {
      return not_found("the page holds another block");
    }
    if (is_old(load.record)) return not_found("the block is older than the limit");
    const auto in_segment = static_cast<std::uint32_t>(number % shape.num_pages);
    const int fd = load.segment->pages.get();
    reads.begin(std::move(load), fd, shape.page_offset(in_segment));
    return {};
  }

  TierMove end_load(Reads& reads, PageFormat& format) const {
    const auto [load, page, error] = reads.wait();
    return {load.job.id, finish_load(load, page, error, format)};
  }

  Status finish_load(const Load& load, std::span<const std::byte> page, int error,
                     PageFormat& format) const {
    const auto number = static_cast<std::size_t>(load.job.page.page);
    const auto in_segment = static_cast<std::uint32_t>(number % shape.num_pages);
    if (error != 0) {
      errno = error;
      const Error failure = file_error("cannot be read", path_of(number / shape.num_pages));
      if (!ends_before(*load.segment, shape.page_offset(in_segment + 1))) return failure;
      return invalid_argument(failure.message + " (the file was cut)");
    }
    if (!format.open_block(load.record, number, page, block_span(load.job.target))) {
      return invalid_argument(
          fmt::format("{}: page {} is damaged", path_of(number / shape.num_pages), in_segment));
    }
    return {};
  }

  Status save_pages(std::span<const Job> jobs, PageFormat& format, PageWrites& writes) {
    Status status = write_pages(jobs, format, writes);
    if (status) return status;
    const std::lock_guard lock(mutex);
    paused_until = clock.now() + options.pause;
    if (!std::exchange(told, true)) {
      log_warning(
          fmt::format("{}: {}; no block is saved for {} s", options.folder, status.error().message,
                      std::chrono::duration_cast<std::chrono::seconds>(options.pause).count()));
    }
    return status;
  }

  Status write_pages(std::span<const Job> jobs, PageFormat& format, PageWrites& writes) {
    const auto first = static_cast<std::size_t>(jobs.front().page.page);
    const std::size_t s = first / shape.num_pages;
    ASSIGN_OR_RETURN(const SegmentPtr segment, segment_for(s, format));
    writes.begin(first, static_cast<std::uint32_t>(first % shape.num_pages));
    for (const Job& job : jobs) {
      writes.add({.name = job.page.name,
                  .tenant = job.page.tenant,
                  .group = static_cast<std::uint32_t>(job.page.group),
                  .used = options.unix_time()},
                 block_span(job.source), format);
    }
    {
      const std::lock_guard lock(mutex);
      std::fill_n(record_at(first), jobs.size(), PageRecord{});
    }
    if (!writes.write(*options.io, *segment)) return file_error("cannot be written", path_of(s));
    bool note = false;
    {
      const std::lock_guard lock(mutex);
      if (segments[s] == segment) std::ranges::copy(writes.records(), record_at(first));
      told = false;
      note = budget.note_written(writes.bytes(), options.unix_time());
    }
    if (note) write_budget();
    return {};
  }

  std::vector<PageRecord>::iterator record_at(std::size_t number) {
    return records.begin() + static_cast<std::ptrdiff_t>(number);
  }

  // Not under `mutex`, which the engine's thread takes.
  void write_budget() {
    const std::lock_guard writing(budget_file_mutex);
    WriteBudget::Noted noted;
    {
      const std::lock_guard lock(mutex);
      noted = budget.noted();
    }
    budget.write_file(noted);
  }

  // The files of a segment. A file that was removed meanwhile is made again.
  Result<SegmentPtr> segment_for(std::size_t s, PageFormat& format) {
    const std::lock_guard making(making_mutex);
    if (is_removed(lock_file)) {
      return unavailable(
          "the folder or its file 'lock' was removed while in use; restart the server to save "
          "again");
    }
    {
      const std::lock_guard lock(mutex);
      if (segments[s] && !is_removed(segments[s]->records)) return segments[s];
      if (segments[s]) {
        log_warning(path_of(s) + ": was removed while in use; its blocks are lost");
        forget_segment(s);
      }
    }
    RETURN_IF_ERROR(make_segment(s, format));
    const std::lock_guard lock(mutex);
    return segments[s];
  }

  // Under `mutex`.
  void forget_segment(std::size_t s) {
    segments[s] = nullptr;
    const std::size_t first = s * shape.num_pages;
    for (std::size_t i = 0; i < pages_in(s); ++i) {
      records[first + i] = {};
      changed.erase(static_cast<std::int32_t>(first + i));
    }
  }

  // The segment's file, with room for all its pages on the disk. Under `making_mutex`.
  Status make_segment(std::size_t s, PageFormat& format) {
    const std::uint64_t bytes = shape.page_offset(pages_in(s));
    remove_other_segments(options.folder, prefix, bytes, options.max_bytes);
    RETURN_IF_ERROR(check_room(options.folder, bytes, options.free_bytes));
    const std::string path = path_of(s);
    ASSIGN_OR_RETURN(Segment segment, open_file(path, O_CREAT | O_TRUNC));
    const auto header = format.encode_header(shape);
    if (!reserve_file(segment, bytes) || !options.io->write(segment.records.get(), header, 0)) {
      const Error error = file_error("cannot be written", path);
      ::unlink(path.c_str());
      return error;
    }
    const std::lock_guard lock(mutex);
    segments[s] = share(std::move(segment));
    return {};
  }

  std::uint32_t pages_in(std::size_t s) const {
    const std::size_t rest = static_cast<std::size_t>(num_pages) - s * shape.num_pages;
    return static_cast<std::uint32_t>(std::min<std::size_t>(rest, shape.num_pages));
  }

  // Records whose use is newer than on the disk, and those that were erased.
  void write_times() {
    PageFormat format = make_format();
    const std::lock_guard lock(mutex);
    for (const std::int32_t page : changed) {
      const auto number = static_cast<std::size_t>(page);
      const SegmentPtr& segment = segments[number / shape.num_pages];
      if (!segment) continue;
      const PageRecord& record = records[number];
      const auto in_segment = static_cast<std::uint32_t>(number % shape.num_pages);
      const std::array<std::byte, kRecordBytes> nothing{};
      const bool empty = record.name == Hash128{};
      static_cast<void>(options.io->write(segment->records.get(),
                                          empty ? nothing : format.encode_record(record, number),
                                          shape.record_offset(in_segment)));
    }
    changed.clear();
  }

  const Options options;
  const Clock& clock;
  const SegmentShape shape;
  const SegmentIdentity identity;
  const std::string prefix;
  std::int32_t num_pages = 0;
  std::int32_t damaged = 0;
  FileDescriptor lock_file;
  std::atomic<bool> no_direct = false;
  int reads_at_once = 0;         // of a thread; 0: not known yet
  std::mutex making_mutex;       // before `mutex`
  std::mutex budget_file_mutex;  // before `mutex`

  std::mutex mutex;
  std::condition_variable work;  // for the threads
  std::condition_variable done;  // for wait() and flush()
  // Guarded by `mutex`.
  bool stopping = false;
  bool told = false;  // the log has this trouble
  bool stored_taken = false;
  int busy = 0;     // jobs that threads have
  int reading = 0;  // those of them that are loads
  std::deque<Job> loads;
  std::deque<Job> saves;
  SavePace pace{options.save_rests, SavePace::real_clocks()};
  std::vector<TierMove> ended;
  WriteBudget budget;
  std::vector<PageRecord> records;  // by page; without a name: nothing
  std::vector<SegmentPtr> segments;
  std::set<std::int32_t> changed;  // pages whose records are to be written
  TimePoint paused_until;

  std::vector<std::thread> threads;
};

DiskTier::DiskTier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DiskTier::~DiskTier() = default;

Result<std::unique_ptr<DiskTier>> DiskTier::open(const Options& options, const Clock& clock) {
  CHECK(options.block_bytes > 0 && options.threads > 0);
  auto impl = std::make_unique<Impl>(options, clock);
  RETURN_IF_ERROR(impl->open());
  return std::unique_ptr<DiskTier>(new DiskTier(std::move(impl)));
}

std::int32_t DiskTier::num_pages() const { return impl_->num_pages; }
std::int32_t DiskTier::num_damaged() const { return impl_->damaged; }
int DiskTier::reads_at_once() const { return impl_->reads_at_once; }

std::vector<TierPage> DiskTier::take_stored() {
  const std::lock_guard lock(impl_->mutex);
  if (std::exchange(impl_->stored_taken, true)) return {};
  std::vector<std::pair<std::int64_t, TierPage>> found;
  for (std::size_t i = 0; i < impl_->records.size(); ++i) {
    const PageRecord& record = impl_->records[i];
    if (record.name == Hash128{}) continue;
    found.push_back({record.used,
                     {static_cast<std::int32_t>(i), static_cast<std::int32_t>(record.group),
                      record.name, record.tenant}});
  }
  std::ranges::stable_sort(found, {}, [](const auto& entry) { return entry.first; });
  std::vector<TierPage> pages;
  pages.reserve(found.size());
  for (const auto& [time, page] : found) pages.push_back(page);
  return pages;
}

bool DiskTier::accepts_saves() const {
  const std::lock_guard lock(impl_->mutex);
  const auto under_way = impl_->saves.size() + static_cast<std::size_t>(impl_->busy);
  return impl_->clock.now() >= impl_->paused_until &&
         impl_->budget.allows((under_way + 1) * impl_->shape.page_bytes(),
                              impl_->options.unix_time());
}

void DiskTier::save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) {
  CHECK(block.size() == impl_->options.block_bytes && page.page >= 0 &&
        page.page < impl_->num_pages);
  const std::lock_guard lock(impl_->mutex);
  impl_->changed.erase(page.page);
  impl_->saves.push_back({Impl::Kind::kSave, id, page, nullptr, block.data()});
  const bool hurries = page.haste != SaveHaste::kEasy && impl_->pace.hurry();
  if (hurries) {
    impl_->work.notify_all();
  } else if (impl_->pace.wakes(impl_->saves.size())) {
    impl_->work.notify_one();
  }
}

void DiskTier::load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) {
  CHECK(block.size() == impl_->options.block_bytes && page.page >= 0 &&
        page.page < impl_->num_pages);
  const std::lock_guard lock(impl_->mutex);
  impl_->loads.push_back({Impl::Kind::kLoad, id, page, block.data(), nullptr});
  impl_->work.notify_one();
}

void DiskTier::touch(std::int32_t page) {
  const std::lock_guard lock(impl_->mutex);
  PageRecord& record = impl_->records[static_cast<std::size_t>(page)];
  if (record.name == Hash128{} || impl_->is_old(record)) return;
  record.used = impl_->options.unix_time();
  impl_->changed.insert(page);
}

void DiskTier::erase(std::int32_t page) {
  const std::lock_guard lock(impl_->mutex);
  impl_->records[static_cast<std::size_t>(page)] = {};
  impl_->changed.insert(page);
}

void DiskTier::poll(std::vector<TierMove>& ended) {
  const std::lock_guard lock(impl_->mutex);
  for (TierMove& move : impl_->ended) ended.push_back(std::move(move));
  impl_->ended.clear();
}

void DiskTier::wait(Duration at_most) {
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait_for(lock, at_most, [&] { return !impl_->ended.empty(); });
}

Status DiskTier::flush(Duration at_most) {
  {
    std::unique_lock lock(impl_->mutex);
    if (impl_->pace.hurry()) impl_->work.notify_all();
    const bool idle = impl_->done.wait_for(lock, at_most, [&] {
      return impl_->loads.empty() && impl_->saves.empty() && impl_->busy == 0;
    });
    if (!idle) return Error{ErrorCode::kDeadlineExceeded, "saves are still under way"};
  }
  impl_->write_times();
  impl_->write_budget();
  std::vector<SegmentPtr> segments;
  {
    const std::lock_guard lock(impl_->mutex);
    segments = impl_->segments;
  }
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (segments[s] && ::fdatasync(segments[s]->records.get()) != 0) {
      return file_error("cannot be flushed", impl_->path_of(s));
    }
  }
  return {};
}

}  // namespace sluice
