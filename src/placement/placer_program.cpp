#include "placement/placer_program.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <vector>

namespace sluice {
namespace {

std::int64_t divide_up(std::int64_t n, std::int64_t by) {
  return n >= 0 ? (n + by - 1) / by : -(-n / by);
}

// The lines of a constraint stay short: LP readers limit their length.
class Sum {
 public:
  void add(std::int64_t factor, const std::string& variable) {
    if (factor == 0) return;
    if (++terms_ % 8 == 0) text_ += "\n ";
    text_ += fmt::format(" {} {} {}", factor < 0 ? '-' : '+', std::abs(factor), variable);
  }
  std::string line(const std::string& name, const char* relation, std::int64_t limit) const {
    return fmt::format(" {}:{} {} {}\n", name, text_, relation, limit);
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int terms_ = 0;
};

std::string count_name(std::size_t server, std::size_t kind) {
  return fmt::format("n{}_{}", kind, server);
}

std::string server_rows(const Cluster& cluster, std::size_t server, std::int64_t unit) {
  Sum room;
  Sum spare;
  Sum producers;
  for (std::size_t k = 0; k < cluster.kinds.size(); ++k) {
    const ModelKind& kind = cluster.kinds[k];
    const std::string name = count_name(server, k);
    room.add(kind.gpus, name);
    spare.add(kind.gpus * kind.spare_mb / unit, name);
    producers.add(kind.is_producer() ? kind.gpus : -kind.gpus, name);
  }
  spare.add(-1, "zr");
  producers.add(-1, "zn");
  return room.line(fmt::format("room{}", server), "<=", cluster.gpus_per_server) +
         spare.line(fmt::format("spare{}", server), "<=", 0) +
         producers.line(fmt::format("producers{}", server), "<=", 0);
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status read_count(const Cluster& cluster, const std::vector<std::string_view>& words,
                  ModelPlacement& placement) {
  const std::string_view name = words[1];
  if (name == "zr" || name == "zn") return {};
  const std::size_t bar = name.find('_');
  std::optional<std::size_t> kind;
  std::optional<std::size_t> server;
  if (name.starts_with('n') && bar != std::string_view::npos) {
    kind = number<std::size_t>(name.substr(1, bar - 1));
    server = number<std::size_t>(name.substr(bar + 1));
  }
  const auto value = number<double>(words[2]);
  if (!kind || !server || *kind >= cluster.kinds.size() || *server >= placement.counts.size()) {
    return internal_error(fmt::format("CBC's solution names '{}', which is no variable", name));
  }
  if (!value || !(*value > -0.5) || *value > cluster.kinds[*kind].count + 0.5) {
    return internal_error(fmt::format("CBC's solution has '{}' for {}", words[2], name));
  }
  placement.counts[*server][*kind] = static_cast<std::int32_t>(std::lround(*value));
  return {};
}

}  // namespace

std::string placer_program(const Cluster& cluster) {
  const std::int64_t unit = spare_unit_mb(cluster);
  const auto servers = static_cast<std::size_t>(cluster.servers);
  Sum objective;
  objective.add(unit, "zr");
  objective.add(cluster.gpu_memory_mb, "zn");
  std::string rows = "Subject To\n";
  std::string integers = "General\n zr zn\n";
  std::int64_t spare = 0;
  std::int64_t producers = 0;
  for (std::size_t k = 0; k < cluster.kinds.size(); ++k) {
    const ModelKind& kind = cluster.kinds[k];
    const std::int64_t shards = std::int64_t{kind.count} * kind.gpus;
    spare += shards * kind.spare_mb;
    producers += kind.is_producer() ? shards : -shards;
    Sum all;
    for (std::size_t s = 0; s < servers; ++s) {
      all.add(1, count_name(s, k));
      integers += " " + count_name(s, k) + (s % 8 == 7 ? "\n" : "");
    }
    integers += "\n";
    rows += all.line(fmt::format("all{}", k), "=", kind.count);
  }
  for (std::size_t s = 0; s < servers; ++s) rows += server_rows(cluster, s, unit);
  const std::string bounds =
      fmt::format("Bounds\n {} <= zr <= 1e9\n {} <= zn <= 1e9\n",
                  divide_up(spare, unit * cluster.servers), divide_up(producers, cluster.servers));
  return fmt::format("Minimize\n obj:{}\n{}{}{}End\n", objective.text(), rows, bounds, integers);
}

Result<SolverAnswer> parse_solution(const Cluster& cluster, std::string_view text) {
  SolverAnswer answer;
  ModelPlacement placement;
  placement.counts.assign(static_cast<std::size_t>(cluster.servers),
                          std::vector<std::int32_t>(cluster.kinds.size()));
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (first) {
      first = false;
      answer.optimal = line.starts_with("Optimal");
      answer.infeasible = line.find("nfeasible") != std::string_view::npos;
      if (answer.infeasible) return answer;
      if (answer.optimal || line.starts_with("Stopped")) continue;
      return internal_error("CBC's solution begins with neither Optimal, Stopped nor Infeasible");
    }
    const auto words = words_of(line);
    if (words.empty()) continue;
    if (words.size() < 3) return internal_error("CBC's solution has a line that is too short");
    // "**" marks a row that does not hold, as in a solution that was stopped too early.
    if (words[0] == "**") return answer;
    RETURN_IF_ERROR(read_count(cluster, words, placement));
  }
  if (first) return internal_error("CBC's solution is empty");
  if (check_placement(cluster, placement)) answer.placement = std::move(placement);
  if (answer.optimal && !answer.placement) {
    return internal_error("CBC's optimal solution breaks a constraint");
  }
  return answer;
}

std::optional<double> parse_lower_bound(std::string_view output) {
  constexpr std::string_view kName = "\nLower bound:";
  const std::size_t found = output.rfind(kName);
  if (found == std::string_view::npos) return std::nullopt;
  output.remove_prefix(found + kName.size());
  const auto words = words_of(output.substr(0, output.find('\n')));
  const auto value = words.empty() ? std::nullopt : number<double>(words[0]);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

}  // namespace sluice
