#include "apps/profile_plots.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace sluice {
namespace {

double seconds_of(double ns) { return ns / 1e9; }

class Table {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    append_format(text_, format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

double time_of(const MachineProfile& p, const StepShape& shape) {
  return p.predictor.time_ns(shape.features(p.predictor.window));
}

// The context of decodes that most points were measured with, at most a thousand or so.
std::int32_t usual_context(const MachineProfile& p) {
  std::int32_t context = 1;
  for (const ProfilePoint& point : p.points) {
    const StepShape& s = point.shape;
    if (s.decode_rows > 1 && s.chunk_tokens == 0 && s.decode_context <= 1024) {
      context = std::max(context, s.decode_context);
    }
  }
  return context;
}

Plot throughput(const MachineProfile& p) {
  const std::int32_t context = usual_context(p);
  Table measured;
  Table decodes;
  for (const ProfilePoint& point : p.points) {
    const StepShape& s = point.shape;
    const double rate = s.tokens() / seconds_of(point.median_ns);
    if (s.decode_rows == 0 && s.chunk_context == 0) measured.add("{} {}", s.tokens(), rate);
    if (s.chunk_tokens == 0 && s.decode_context == context) decodes.add("{} {}", s.tokens(), rate);
  }
  Table lines;
  for (std::int32_t n = 1; n <= p.max_tokens; n += std::max(1, n / 16)) {
    const double prompts = n / seconds_of(time_of(p, {0, 0, n, 0}));
    if (n <= p.max_num_seqs) {
      lines.add("{} {} {}", n, prompts, n / seconds_of(time_of(p, {n, context, 0, 0})));
    } else {
      lines.add("{} {} NaN", n, prompts);
    }
  }
  Plot plot;
  plot.name = "throughput";
  plot.title = "Throughput against tokens in a step";
  plot.caption = fmt::format(
      "A prompt fills the machine by itself; decodes (contexts of {}) need company: that is the "
      "room "
      "which chunks fill.",
      context);
  plot.commands =
      "set logscale x 2\nset autoscale xfix\nset xlabel 'tokens in a step'\nset ylabel 'tokens per "
      "second'\n"
      "set yrange [0:*]\n"
      "plot 'throughput.dat' using 1:2 with lines ls 1 title 'prompt', "
      "'throughput_prompts.dat' using 1:2 with points ls 1 notitle, "
      "'throughput.dat' using 1:3 with lines ls 3 title 'decodes', "
      "'throughput_decodes.dat' using 1:2 with points ls 3 notitle\n";
  plot.data = {{"throughput.dat", lines.take()},
               {"throughput_prompts.dat", measured.take()},
               {"throughput_decodes.dat", decodes.take()}};
  return plot;
}

// Linear operators and attention, in milliseconds.
void add_split(Table& table, const MachineProfile& p, std::int32_t x, const StepShape& shape) {
  const StepFeatures f = shape.features(p.predictor.window);
  table.add("{} {} {}", x, p.predictor.linear_ns(f) / 1e6, p.predictor.attention_ns(f) / 1e6);
}

Plot time_split(const MachineProfile& p, bool prompts) {
  Table table;
  const std::int32_t rows = std::min(32, p.max_num_seqs);
  const std::int32_t last = prompts ? std::min(p.max_tokens, p.max_model_len) : p.max_model_len - 1;
  for (std::int32_t x = std::max(1, last / 32); x <= last; x += std::max(1, last / 32)) {
    add_split(table, p, x, prompts ? StepShape{0, 0, x, 0} : StepShape{rows, x, 0, 0});
  }
  Plot plot;
  plot.name = prompts ? "split_prompt" : "split_decode";
  plot.title = prompts ? "The parts of a prompt's step" : "The parts of a decode step";
  plot.caption =
      prompts ? "Matrix products and the like count tokens; attention grows with their square."
              : fmt::format("{} decodes: attention reads the context, all else is the same.", rows);
  plot.commands = fmt::format(
      "set autoscale xfix\nset xlabel '{}'\nset ylabel 'milliseconds'\nset style fill solid 0.5\n"
      "plot '{}.dat' using 1:($2+$3) with filledcurves y1=0 ls 3 title 'attention', "
      "'{}.dat' using 1:2 with filledcurves y1=0 ls 1 title 'linear'\n",
      prompts ? "tokens of the prompt" : "context", plot.name, plot.name);
  plot.data = {{plot.name + ".dat", table.take()}};
  return plot;
}

// Up to a certain number of tokens a step mostly reads weights, and more tokens cost little.
Plot linear_time(const MachineProfile& p) {
  Table line;
  for (std::int32_t n = 1; n <= p.max_tokens; n += std::max(1, n / 16)) {
    const StepFeatures f = StepShape{0, 0, n, 0}.features(p.predictor.window);
    line.add("{} {}", n, p.predictor.linear_ns(f) / 1e6);
  }
  Table points;
  for (const ProfilePoint& point : p.points) {
    const StepShape& s = point.shape;
    if (s.decode_rows > 0 || s.chunk_context > 0) continue;
    const double attention = p.predictor.attention_ns(s.features(p.predictor.window));
    points.add("{} {}", s.tokens(), (point.median_ns - attention) / 1e6);
  }
  Plot plot;
  plot.name = "linear";
  plot.title = "Time of a step without attention";
  plot.caption =
      "While the line is flat, a step reads weights and has room for a chunk; where it rises, each "
      "token costs. Points: measured, less the predicted attention.";
  plot.commands =
      "set logscale xy\nset autoscale xfix\nset xlabel 'tokens in a step'\nset ylabel "
      "'milliseconds'\n"
      "plot 'linear.dat' using 1:2 with lines ls 1 title 'predicted', "
      "'linear_points.dat' using 1:2 with points ls 1 notitle\n";
  plot.data = {{"linear.dat", line.take()}, {"linear_points.dat", points.take()}};
  return plot;
}

// A prompt of `length` tokens, computed in chunks.
double prompt_ns(const MachineProfile& p, std::int32_t length, std::int32_t chunk) {
  double ns = 0;
  for (std::int32_t done = 0; done < length; done += chunk) {
    const std::int32_t count = std::min(chunk, length - done);
    ns += p.predictor.with_chunk_ns({}, done, count, done + count == length);
  }
  return ns;
}

Plot chunk_costs(const MachineProfile& p) {
  const std::int32_t longest = p.max_model_len;
  const std::int32_t lengths[] = {std::max(1, longest / 16), std::max(1, longest / 4), longest};
  Table table;
  for (std::int32_t chunk = 16; chunk <= std::min(p.max_tokens, longest); chunk *= 2) {
    std::string row = fmt::format("{}", chunk);
    for (const std::int32_t length : lengths) {
      append_format(row, " {}", prompt_ns(p, length, chunk) / prompt_ns(p, length, length));
    }
    table.add("{}", row);
  }
  Plot plot;
  plot.name = "chunks";
  plot.title = "The cost of chunks for a prompt";
  plot.caption =
      "The time of a prompt in chunks over its time as a whole: each chunk reads the weights, and "
      "the keys before it, again.";
  plot.commands = fmt::format(
      "set logscale x 2\nset autoscale xfix\nset xlabel 'tokens of a chunk'\nset ylabel 'times the "
      "whole prompt'\nset yrange [0:*]\n"
      "plot 'chunks.dat' using 1:2 with lines ls 1 title '{} tokens', "
      "'chunks.dat' using 1:3 with lines ls 2 title '{}', "
      "'chunks.dat' using 1:4 with lines ls 3 title '{}'\n",
      lengths[0], lengths[1], lengths[2]);
  plot.data = {{"chunks.dat", table.take()}};
  return plot;
}

Plot joining(const MachineProfile& p, std::int32_t token_budget) {
  const std::int32_t rows = std::min(32, p.max_num_seqs);
  const std::int32_t context = std::min(1024, p.max_model_len - 1);
  const StepFeatures decodes = StepShape{rows, context, 0, 0}.features(p.predictor.window);
  const double alone = p.predictor.time_ns(decodes);
  const std::int32_t chunk = std::max(1, token_budget - rows);
  Table table;
  for (std::int32_t length = 128; length <= p.max_model_len; length += std::max(1, length / 4)) {
    const std::int32_t last = std::min(chunk, length);
    table.add("{} {} {}", length, p.predictor.with_chunk_ns(decodes, 0, length, true) / alone,
              p.predictor.with_chunk_ns(decodes, length - last, last, true) / alone);
  }
  Plot plot;
  plot.name = "joining";
  plot.title = "The cost of a joining prompt for the decodes";
  plot.caption = fmt::format(
      "The longest step of {} decodes (contexts of {}) when a prompt joins whole, or in chunks of "
      "{} tokens, as a multiple of their step alone.",
      rows, context, chunk);
  plot.commands =
      "set logscale xy\nset autoscale xfix\nset xlabel 'tokens of the prompt'\nset ylabel 'times a "
      "decode step'\n"
      "plot 'joining.dat' using 1:2 with lines ls 3 title 'whole', "
      "'joining.dat' using 1:3 with lines ls 2 title 'in chunks'\n";
  plot.data = {{"joining.dat", table.take()}};
  return plot;
}

}  // namespace

std::vector<Plot> profile_plots(const MachineProfile& profile, std::int32_t token_budget) {
  return {throughput(profile),  time_split(profile, true), time_split(profile, false),
          linear_time(profile), chunk_costs(profile),      joining(profile, token_budget)};
}

}  // namespace sluice
