// WriteBudget: how many bytes a tier may yet write today (UTC), so that a disk lasts. A file of the
// folder keeps the sum, so that a restart does not give the day's bytes again; a kill forgets at
// most kUnnoted bytes. A clock that goes back begins no new day, so jumps give no bytes again.
// Owner: DiskTier, under its mutex. Time: Unix seconds of the caller.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

class WriteBudget {
 public:
  static constexpr std::uint64_t kUnnoted = std::uint64_t{16} << 20;

  // `daily`: bytes; 0: no limit, and no file.
  explicit WriteBudget(std::uint64_t daily) : daily_(daily) {}

  // The content of the file.
  struct Noted {
    std::int64_t day = 0;  // since 1970
    std::uint64_t written = 0;
  };

  // Reads the file of an earlier process. Bytes of an earlier day, and a file that is not whole,
  // count as nothing written. The file of a later day, before the clock went back, becomes today's.
  void open(const std::string& path, std::int64_t now);

  bool allows(std::uint64_t bytes, std::int64_t now);
  // Whether the caller is to write the file: it has become old.
  bool note_written(std::uint64_t bytes, std::int64_t now);
  Noted noted() const { return {day_, written_}; }
  // Writes the file, without any state: a slow disk need not hold up the owner's mutex. Errors of
  // the disk are left to the tier's own writes.
  void write_file(const Noted& noted) const;

 private:
  void go_to(std::int64_t now);

  std::uint64_t daily_;
  std::string path_;
  std::int64_t day_ = 0;  // since 1970
  std::uint64_t written_ = 0;
  std::uint64_t unnoted_ = 0;
};

}  // namespace sluice
