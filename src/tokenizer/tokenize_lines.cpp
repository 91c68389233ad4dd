#include "tokenizer/tokenize_lines.h"
#include "base/json.h"

#include <algorithm>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace sluice {
namespace {

std::string line_name(std::size_t number) { return "line " + std::to_string(number); }

// std::getline() reports a read error like the end of the stream.
Status end_of(const std::istream& in) {
  return in.bad() ? unavailable("cannot be read to its end") : Status();
}

}  // namespace

Status tokenize_lines(const Tokenizer& tokenizer, const EncodeOptions& options, std::istream& in,
                      std::ostream& out) {
  EncodeScratch scratch;
  std::vector<TokenId> ids;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    const auto value = parse_json(line);
    if (!value.is_string()) return invalid_argument(line_name(number) + ": not a JSON string");
    const auto status =
        tokenizer.encode(value.get_ref<const std::string&>(), options, scratch, ids);
    if (!status) return with_context(line_name(number), status.error());
    out << dump_json(nlohmann::json(ids)) << '\n' << std::flush;
  }
  return end_of(in);
}

Status detokenize_lines(const Tokenizer& tokenizer, SkipSpecialTokens skip, std::istream& in,
                        std::ostream& out) {
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    const auto value = parse_json(line);
    const auto is_id = [](const nlohmann::json& v) { return v.is_number_integer(); };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_id)) {
      return invalid_argument(line_name(number) + ": not a JSON array of token ids");
    }
    std::vector<TokenId> ids;
    for (const auto& id : value) {
      const auto wide = id.get<std::int64_t>();
      const bool known = wide >= 0 && wide < tokenizer.vocab_size();
      ids.push_back(known ? static_cast<TokenId>(wide) : -1);
    }
    out << dump_json(nlohmann::json(tokenizer.decode(ids, skip))) << '\n' << std::flush;
  }
  return end_of(in);
}

}  // namespace sluice
