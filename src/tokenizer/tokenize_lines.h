// The line protocol of `sluice tokenize --jsonl`: reads one JSON string per line and writes one
// JSON array of ids per line, flushed line by line. detokenize_lines() is the reverse.
#pragma once

#include <iosfwd>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// Reads to the end of `in`. Errors name the line, or say that `in` could not be read. The lines
// before the error are answered.
Status tokenize_lines(const Tokenizer& tokenizer, const EncodeOptions& options, std::istream& in,
                      std::ostream& out);
Status detokenize_lines(const Tokenizer& tokenizer, SkipSpecialTokens skip, std::istream& in,
                        std::ostream& out);

}  // namespace sluice
