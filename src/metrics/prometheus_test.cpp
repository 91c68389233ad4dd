// The exposition, byte by byte and through a strict parser of the format.
#include "metrics/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "metrics/counter.h"
#include "tests/support/exposition.h"

namespace sluice {
namespace {

TEST(PrometheusTest, CountersAndGauges) {
  Counter requests;
  requests.add();
  requests.add(2);
  Gauge temperature;
  temperature.set(-0.25);
  std::string out = "before\n";
  PrometheusWriter writer("sluice:", out);
  writer.counter("requests_total", "Requests answered.");
  writer.value({{"path", "/a"}, {"status", "200"}}, requests.value());
  writer.value({}, 1e21);
  writer.gauge("temperature", "How warm.");
  writer.value({}, temperature.value());
  EXPECT_EQ(out,
            "before\n"
            "# HELP sluice:requests_total Requests answered.\n"
            "# TYPE sluice:requests_total counter\n"
            "sluice:requests_total{path=\"/a\",status=\"200\"} 3\n"
            "sluice:requests_total 1e+21\n"
            "# HELP sluice:temperature How warm.\n"
            "# TYPE sluice:temperature gauge\n"
            "sluice:temperature -0.25\n");
}

TEST(PrometheusTest, HistogramsAreCumulativeAndEndAtInfinity) {
  Histogram h({0.001, 0.5});
  h.record(0.0);
  h.record(0.25, 2);
  h.record(3);
  std::string out;
  PrometheusWriter writer("", out);
  writer.histogram("wait_seconds", "Waits.");
  writer.buckets({{"m", "x"}}, h);
  EXPECT_EQ(out,
            "# HELP wait_seconds Waits.\n"
            "# TYPE wait_seconds histogram\n"
            "wait_seconds_bucket{m=\"x\",le=\"0.001\"} 1\n"
            "wait_seconds_bucket{m=\"x\",le=\"0.5\"} 3\n"
            "wait_seconds_bucket{m=\"x\",le=\"+Inf\"} 4\n"
            "wait_seconds_sum{m=\"x\"} 3.5\n"
            "wait_seconds_count{m=\"x\"} 4\n");
}

TEST(PrometheusTest, TextIsEscapedAsItsPlaceWants) {
  std::string out;
  PrometheusWriter writer("s_", out);
  writer.gauge("g", "a \\ b\nc \"d\"");
  writer.value({{"v", "a\\b\n\"c\" d{e=\"f\"} \xC3\xA9"}}, 1);
  EXPECT_EQ(out,
            "# HELP s_g a \\\\ b\\nc \"d\"\n"
            "# TYPE s_g gauge\n"
            "s_g{v=\"a\\\\b\\n\\\"c\\\" d{e=\\\"f\\\"} \xC3\xA9\"} 1\n");
  const auto families = test::parse_exposition(out);
  EXPECT_EQ(families.at("s_g").help, "a \\ b\nc \"d\"");
  EXPECT_EQ(families.at("s_g").samples.at(0).labels.at("v"), "a\\b\n\"c\" d{e=\"f\"} \xC3\xA9");
}

TEST(PrometheusTest, ValuesReadBackEqual) {
  for (const double value : {0.0, 1.0, 0.1, 1.0 / 3, 1e-5, 123456789.0, 9007199254740992.0, 5e-324,
                             std::numeric_limits<double>::max()}) {
    std::string text;
    append_metric_value(value, text);
    EXPECT_EQ(std::strtod(text.c_str(), nullptr), value) << text;
  }
  std::string text;
  append_metric_value(INFINITY, text);
  append_metric_value(-INFINITY, text);
  append_metric_value(NAN, text);
  EXPECT_EQ(text, "+Inf-InfNaN");
}

TEST(PrometheusTest, WholeExpositionsParseStrictly) {
  std::string out;
  PrometheusWriter writer("sluice:", out);
  Histogram h(decade_bounds(std::array{1.0, 2.5, 5.0}, 1e-5, 100));
  for (int i = 0; i < 1000; ++i) h.record(0.001 * i);
  writer.histogram("latency_seconds", "Latency.");
  for (const char* model : {"a", "b"}) writer.buckets({{"model_name", model}}, h);
  writer.counter("tokens_total", "Tokens.");
  writer.value({{"model_name", "a"}}, 5);
  const auto families = test::parse_exposition(out);
  ASSERT_EQ(families.size(), 2U);
  EXPECT_EQ(families.at("sluice:latency_seconds").type, "histogram");
  EXPECT_EQ(families.at("sluice:latency_seconds").samples.size(), 2 * (h.bounds().size() + 3));
  EXPECT_EQ(families.at("sluice:tokens_total").samples.at(0).value, 5);
}

// The parser has teeth: what a scraper would refuse, it refuses.
TEST(PrometheusTest, TheStrictParserRefusesWhatAScraperWould) {
  const std::string head = "# HELP a x\n# TYPE a counter\n";
  EXPECT_NO_THROW(test::parse_exposition(head + "a 1\n"));
  const std::string histogram = "# HELP h x\n# TYPE h histogram\n";
  for (const std::string& bad : {
           std::string("a 1\n"),                                      // no TYPE
           head + "a 1",                                              // no end of line
           head + "a{b=\"c} 1\n",                                     // open quote
           head + "a{b=\"\\x\"} 1\n",                                 // unknown escape
           head + "a{9b=\"c\"} 1\n",                                  // label name
           head + "a one\n",                                          // number
           head + "a 1\na 2\n",                                       // twice
           head + "a 1\n" + head,                                     // family twice
           head + "b 1\n",                                            // not of the family
           histogram + "h_bucket{le=\"1\"} 2\nh_sum 1\nh_count 2\n",  // no +Inf
           histogram + "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
           histogram + "h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",  // count
       }) {
    EXPECT_THROW(test::parse_exposition(bad), std::runtime_error) << bad;
  }
}

}  // namespace
}  // namespace sluice
