// WriteBudget: how many bytes a tier may yet write today (UTC), so that a disk lasts. A file of the
// folder keeps the sum, so that a restart does not give the day's bytes again; a kill forgets at
// most kUnnoted bytes. Owner: DiskTier, under its mutex. Time: Unix seconds of the caller.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

class WriteBudget {
 public:
  static constexpr std::uint64_t kUnnoted = std::uint64_t{16} << 20;

  // `daily`: bytes; 0: no limit, and no file.
  explicit WriteBudget(std::uint64_t daily) : daily_(daily) {}

  // Reads the file of an earlier process, if it is there and is of today. Everything else counts as
  // nothing written.
  void open(const std::string& path, std::int64_t now);

  bool allows(std::uint64_t bytes, std::int64_t now) const;
  void note_written(std::uint64_t bytes, std::int64_t now);
  // Writes the file. Errors of the disk are left to the tier's own writes.
  void flush() const;

 private:
  std::uint64_t daily_;
  std::string path_;
  std::int64_t day_ = 0;  // since 1970
  std::uint64_t written_ = 0;
  std::uint64_t unnoted_ = 0;
};

}  // namespace sluice
