// tokenizer_tool PATH [--no-special] [--decode]: JSON strings in, JSON arrays of ids out, a line
// each; --decode the other way round. Drives tools/compare_tokenizers.py.
#include <iostream>
#include <string_view>

#include "tokenizer/tokenize_lines.h"
#include "tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  using namespace sluice;
  if (argc < 2) {
    std::cerr << "usage: tokenizer_tool PATH [--no-special] [--decode]\n";
    return 2;
  }
  EncodeOptions options;
  bool decode = false;
  for (int i = 2; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--no-special") {
      options.add_special_tokens = AddSpecialTokens::kNo;
    } else if (option == "--decode") {
      decode = true;
    } else {
      std::cerr << "unknown option " << option << '\n';
      return 2;
    }
  }
  std::ios::sync_with_stdio(false);
  const auto tokenizer = Tokenizer::load(argv[1]);
  if (!tokenizer) {
    std::cerr << tokenizer.error().message << '\n';
    return 1;
  }
  const auto status =
      decode ? detokenize_lines(*tokenizer, SkipSpecialTokens::kNo, std::cin, std::cout)
             : tokenize_lines(*tokenizer, options, std::cin, std::cout);
  if (!status) {
    std::cerr << status.error().message << '\n';
    return 1;
  }
  return 0;
}
