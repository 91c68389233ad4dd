#include "loadgen/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "loadgen/gnuplot.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

std::string text_of(const std::string& path) {
  const auto text = read_file(path, 16 << 20);
  EXPECT_TRUE(text.has_value()) << path;
  return text.value_or("");
}

LoadResult small_run() {
  ServingRecorder recorder;
  LoadResult result;
  for (int i = 0; i < 4; ++i) {
    RequestRecord record;
    record.arrival = record.sent = milliseconds(300 * i);
    record.first_token = record.arrival + milliseconds(50);
    record.last_token = record.ended = record.arrival + milliseconds(70);
    record.prompt_tokens = 10;
    record.output_tokens = 2;
    record.finished = true;
    recorder.add_first_token(*record.first_token);
    recorder.add_token(*record.last_token, milliseconds(20));
    recorder.add_request(record);
    result.records.push_back(record);
    result.chunks.push_back({0.3F * static_cast<float>(i), -1});
    result.chunks.push_back({0.3F * static_cast<float>(i) + 0.02F, 20});
  }
  result.summary = recorder.finish(milliseconds(1200));
  result.samples = {{milliseconds(0), 1, 0, 0.1}, {milliseconds(1000), 2, 1, 0.2}};
  return result;
}

std::string data_of(const std::vector<Plot>& plots, const std::string& file) {
  for (const Plot& plot : plots) {
    for (const auto& [name, content] : plot.data) {
      if (name == file) return content;
    }
  }
  return "";
}

TEST(Report, PlotsAreOfWhatIsThere) {
  const auto plots = run_plots(small_run());
  ASSERT_EQ(plots.size(), 4U);
  EXPECT_THAT(data_of(plots, "ttft_cdf.dat"), HasSubstr("50 0.5\n"));
  EXPECT_THAT(data_of(plots, "tbt_over_time.dat"), HasSubstr(" 20 20 20 "));
  EXPECT_THAT(data_of(plots, "server_batch.dat"), HasSubstr("1 2 1 0.2\n"));
  LoadResult nothing;
  EXPECT_TRUE(run_plots(nothing).empty());
  EXPECT_TRUE(capacity_plots({CapacityPoint()}, 100).empty());
}

TEST(Report, ThePageStandsAloneAndHidesNothing) {
  TempDirectory folder;
  LoadResult run = small_run();
  run.errors = {{"HTTP 500: <script>alert(1)</script>", 3}};
  ReportInput input;
  input.title = "a & b";
  input.facts = {{"Model", "<m>"}};
  input.table = "the table";
  input.run = &run;
  const std::string path = folder.file("report");
  ASSERT_TRUE(prepare_report(path).has_value());
  const auto files = write_report(path, input);
  ASSERT_TRUE(files.has_value()) << files.error().message;
  const std::string page = text_of(files->page);
  EXPECT_THAT(page, HasSubstr("a &amp; b"));
  EXPECT_THAT(page, HasSubstr("&lt;m&gt;"));
  EXPECT_THAT(page, HasSubstr("the table"));
  EXPECT_THAT(page, HasSubstr("HTTP 500: &lt;script&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  if (!files->plot_problem.empty()) {
    // The page says why it has no plots.
    EXPECT_THAT(files->plot_problem, HasSubstr("gnuplot-nox"));
    EXPECT_THAT(page, HasSubstr("gnuplot-nox"));
    GTEST_SKIP() << files->plot_problem;
  }
  for (const char* name : {"latency_cdf", "tbt_over_time", "requests_over_time", "server_batch"}) {
    EXPECT_EQ(text_of(path + "/" + name + ".png").substr(1, 3), "PNG") << name;
    EXPECT_THAT(text_of(path + "/" + name + ".svg"), HasSubstr("<svg")) << name;
  }
  std::size_t figures = 0;
  for (std::size_t at = page.find("<svg"); at != std::string::npos;
       at = page.find("<svg", at + 1)) {
    ++figures;
  }
  EXPECT_EQ(figures, 4U);
}

TEST(Report, ProbesOfACapacitySearchAreATableAndCurves) {
  TempDirectory folder;
  ReportInput input;
  input.probes = {{2, 2.1, 100, 80, 40, 1, true}, {4, 3.9, 150, 300, 90, 2500, false}};
  input.tbt_slo_ms = 100;
  ASSERT_TRUE(prepare_report(folder.path()).has_value());
  const auto files = write_report(folder.path(), input);
  ASSERT_TRUE(files.has_value()) << files.error().message;
  const std::string page = text_of(files->page);
  EXPECT_THAT(page, HasSubstr("<td>met</td>"));
  EXPECT_THAT(page, HasSubstr("<td>missed</td>"));
  if (files->plot_problem.empty()) {
    EXPECT_THAT(page, HasSubstr("Throughput and latency"));
  }
}

TEST(Report, AProgramThatIsMissingOrFailsIsSaidSo) {
  TempDirectory folder;
  const auto missing = run_gnuplot(folder.path(), "x.gp", "no-such-gnuplot");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(missing.error().message, HasSubstr("gnuplot-nox"));
  const auto failed = run_gnuplot(folder.path(), "x.gp", "false");
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message, HasSubstr("it said nothing"));
}

TEST(Report, AFolderThatCannotBeIsToldBeforeTheRun) {
  TempDirectory folder;
  folder.write("file", "x");
  const auto status = prepare_report(folder.file("file") + "/sub");
  ASSERT_FALSE(status.has_value());
  EXPECT_THAT(status.error().message, HasSubstr("--report"));
}

}  // namespace
}  // namespace sluice
