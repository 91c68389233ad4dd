#include "loadgen/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "loadgen/gnuplot.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxFigureBytes = 16 << 20;

// Colours that are visible on white and on black.
constexpr std::string_view kStyle =
    "set border 3 linecolor rgb '#808080'\n"
    "set tics nomirror textcolor rgb '#808080'\n"
    "set grid linecolor rgb '#808080' linewidth 0.3\n"
    "set key outside top center horizontal textcolor rgb '#808080'\n"
    "set style line 1 linecolor rgb '#3b82d6' linewidth 1.8 pointtype 7 pointsize 0.5\n"
    "set style line 2 linecolor rgb '#2c9a62' linewidth 1.8 pointtype 7 pointsize 0.5\n"
    "set style line 3 linecolor rgb '#d9603b' linewidth 1.8 pointtype 7 pointsize 0.5\n"
    "set style line 4 linecolor rgb '#808080' linewidth 1.2 dashtype 2\n"
    "set xlabel textcolor rgb '#808080'\nset ylabel textcolor rgb '#808080'\n";

constexpr std::string_view kPageStyle = R"(
:root { color-scheme: light dark; --ink: #1c1c1e; --paper: #ffffff; --soft: #6b6b70;
  --line: #d8d8dc }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececee; --paper: #16161a; --soft: #a0a0a8; --line: #38383e } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem }
p { color: var(--soft); margin: .2rem 0 .6rem }
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem 1.2rem .15rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
pre { overflow-x: auto; border: 1px solid var(--line); padding: .8rem; line-height: 1.35 }
figure { margin: 0 } svg { width: 100%; height: auto } svg text { fill: var(--ink) }
.problem { color: #c4472a; font-weight: 600 }
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

Status write_text(const std::string& path, std::string_view text) {
  auto status = write_file(path, text);
  if (!status) return with_context("--report", std::move(status).error());
  return {};
}

std::string script(const std::vector<Plot>& plots, std::string_view terminal,
                   std::string_view suffix) {
  std::string out;
  for (const Plot& plot : plots) {
    out += fmt::format("reset\nset terminal {}\nset output '{}.{}'\n{}{}unset output\n", terminal,
                       plot.name, suffix, kStyle, plot.commands);
  }
  return out;
}

// Writes data, commands and figures to the folder.
Status draw(const std::string& folder, const std::vector<Plot>& plots) {
  for (const Plot& plot : plots) {
    for (const auto& [file, content] : plot.data) {
      RETURN_IF_ERROR(write_text(folder + "/" + file, content));
    }
  }
  RETURN_IF_ERROR(
      write_text(folder + "/plots_svg.gp",
                 script(plots, "svg size 760,380 dynamic font 'sans-serif,13'", "svg")));
  RETURN_IF_ERROR(write_text(
      folder + "/plots_png.gp",
      script(plots, "pngcairo size 1140,570 font 'sans,13' background rgb 'white'", "png")));
  RETURN_IF_ERROR(run_gnuplot(folder, "plots_svg.gp"));
  return run_gnuplot(folder, "plots_png.gp");
}

// The figure as part of a page: without the declaration that makes it a file of its own.
Result<std::string> inline_figure(const std::string& folder, const Plot& plot) {
  ASSIGN_OR_RETURN(const std::string text,
                   read_file(fmt::format("{}/{}.svg", folder, plot.name), kMaxFigureBytes));
  const std::size_t at = text.find("<svg");
  if (at == std::string::npos) {
    return internal_error(fmt::format("--report: {}/{}.svg is no figure", folder, plot.name));
  }
  return text.substr(at);
}

std::string facts_table(const ReportInput& input) {
  std::string out = "<table>\n";
  for (const auto& [name, value] : input.facts) {
    out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
  }
  return out + "</table>\n";
}

std::string probes_table(const std::vector<CapacityPoint>& probes) {
  if (probes.empty()) return {};
  std::string out =
      "<h2>Probes</h2>\n<table>\n<tr><th class=number>requests/s</th><th class=number>realised"
      "</th><th class=number>P99 TBT ms</th><th class=number>median delay ms</th>"
      "<th class=number>median TTFT ms</th><th class=number>tokens/s</th><th>objective</th></tr>\n";
  for (const CapacityPoint& point : probes) {
    out += fmt::format(
        "<tr><td class=number>{:.3f}</td><td class=number>{:.3f}</td><td class=number>{:.1f}</td>"
        "<td class=number>{:.1f}</td><td class=number>{:.1f}</td><td class=number>{:.1f}</td>"
        "<td>{}</td></tr>\n",
        point.rate, point.realised, point.p99_tbt_ms, point.median_delay_ms, point.median_ttft_ms,
        point.output_throughput, point.met ? "met" : "missed");
  }
  return out + "</table>\n";
}

std::string errors_table(const LoadResult* run) {
  if (run == nullptr || run->errors.empty()) return {};
  std::string out = "<h2>Errors</h2>\n<table>\n";
  for (const auto& [message, count] : run->errors) {
    out += fmt::format("<tr><td class=number>{}</td><td>{}</td></tr>\n", count, escaped(message));
  }
  return out + "</table>\n";
}

Result<std::string> figures(const std::string& folder, const std::vector<Plot>& plots) {
  std::string out;
  for (const Plot& plot : plots) {
    ASSIGN_OR_RETURN(const std::string figure, inline_figure(folder, plot));
    out += fmt::format(
        "<h2>{}</h2>\n<p>{}</p>\n<figure role=\"img\" aria-label=\"{}\">\n{}\n</figure>\n",
        plot.title, plot.caption, plot.title, figure);
  }
  return out;
}

}  // namespace

Status prepare_report(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return invalid_argument(
        fmt::format("--report {}: cannot make the folder: {}", folder, error.message()));
  }
  return write_text(folder + "/index.html", "");
}

Result<ReportFiles> write_report(const std::string& folder, const ReportInput& input) {
  std::vector<Plot> plots;
  if (input.run != nullptr) plots = run_plots(*input.run);
  for (Plot& plot : capacity_plots(input.probes, input.tbt_slo_ms))
    plots.push_back(std::move(plot));
  plots.insert(plots.end(), input.plots.begin(), input.plots.end());
  ReportFiles files;
  files.page = folder + "/index.html";
  std::string drawn;
  if (const Status status = draw(folder, plots); !status) {
    files.plot_problem = status.error().message;
    drawn = fmt::format("<p class=problem>{}</p>\n", escaped(files.plot_problem));
  } else {
    ASSIGN_OR_RETURN(drawn, figures(folder, plots));
  }
  const std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n{}{}{}{}<h2>Figures as numbers</h2>\n"
      "<pre>{}</pre>\n</body>\n</html>\n",
      escaped(input.title), kPageStyle, escaped(input.title), facts_table(input),
      errors_table(input.run), probes_table(input.probes), drawn, escaped(input.table));
  RETURN_IF_ERROR(write_text(files.page, page));
  return files;
}

}  // namespace sluice
