#include "loadgen/plots.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace sluice {
namespace {

constexpr int kCdfPoints = 500;
// A run's time is divided into at most this many bins.
constexpr double kBins = 300;
constexpr double kShortestBin = 0.25;  // seconds

template <class... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  append_format(out, format, std::forward<Args>(args)...);
}

// The time bins of a run.
struct Bins {
  explicit Bins(Duration run) {
    width = std::max(to_seconds(run) / kBins, kShortestBin);
    count = static_cast<std::size_t>(to_seconds(run) / width) + 1;
  }
  std::size_t of(double second) const {
    return std::min(count - 1, static_cast<std::size_t>(std::max(second, 0.0) / width));
  }
  double middle(std::size_t bin) const { return (static_cast<double>(bin) + 0.5) * width; }
  double width = 1;  // seconds
  std::size_t count = 1;
};

std::string cdf_data(const LatencyPool& pool) {
  std::string out = "# milliseconds, share of all\n";
  for (int i = 0; i <= kCdfPoints; ++i) {
    const double percent = 100.0 * i / kCdfPoints;
    add(out, "{} {}\n", std::max(to_milliseconds(pool.percentile(percent)), 0.001), percent / 100);
  }
  return out;
}

Plot latency_cdf(const ServingSummary& summary) {
  Plot plot{"latency_cdf",
            "Latencies",
            "Share of requests (TTFT, TPOT) and of gaps between "
            "tokens (TBT) that took at most this long.",
            {},
            {}};
  plot.commands =
      "set logscale x\nset xlabel 'milliseconds'\nset ylabel 'share at most this long'\n"
      "set yrange [0:1]\nplot ";
  const auto line = [&](const char* file, const char* title, int style, const LatencyPool& pool) {
    if (pool.count() == 0) return;
    plot.data.emplace_back(file, cdf_data(pool));
    add(plot.commands, "'{}' using 1:2 with steps ls {} title '{}', \\\n", file, style, title);
  };
  line("ttft_cdf.dat", "TTFT", 1, summary.ttft);
  line("tpot_cdf.dat", "TPOT", 2, summary.tpot);
  line("tbt_cdf.dat", "TBT", 3, summary.tbt);
  plot.commands += "1/0 notitle\n";
  return plot;
}

Plot tbt_over_time(const std::vector<ChunkMark>& chunks, Duration run) {
  const Bins bins(run);
  std::vector<std::vector<float>> gaps(bins.count);
  for (const ChunkMark& chunk : chunks) {
    if (chunk.gap_ms >= 0) gaps[bins.of(chunk.at_s)].push_back(chunk.gap_ms);
  }
  std::string data = "# second, median, P99, longest gap (ms), chunks per second\n";
  bool any = false;
  for (std::size_t bin = 0; bin < bins.count; ++bin) {
    std::vector<float>& all = gaps[bin];
    if (all.empty()) continue;
    any = true;
    std::sort(all.begin(), all.end());
    const auto at = [&](double share) {
      return std::max(all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))],
                      0.001F);
    };
    add(data, "{} {} {} {} {}\n", bins.middle(bin), at(0.5), at(0.99), at(1.0),
        static_cast<double>(all.size()) / bins.width);
  }
  Plot plot{"tbt_over_time",
            "TBT over time",
            "Gaps between tokens of a request, by the moment in which they ended: a stall shows as "
            "a peak.",
            {},
            {}};
  if (!any) return plot;
  plot.data.emplace_back("tbt_over_time.dat", std::move(data));
  plot.commands =
      "set logscale y\nset xlabel 'seconds'\nset ylabel 'milliseconds'\n"
      "plot 'tbt_over_time.dat' using 1:4 with lines ls 3 title 'longest', \\\n"
      "'' using 1:3 with lines ls 2 title 'P99', '' using 1:2 with lines ls 1 title 'median'\n";
  return plot;
}

// The number of requests that wait for their first token and that are being streamed at the end of
// each bin, and the number of tokens in the bin.
Plot requests_over_time(const LoadResult& result) {
  const Bins bins(result.summary.duration);
  std::vector<std::int64_t> waiting(bins.count + 1);
  std::vector<std::int64_t> streaming(bins.count + 1);
  std::vector<std::int64_t> tokens(bins.count);
  const auto span = [&](std::vector<std::int64_t>& steps, Duration from, Duration to) {
    ++steps[bins.of(to_seconds(from))];
    --steps[bins.of(to_seconds(to))];
  };
  for (const RequestRecord& record : result.records) {
    const Duration first = record.first_token.value_or(record.ended);
    span(waiting, record.arrival, first);
    if (record.first_token) span(streaming, first, record.ended);
  }
  for (const ChunkMark& chunk : result.chunks) ++tokens[bins.of(chunk.at_s)];
  std::string data = "# second, waiting for the first token, streaming, chunks per second\n";
  std::int64_t waits = 0;
  std::int64_t streams = 0;
  for (std::size_t bin = 0; bin < bins.count; ++bin) {
    waits += waiting[bin];
    streams += streaming[bin];
    add(data, "{} {} {} {}\n", bins.middle(bin), waits, streams,
        static_cast<double>(tokens[bin]) / bins.width);
  }
  Plot plot{"requests_over_time",
            "Requests over time",
            "As the clients see them: waiting for their first token (queue and prefill), and "
            "receiving tokens (decode); and the number of token chunks.",
            {},
            {}};
  if (result.records.empty()) return plot;
  plot.data.emplace_back("requests_over_time.dat", std::move(data));
  plot.commands =
      "set xlabel 'seconds'\nset ylabel 'requests'\nset yrange [0:*]\nset y2range [0:*]\n"
      "set y2tics textcolor rgb '#808080'\nset y2label 'chunks/s' textcolor rgb '#808080'\n"
      "plot 'requests_over_time.dat' using 1:2 with steps ls 3 title 'waiting for first token', "
      "\\\n'' using 1:3 with steps ls 1 title 'streaming', \\\n"
      "'' using 1:4 axes x1y2 with lines ls 2 title 'chunks/s'\n";
  return plot;
}

Plot server_over_time(const std::vector<ServerSample>& samples) {
  std::string data = "# second, running, waiting, share of KV blocks in use\n";
  for (const ServerSample& sample : samples) {
    add(data, "{} {} {} {}\n", to_seconds(sample.at), sample.running, sample.waiting,
        sample.kv_usage.value_or(0));
  }
  Plot plot{"server_batch",
            "The server's batch",
            "The server's /metrics, once a second: "
            "requests that run and wait, and the share of the KV cache in use.",
            {},
            {}};
  if (samples.size() < 2) return plot;
  plot.data.emplace_back("server_batch.dat", std::move(data));
  plot.commands =
      "set xlabel 'seconds'\nset ylabel 'requests'\nset yrange [0:*]\nset y2range [0:1]\n"
      "set y2tics textcolor rgb '#808080'\n"
      "set y2label 'KV cache in use' textcolor rgb '#808080'\n"
      "plot 'server_batch.dat' using 1:2 with steps ls 1 title 'running', \\\n"
      "'' using 1:3 with steps ls 3 title 'waiting', \\\n"
      "'' using 1:4 axes x1y2 with lines ls 2 title 'KV cache'\n";
  return plot;
}

}  // namespace

std::vector<Plot> run_plots(const LoadResult& result) {
  std::vector<Plot> plots;
  plots.push_back(latency_cdf(result.summary));
  plots.push_back(tbt_over_time(result.chunks, result.summary.duration));
  plots.push_back(requests_over_time(result));
  plots.push_back(server_over_time(result.samples));
  std::erase_if(plots, [](const Plot& plot) { return plot.data.empty(); });
  return plots;
}

std::vector<Plot> capacity_plots(std::vector<CapacityPoint> points, double tbt_slo_ms) {
  if (points.size() < 2) return {};
  std::sort(points.begin(), points.end(),
            [](const CapacityPoint& a, const CapacityPoint& b) { return a.rate < b.rate; });
  std::string data = "# requests/s, P99 TBT, median delay, median TTFT (ms), tokens/s, met\n";
  for (const CapacityPoint& point : points) {
    add(data, "{} {} {} {} {} {}\n", point.rate, std::max(point.p99_tbt_ms, 0.001),
        std::max(point.median_delay_ms, 0.001), std::max(point.median_ttft_ms, 0.001),
        point.output_throughput, point.met ? 1 : 0);
  }
  Plot latency{"latency_over_rate",
               "Latency over load",
               "Each point is a probe; the level line is "
               "the objective of the P99 TBT.",
               {},
               {}};
  latency.data.emplace_back("probes.dat", data);
  latency.commands = fmt::format(
      "set logscale y\nset xlabel 'requests/s'\nset ylabel 'milliseconds'\n"
      "plot 'probes.dat' using 1:2 with linespoints ls 3 title 'P99 TBT', \\\n"
      "'' using 1:4 with linespoints ls 1 title 'median TTFT', \\\n"
      "{} with lines ls 4 title 'objective'\n",
      tbt_slo_ms);
  Plot throughput{"throughput_latency",
                  "Throughput and latency",
                  "The token throughput "
                  "and the P99 TBT of each probe.",
                  {},
                  {}};
  throughput.data.emplace_back("probes.dat", std::move(data));
  throughput.commands =
      "set logscale y\nset xlabel 'output tokens/s'\nset ylabel 'P99 TBT, milliseconds'\n"
      "plot 'probes.dat' using 5:2 with linespoints ls 3 title 'probes'\n";
  return {std::move(latency), std::move(throughput)};
}

}  // namespace sluice
