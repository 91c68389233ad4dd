// Times a tokenizer, and speaks its line protocol for tools/compare_tokenizers.py:
//   tokenizer_bench PATH load [ROUNDS]          milliseconds to load, best and median
//   tokenizer_bench PATH save IMAGE             writes the tokenizer's image to a file
//   tokenizer_bench IMAGE open [ROUNDS]         maps such a file: milliseconds to open, encode "a"
//                                               and decode; private memory that this takes
//   tokenizer_bench PATH encode FILE [ROUNDS]   MB/s of encoding the file's text on one core
//   tokenizer_bench PATH decode FILE [ROUNDS]   tokens/s of decoding the file's tokens
//   tokenizer_bench PATH lines [--no-special]   JSON strings in, arrays of ids out
//   tokenizer_bench PATH decode-lines           arrays of ids in, JSON strings out
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
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

Status save_image(const Tokenizer& tokenizer, const char* path) {
  const auto image = tokenizer.image();
  return write_file(path, {reinterpret_cast<const char*>(image.data()), image.size()});
}

// Pages that this process has written, so that no other can share them, in KiB.
Result<std::int64_t> private_kib() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::int64_t total = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    std::int64_t kib = 0;
    if (fields >> name >> kib && name == "Private_Dirty:") total += kib;
  }
  if (total == 0) return unavailable("/proc/self/smaps_rollup cannot be read");
  return total;
}

int time_open(const char* path, int rounds) {
  const auto before = private_kib();
  const auto file = MappedFile::open(path);
  if (!before || !file) return fail(!file ? file.error().message : before.error().message);
  std::string error;
  const auto open = [&] {
    const auto opened = Tokenizer::from_image(file->bytes(), nullptr);
    const auto ids = opened ? opened->encode("a") : Result<std::vector<TokenId>>(opened.error());
    if (!ids) {
      error = ids.error().message;
    } else if (opened->decode(*ids, SkipSpecialTokens::kYes).empty()) {
      error = "the image gives no text for \"a\"";
    }
  };
  const double first = time_rounds(1, open).front();
  const auto after = private_kib();
  if (!after) return fail(after.error().message);
  const auto times = time_rounds(rounds, open);
  if (!error.empty()) return fail(error);
  std::cout << "open ms: first " << first << " best " << times.front() << " median "
            << times[times.size() / 2] << "; image " << file->size() / 1024 << " KiB, private "
            << *after - *before << " KiB\n";
  return 0;
}

int time_decode(const Tokenizer& tokenizer, const char* path, int rounds) {
  const auto text = read_file(path, std::uint64_t{1} << 30);
  if (!text) return fail(text.error().message);
  const auto ids = tokenizer.encode(*text);
  if (!ids) return fail(ids.error().message);
  std::size_t bytes = 0;
  const auto times =
      time_rounds(rounds, [&] { bytes = tokenizer.decode(*ids, SkipSpecialTokens::kYes).size(); });
  const auto tokens = static_cast<double>(ids->size());
  std::cout << "decode " << ids->size() << " tokens to " << bytes << " bytes, Mtokens/s: best "
            << tokens / times.front() / 1e3 << " median " << tokens / times[times.size() / 2] / 1e3
            << '\n';
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
  if (mode == "open") return time_open(argv[1], rounds(3));
  const auto tokenizer =
      argc > 1 ? Tokenizer::load(argv[1]) : Result<Tokenizer>(not_found("usage"));
  if (!tokenizer) return fail(tokenizer.error().message);
  if (mode == "encode" && argc > 3) return time_encode(*tokenizer, argv[3], rounds(4));
  if (mode == "decode" && argc > 3) return time_decode(*tokenizer, argv[3], rounds(4));
  Status status = invalid_argument("usage: see the head of bench/tokenizer_bench.cpp");
  if (mode == "lines") {
    EncodeOptions options;
    if (argc > 3 && std::string_view(argv[3]) == "--no-special") {
      options.add_special_tokens = AddSpecialTokens::kNo;
    }
    status = tokenize_lines(*tokenizer, options, std::cin, std::cout);
  } else if (mode == "save" && argc > 3) {
    status = save_image(*tokenizer, argv[3]);
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
