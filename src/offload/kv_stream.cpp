#include "offload/kv_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/aes_gcm.h"
#include "base/check.h"
#include "base/file.h"
#include "offload/aligned_buffer.h"

namespace sluice {
namespace {

Error stream_error(std::string_view what, const std::string& folder) {
  return unavailable(fmt::format("--kv-disk {}: {}: {}", folder, what, std::strerror(errno)));
}

// A file without a name.
FileDescriptor open_unnamed(const std::string& folder, int flags) {
  FileDescriptor file(
      ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, S_IRUSR | S_IWUSR));
  if (file.valid() || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
  std::string path = folder + "/stream-XXXXXX";
  file = FileDescriptor(::mkostemp(path.data(), O_CLOEXEC | flags));
  if (file.valid()) ::unlink(path.c_str());
  return file;
}

}  // namespace

struct KvStream::Batch::State {
  std::mutex mutex;
  std::condition_variable ended;
  std::int32_t under_way = 0;
  std::optional<Error> error;
};

KvStream::Batch::Batch() : state_(std::make_unique<State>()) {}
KvStream::Batch::~Batch() { CHECK(state_->under_way == 0); }

struct KvStream::Impl {
  // Proves a piece that was saved. No two pieces have the same nonce.
  struct Seal {
    std::uint64_t nonce = 0;  // 0: never saved
    AesTag tag{};
  };
  struct Job {
    Batch::State* batch = nullptr;
    bool is_load = false;
    Range range;
    std::byte* const* slices = nullptr;
  };

  explicit Impl(Options stream_options) : options(std::move(stream_options)) {
    for (int i = 0; i < options.threads; ++i) threads.emplace_back([this] { run(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      CHECK(jobs.empty());
      stopping = true;
    }
    work.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  Status open() {
    file = open_unnamed(options.folder, options.direct ? O_DIRECT : 0);
    if (!file.valid() && options.direct && errno == EINVAL) file = open_unnamed(options.folder, 0);
    if (!file.valid())
      return stream_error("cannot make a file for a long sequence", options.folder);
    return {};
  }

  Status take_room() {
    const std::uint64_t bytes = shape.file_bytes();
    struct statvfs facts{};
    if (::fstatvfs(file.get(), &facts) == 0 &&
        facts.f_bavail * facts.f_frsize < bytes + options.free_bytes) {
      return resource_exhausted(fmt::format(
          "--kv-disk {}: the KV of a long sequence needs {} MiB, and {} MiB must stay free; the "
          "filesystem has {} MiB",
          options.folder, bytes >> 20, options.free_bytes >> 20,
          (facts.f_bavail * facts.f_frsize) >> 20));
    }
    const auto end = static_cast<off_t>(bytes);
    if (::fallocate(file.get(), 0, 0, end) == 0) return {};
    if (errno == EOPNOTSUPP && ::ftruncate(file.get(), end) == 0) return {};
    return stream_error("no room for the KV of a long sequence", options.folder);
  }

  std::uint64_t jobs_of(const Range& range) const {
    const auto pieces = static_cast<std::uint64_t>(range.count);
    return (pieces + pieces_per_job - 1) / pieces_per_job;
  }

  void start(Batch& batch, bool is_load, const Range& range, std::span<std::byte* const> slices) {
    CHECK(range.layer >= 0 && range.layer < shape.layers && range.first >= 0 && range.count >= 0 &&
          range.first + range.count <= shape.pieces);
    CHECK(slices.size() == static_cast<std::size_t>(range.count * shape.slices));
    if (range.count == 0) return;
    {
      const std::lock_guard lock(batch.state_->mutex);
      batch.state_->under_way += static_cast<std::int32_t>(jobs_of(range));
    }
    {
      const std::lock_guard lock(mutex);
      const auto step = static_cast<std::int32_t>(pieces_per_job);
      for (std::int32_t at = 0; at < range.count; at += step) {
        const Range part{range.layer, range.first + at, std::min(step, range.count - at)};
        jobs.push_back({batch.state_.get(), is_load, part, slices.data() + at * shape.slices});
      }
    }
    work.notify_all();
  }

  // ---------------------------------------------------------------- threads

  void run() {
    AesGcm cipher;
    AlignedBuffer buffer;
    std::uint64_t size = 0;
    while (true) {
      Job job;
      {
        std::unique_lock lock(mutex);
        work.wait(lock, [&] { return stopping || !jobs.empty(); });
        if (jobs.empty()) return;
        job = jobs.front();
        jobs.pop_front();
      }
      const std::uint64_t needed = pieces_per_job * static_cast<std::uint64_t>(shape.piece_bytes());
      if (size != needed) {
        buffer = make_aligned_buffer(needed, kAlignment);
        size = needed;
      }
      Status status =
          job.is_load ? load(job, cipher, buffer.get()) : save(job, cipher, buffer.get());
      // With the lock: the waiting thread may destroy the batch as soon as it sees the end.
      const std::lock_guard lock(job.batch->mutex);
      if (!status && !job.batch->error) job.batch->error = status.error();
      --job.batch->under_way;
      job.batch->ended.notify_all();
    }
  }

  std::size_t index(std::int32_t layer, std::int32_t piece) const {
    return static_cast<std::size_t>(layer) * static_cast<std::size_t>(shape.pieces) +
           static_cast<std::size_t>(piece);
  }
  std::uint64_t offset_of(const Range& range) const {
    return index(range.layer, range.first) * static_cast<std::uint64_t>(shape.piece_bytes());
  }
  static AesNonce nonce_of(std::uint64_t number) {
    AesNonce nonce{};
    std::memcpy(nonce.data(), &number, sizeof number);
    return nonce;
  }

  Status load(const Job& job, AesGcm& cipher, std::byte* buffer) {
    const auto piece_bytes = static_cast<std::size_t>(shape.piece_bytes());
    const auto slice_bytes = static_cast<std::size_t>(shape.slice_bytes);
    const std::span<std::byte> bytes(buffer,
                                     static_cast<std::size_t>(job.range.count) * piece_bytes);
    if (!options.io->read(file.get(), bytes, offset_of(job.range))) {
      return stream_error("the KV of a long sequence cannot be read", options.folder);
    }
    loaded += static_cast<std::int64_t>(bytes.size());
    for (std::int32_t i = 0; i < job.range.count; ++i) {
      const std::size_t place = index(job.range.layer, job.range.first + i);
      const Seal& seal = seals[place];
      CHECK(seal.nonce != 0);
      const std::span<std::byte> piece =
          bytes.subspan(static_cast<std::size_t>(i) * piece_bytes, piece_bytes);
      if (!cipher.open(key, nonce_of(seal.nonce), std::as_bytes(std::span(&place, 1)), piece,
                       seal.tag, piece)) {
        return unavailable(fmt::format(
            "--kv-disk {}: the KV of a long sequence is damaged on the disk", options.folder));
      }
      for (std::int32_t s = 0; s < shape.slices; ++s) {
        std::memcpy(job.slices[i * shape.slices + s],
                    piece.data() + static_cast<std::size_t>(s) * slice_bytes, slice_bytes);
      }
    }
    return {};
  }

  Status save(const Job& job, AesGcm& cipher, std::byte* buffer) {
    const auto piece_bytes = static_cast<std::size_t>(shape.piece_bytes());
    const auto slice_bytes = static_cast<std::size_t>(shape.slice_bytes);
    const std::span<std::byte> bytes(buffer,
                                     static_cast<std::size_t>(job.range.count) * piece_bytes);
    for (std::int32_t i = 0; i < job.range.count; ++i) {
      const std::span<std::byte> piece =
          bytes.subspan(static_cast<std::size_t>(i) * piece_bytes, piece_bytes);
      for (std::int32_t s = 0; s < shape.slices; ++s) {
        std::memcpy(piece.data() + static_cast<std::size_t>(s) * slice_bytes,
                    job.slices[i * shape.slices + s], slice_bytes);
      }
      const std::size_t place = index(job.range.layer, job.range.first + i);
      Seal& seal = seals[place];
      seal.nonce = ++nonces;
      seal.tag =
          cipher.seal(key, nonce_of(seal.nonce), std::as_bytes(std::span(&place, 1)), piece, piece);
    }
    if (!options.io->write(file.get(), bytes, offset_of(job.range))) {
      return stream_error("the KV of a long sequence cannot be written", options.folder);
    }
    saved += static_cast<std::int64_t>(bytes.size());
    return {};
  }

  const Options options;
  // Changed while no job is under way.
  Shape shape;
  std::uint64_t pieces_per_job = 1;
  FileDescriptor file;
  AesKey key{};
  std::vector<Seal> seals;  // by layer and piece; a job writes those of its pieces

  std::atomic<std::uint64_t> nonces{0};
  std::atomic<std::int64_t> loaded{0};
  std::atomic<std::int64_t> saved{0};

  std::mutex mutex;
  std::condition_variable work;
  std::deque<Job> jobs;
  bool stopping = false;
  std::vector<std::thread> threads;
};

KvStream::KvStream(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
KvStream::~KvStream() = default;

const KvStream::Options& KvStream::options() const { return impl_->options; }

Status KvStream::begin(const Shape& shape) {
  Impl& impl = *impl_;
  CHECK(shape.layers > 0 && shape.pieces > 0 && shape.piece_bytes() > 0 &&
        shape.piece_bytes() % kAlignment == 0);
  end();
  if (shape.file_bytes() > impl.options.max_bytes) {
    return resource_exhausted(fmt::format(
        "--kv-disk {}: the KV of a long sequence needs {} MiB; the limit is stream={}MiB",
        impl.options.folder, shape.file_bytes() >> 20, impl.options.max_bytes >> 20));
  }
  impl.shape = shape;
  impl.pieces_per_job = std::max<std::uint64_t>(
      1, impl.options.read_bytes / static_cast<std::uint64_t>(shape.piece_bytes()));
  RETURN_IF_ERROR(impl.open());
  if (auto room = impl.take_room(); !room) {
    end();
    return room;
  }
  CHECK(getrandom(impl.key.data(), impl.key.size(), 0) == static_cast<ssize_t>(impl.key.size()));
  impl.nonces = 0;
  impl.seals.assign(static_cast<std::size_t>(shape.layers) * static_cast<std::size_t>(shape.pieces),
                    {});
  return {};
}

void KvStream::end() {
  impl_->file = FileDescriptor();
  impl_->seals = {};
  impl_->shape = {};
}

void KvStream::load(Batch& batch, const Range& range, std::span<std::byte* const> slices) {
  impl_->start(batch, true, range, slices);
}

void KvStream::save(Batch& batch, const Range& range, std::span<std::byte* const> slices) {
  impl_->start(batch, false, range, slices);
}

Status KvStream::wait(Batch& batch) {
  Batch::State& state = *batch.state_;
  std::unique_lock lock(state.mutex);
  state.ended.wait(lock, [&] { return state.under_way == 0; });
  if (!state.error) return {};
  return *std::exchange(state.error, std::nullopt);
}

bool KvStream::wait_for(Batch& batch, Duration at_most) {
  Batch::State& state = *batch.state_;
  std::unique_lock lock(state.mutex);
  return state.ended.wait_for(lock, at_most, [&] { return state.under_way == 0; });
}

KvStream::Bytes KvStream::bytes() const { return {impl_->loaded, impl_->saved}; }

}  // namespace sluice
