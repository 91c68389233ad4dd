// Text that CBC (https://github.com/coin-or/Cbc) reads and writes: rows in CPLEX's LP format, and
// its solution file. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice {

// A sum of variables. Lines stay short: LP readers limit their length.
class CbcSum {
 public:
  void add(std::int64_t factor, const std::string& variable);
  std::string line(const std::string& name, const char* relation, std::int64_t limit) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int terms_ = 0;
};

struct CbcSolution {
  bool optimal = false;     // also of a program whose objective is constant
  bool infeasible = false;  // proved
  bool holds = false;       // every row holds; false after a search that was stopped too early
  std::vector<std::pair<std::string, double>> values;  // variables that are not 0, in any order
};

// Errors: the text is no solution file.
Result<CbcSolution> parse_cbc_solution(std::string_view text);

// A value that has to be a count of at most `most`. Errors name the variable.
Result<std::int32_t> cbc_count(const std::string& variable, double value, std::int32_t most);

// "Lower bound:" of what CBC prints when its time is over; absent: it is not there.
std::optional<double> parse_lower_bound(std::string_view output);

}  // namespace sluice
