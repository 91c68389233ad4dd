#include "base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include "base/check.h"
#include "base/control_groups.h"
#include "base/file.h"

namespace sluice {
namespace {

constexpr int kMaxCpus = 1 << 16;

class CpuMask {
 public:
  explicit CpuMask(int cpus) : words_((static_cast<std::size_t>(cpus) + kWord - 1) / kWord) {}
  std::size_t bytes() const { return words_.size() * sizeof(unsigned long); }
  cpu_set_t* get() { return reinterpret_cast<cpu_set_t*>(words_.data()); }
  void add(int id) { words_[word_of(id)] |= bit_of(id); }
  bool has(int id) const { return (words_[word_of(id)] & bit_of(id)) != 0; }

 private:
  static constexpr std::size_t kWord = sizeof(unsigned long) * CHAR_BIT;
  static std::size_t word_of(int id) { return static_cast<std::size_t>(id) / kWord; }
  static unsigned long bit_of(int id) { return 1UL << (static_cast<std::size_t>(id) % kWord); }

  std::vector<unsigned long> words_;
};

// The text of a small file of the kernel's, without the line's end.
std::optional<std::string> read_line(const std::string& path) {
  auto text = read_file(path, 1 << 16);
  if (!text) return std::nullopt;
  text->resize(std::min(text->find('\n'), text->size()));
  return *std::move(text);
}

std::vector<int> read_list(const std::string& path) {
  const auto line = read_line(path);
  if (!line) return {};
  return parse_cpu_list(*line).value_or(std::vector<int>());
}

template <class Number>
std::optional<Number> take_number(std::string_view& text) {
  Number value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// "QUOTA PERIOD" in microseconds; "max" and -1 mean no limit.
std::optional<double> limit_in(std::string_view text) {
  const auto quota = take_number<std::int64_t>(text);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto period = take_number<std::int64_t>(text);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> ids;
  while (!text.empty()) {
    const auto first = take_number<int>(text);
    auto last = first;
    if (!text.empty() && text.front() == '-') {
      text.remove_prefix(1);
      last = take_number<int>(text);
    }
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) return std::nullopt;
    for (int id = *first; id <= *last; ++id) ids.push_back(id);
    if (text.empty()) break;
    if (text.front() != ',' || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

CpuTopology read_cpu_topology(const std::string& root) {
  const std::string system = root + "sys/devices/system/";
  CpuTopology topology;
  for (const int id : read_list(system + "cpu/online")) {
    const std::string folder = system + "cpu/cpu" + std::to_string(id) + "/topology/";
    const std::vector<int> siblings = read_list(folder + "thread_siblings_list");
    const bool listed = std::ranges::binary_search(siblings, id);
    topology.cpus.push_back({.id = id, .core = listed ? siblings.front() : id});
  }
  for (const int node : read_list(system + "node/online")) {
    const auto ids = read_list(system + "node/node" + std::to_string(node) + "/cpulist");
    for (LogicalCpu& cpu : topology.cpus) {
      if (std::ranges::binary_search(ids, cpu.id)) cpu.node = node;
    }
  }
  return topology;
}

std::int64_t largest_cache_bytes(const std::string& root) {
  const std::string system = root + "sys/devices/system/cpu/";
  std::int64_t largest = 0;
  for (const int id : read_list(system + "online")) {
    const std::string caches = system + "cpu" + std::to_string(id) + "/cache/index";
    for (int index = 0;; ++index) {
      const auto line = read_line(caches + std::to_string(index) + "/size");
      if (!line) break;
      std::string_view text = *line;
      const auto kibibytes = take_number<std::int64_t>(text);
      constexpr std::int64_t kMost = std::int64_t{1} << 40;
      if (!kibibytes || text != "K" || *kibibytes > kMost) continue;
      largest = std::max(largest, *kibibytes * 1024);
    }
  }
  return largest;
}

std::vector<int> allowed_cpu_ids() {
  std::vector<int> ids;
  // The kernel refuses masks that are shorter than its own.
  for (int size = 1024; size <= kMaxCpus; size *= 2) {
    CpuMask mask(size);
    if (sched_getaffinity(0, mask.bytes(), mask.get()) != 0) continue;
    for (int id = 0; id < size; ++id) {
      if (mask.has(id)) ids.push_back(id);
    }
    return ids;
  }
  return ids;
}

Status bind_this_thread(std::span<const int> cpu_ids) {
  CHECK(!cpu_ids.empty());
  CpuMask mask(std::ranges::max(cpu_ids) + 1);
  for (const int id : cpu_ids) mask.add(id);
  if (sched_setaffinity(0, mask.bytes(), mask.get()) == 0) return {};
  return unsupported("sched_setaffinity: " + std::generic_category().message(errno));
}

std::optional<double> read_cpu_limit(const std::string& root) {
  std::optional<double> least;
  for (const ControlGroupFolder& group : control_group_folders(root, "cpu")) {
    const std::string text = group.unified
                                 ? read_line(group.path + "cpu.max").value_or("")
                                 : read_line(group.path + "cpu.cfs_quota_us").value_or("") + " " +
                                       read_line(group.path + "cpu.cfs_period_us").value_or("");
    const auto limit = limit_in(text);
    if (limit) least = std::min(least.value_or(*limit), *limit);
  }
  return least;
}

}  // namespace sluice
