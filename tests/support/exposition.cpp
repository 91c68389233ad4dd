#include "tests/support/exposition.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>

namespace sluice::test {
namespace {

[[noreturn]] void refuse(std::string_view line, const std::string& why) {
  throw std::runtime_error(why + ": " + std::string(line));
}

class LineParser {
 public:
  explicit LineParser(std::string_view line) : line_(line), rest_(line) {}

  std::string name(bool colons) {
    std::size_t length = 0;
    while (length < rest_.size() && is_name_char(rest_[length], colons)) ++length;
    if (length == 0 || std::isdigit(static_cast<unsigned char>(rest_[0])) != 0) fail("name");
    return take(length);
  }
  bool accept(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("expected ") + c);
  }
  std::string quoted() {
    expect('"');
    std::string text;
    while (!accept('"')) {
      if (rest_.empty()) fail("open quote");
      text += accept('\\') ? escape(true) : take(1)[0];
    }
    return text;
  }
  std::string help() {
    std::string text;
    while (!rest_.empty()) text += accept('\\') ? escape(false) : take(1)[0];
    return text;
  }
  double number() {
    const std::string text = take(rest_.size());
    if (text == "+Inf") return std::numeric_limits<double>::infinity();
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || std::isspace(static_cast<unsigned char>(text[0])) != 0 ||
        end != text.c_str() + text.size()) {
      fail("number");
    }
    return value;
  }
  std::string rest() { return take(rest_.size()); }
  [[noreturn]] void fail(const std::string& why) const { refuse(line_, why); }

 private:
  static bool is_name_char(char c, bool colons) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (colons && c == ':');
  }
  char escape(bool quote) {
    if (accept('n')) return '\n';
    if (accept('\\')) return '\\';
    if (quote && accept('"')) return '"';
    fail("escape");
  }
  std::string take(std::size_t length) {
    std::string text(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return text;
  }

  std::string_view line_;
  std::string_view rest_;
};

ExpositionSample parse_sample(LineParser& line) {
  ExpositionSample sample;
  sample.name = line.name(true);
  if (line.accept('{') && !line.accept('}')) {
    do {
      const std::string label = line.name(false);
      line.expect('=');
      if (!sample.labels.emplace(label, line.quoted()).second) line.fail("label twice");
    } while (line.accept(','));
    line.expect('}');
  }
  line.expect(' ');
  sample.value = line.number();
  return sample;
}

bool belongs(const std::string& family, const std::string& type, const std::string& name) {
  if (type != "histogram") return name == family;
  return name == family + "_bucket" || name == family + "_sum" || name == family + "_count";
}

void check_histogram(const std::string& family, const ExpositionFamily& histogram) {
  struct Series {
    double last_le = -std::numeric_limits<double>::infinity();
    double last = 0;
    std::optional<double> count;
    bool sum = false;
  };
  std::map<std::map<std::string, std::string>, Series> all;
  for (const ExpositionSample& sample : histogram.samples) {
    std::map<std::string, std::string> labels = sample.labels;
    if (sample.name == family + "_sum") {
      all[labels].sum = true;
    } else if (sample.name == family + "_count") {
      all[labels].count = sample.value;
    } else {
      const std::string le = labels.at("le");
      labels.erase("le");
      const double bound = LineParser(le).number();
      Series& series = all[labels];
      if (bound <= series.last_le) refuse(le, family + " buckets are not in order");
      if (sample.value < series.last) refuse(le, family + " buckets are not cumulative");
      series.last_le = bound;
      series.last = sample.value;
    }
  }
  for (const auto& [labels, series] : all) {
    if (!std::isinf(series.last_le)) refuse(family, "no +Inf bucket");
    if (!series.sum || series.count != series.last) refuse(family, "_sum or _count");
  }
}

}  // namespace

double ExpositionFamily::value(const std::map<std::string, std::string>& labels,
                               std::string_view suffix) const {
  std::optional<double> found;
  for (const ExpositionSample& sample : samples) {
    bool matches = sample.name.ends_with(suffix);
    for (const auto& [name, text] : labels) {
      const auto label = sample.labels.find(name);
      matches = matches && label != sample.labels.end() && label->second == text;
    }
    if (!matches) continue;
    if (found) throw std::runtime_error("several samples of " + sample.name);
    found = sample.value;
  }
  if (!found) throw std::runtime_error("no such sample" + std::string(suffix));
  return *found;
}

Exposition parse_exposition(std::string_view text) {
  Exposition families;
  std::string family;
  std::set<std::string> seen;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) refuse(text, "no end of line");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.starts_with("# HELP ")) {
      LineParser parser(line.substr(7));
      family = parser.name(true);
      if (families.contains(family)) refuse(line, "family twice");
      parser.expect(' ');
      families[family].help = parser.help();
    } else if (line.starts_with("# TYPE ")) {
      LineParser parser(line.substr(7));
      if (parser.name(true) != family || !families[family].type.empty()) refuse(line, "TYPE");
      parser.expect(' ');
      families[family].type = parser.rest();
    } else {
      LineParser parser(line);
      const ExpositionSample sample = parse_sample(parser);
      const auto found = families.find(family);
      if (found == families.end() || !belongs(family, found->second.type, sample.name)) {
        refuse(line, "outside its family");
      }
      if (!seen.emplace(line.substr(0, line.rfind(' '))).second) refuse(line, "sample twice");
      found->second.samples.push_back(sample);
    }
  }
  for (const auto& [name, parsed] : families) {
    if (parsed.type == "histogram") check_histogram(name, parsed);
  }
  return families;
}

}  // namespace sluice::test
