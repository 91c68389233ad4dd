// The line protocol of `sluice tokenize --jsonl`: one JSON string a line in, one JSON array of ids
// a line out, flushed line by line; the other way round, arrays in and strings out.
#pragma once

#include <iosfwd>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// Until the end of `in`. Errors name the line, or say that `in` could not be read; lines before it
// have been answered.
Status tokenize_lines(const Tokenizer& tokenizer, const EncodeOptions& options, std::istream& in,
                      std::ostream& out);
Status detokenize_lines(const Tokenizer& tokenizer, SkipSpecialTokens skip, std::istream& in,
                        std::ostream& out);

}  // namespace sluice
