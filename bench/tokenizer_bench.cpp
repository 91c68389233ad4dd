// Times a tokenizer, and speaks its line protocol for tools/compare_tokenizers.py:
//   tokenizer_bench PATH load [ROUNDS]          milliseconds to load, best and median
//   tokenizer_bench PATH encode FILE [ROUNDS]   MB/s of encoding the file's text on one core
//   tokenizer_bench PATH lines [--no-special]   JSON strings in, arrays of ids out
//   tokenizer_bench PATH decode-lines           arrays of ids in, JSON strings out
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "tokenizer/tokenize_lines.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

int fail(const std::string& message) {
  std::cerr << message << '\n';
  return 1;
}

std::vector<double> time_rounds(int rounds, const std::function<void()>& work) {
  const SystemClock clock;
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const TimePoint start = clock.now();
    work();
    times.push_back(to_milliseconds(clock.now() - start));
  }
  std::sort(times.begin(), times.end());
  return times;
}

int time_load(const char* path, int rounds) {
  std::string error;
  const auto times = time_rounds(rounds, [&] {
    const auto loaded = Tokenizer::load(path);
    if (!loaded) error = loaded.error().message;
  });
  if (!error.empty()) return fail(error);
  std::cout << "load ms: best " << times.front() << " median " << times[times.size() / 2] << '\n';
  return 0;
}

int time_encode(const Tokenizer& tokenizer, const char* path, int rounds) {
  const auto text = read_file(path, std::uint64_t{1} << 30);
  if (!text) return fail(text.error().message);
  std::vector<TokenId> ids;
  std::string error;
  // A new scratch each round: every prompt starts with an empty word cache.
  const auto times = time_rounds(rounds, [&] {
    EncodeScratch scratch;
    const auto status = tokenizer.encode(*text, {}, scratch, ids);
    if (!status) error = status.error().message;
  });
  if (!error.empty()) return fail(error);
  const double megabytes = static_cast<double>(text->size()) / 1e6;
  std::cout << "encode " << megabytes << " MB to " << ids.size() << " tokens, MB/s: best "
            << megabytes / times.front() * 1e3 << " median "
            << megabytes / times[times.size() / 2] * 1e3 << '\n';
  return 0;
}

int run(int argc, char** argv) {
  const std::string_view mode = argc > 2 ? argv[2] : "";
  const auto rounds = [&](int at) { return argc > at ? std::max(1, std::atoi(argv[at])) : 9; };
  if (mode == "load") return time_load(argv[1], rounds(3));
  const auto tokenizer =
      argc > 1 ? Tokenizer::load(argv[1]) : Result<Tokenizer>(not_found("usage"));
  if (!tokenizer) return fail(tokenizer.error().message);
  if (mode == "encode" && argc > 3) return time_encode(*tokenizer, argv[3], rounds(4));
  Status status = invalid_argument("usage: see the head of bench/tokenizer_bench.cpp");
  if (mode == "lines") {
    EncodeOptions options;
    if (argc > 3 && std::string_view(argv[3]) == "--no-special") {
      options.add_special_tokens = AddSpecialTokens::kNo;
    }
    status = tokenize_lines(*tokenizer, options, std::cin, std::cout);
  } else if (mode == "decode-lines") {
    status = detokenize_lines(*tokenizer, SkipSpecialTokens::kNo, std::cin, std::cout);
  }
  return status ? 0 : fail(status.error().message);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  return sluice::run(argc, argv);
}
