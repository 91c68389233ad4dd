#include "placement/cbc_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace sluice {
namespace {

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

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

Status read_head(std::string_view line, CbcSolution& solution) {
  solution.optimal = line.starts_with("Optimal");
  solution.infeasible = line.find("nfeasible") != std::string_view::npos;
  solution.holds = !solution.infeasible;
  if (solution.optimal || solution.infeasible || line.starts_with("Stopped")) return {};
  return internal_error("CBC's solution begins with neither Optimal, Stopped nor Infeasible");
}

}  // namespace

void CbcSum::add(std::int64_t factor, const std::string& variable) {
  if (factor == 0) return;
  if (++terms_ % 8 == 0) text_ += "\n ";
  text_ += fmt::format(" {} {} {}", factor < 0 ? '-' : '+', std::abs(factor), variable);
}

std::string CbcSum::line(const std::string& name, const char* relation, std::int64_t limit) const {
  return fmt::format(" {}:{} {} {}\n", name, text_, relation, limit);
}

Result<CbcSolution> parse_cbc_solution(std::string_view text) {
  if (text.empty()) return internal_error("CBC's solution is empty");
  CbcSolution solution;
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (first) {
      first = false;
      RETURN_IF_ERROR(read_head(line, solution));
      // The values of an infeasible program mean nothing.
      if (solution.infeasible) return solution;
      continue;
    }
    const auto words = words_of(line);
    if (words.empty()) continue;
    if (words.size() < 3) return internal_error("CBC's solution has a line that is too short");
    // "**" marks a row that does not hold.
    if (words[0] == "**") {
      solution.holds = false;
      return solution;
    }
    const auto value = number(words[2]);
    if (!value) {
      return internal_error(fmt::format("CBC's solution has '{}' for {}", words[2], words[1]));
    }
    solution.values.emplace_back(words[1], *value);
  }
  return solution;
}

Result<std::int32_t> cbc_count(const std::string& variable, double value, std::int32_t most) {
  if (!(value > -0.5) || value > most + 0.5) {
    return internal_error(fmt::format("CBC's solution has '{}' for {}", value, variable));
  }
  return static_cast<std::int32_t>(std::lround(value));
}

std::optional<double> parse_lower_bound(std::string_view output) {
  constexpr std::string_view kName = "\nLower bound:";
  const std::size_t found = output.rfind(kName);
  if (found == std::string_view::npos) return std::nullopt;
  output.remove_prefix(found + kName.size());
  const auto words = words_of(output.substr(0, output.find('\n')));
  return words.empty() ? std::nullopt : number(words[0]);
}

}  // namespace sluice
