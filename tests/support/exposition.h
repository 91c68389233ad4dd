// A strict parser of Prometheus's text exposition format 0.0.4, for tests. It throws on text that a
// scraper would refuse or misread. Histograms must be cumulative, end at +Inf and agree with their
// _count.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::test {

struct ExpositionSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

struct ExpositionFamily {
  std::string help;
  std::string type;
  std::vector<ExpositionSample> samples;

  // The sample of a counter or gauge, or of name + `suffix`, that has these labels among its own.
  // Throws when there is not exactly one.
  double value(const std::map<std::string, std::string>& labels = {},
               std::string_view suffix = {}) const;
};

using Exposition = std::map<std::string, ExpositionFamily>;

// Throws std::runtime_error with the faulty line.
Exposition parse_exposition(std::string_view text);

}  // namespace sluice::test
