// Checked access to the fields of a JSON object in a file of a checkpoint. Every error names the
// file and the field and states the expected value. null counts as absent. Borrows the JSON
// document, which must outlive it. Threads: as the document, any.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace sluice {

class JsonFields {
 public:
  // `prefix` goes before field names in errors: "config.json: " or "config.json: rope_scaling.".
  JsonFields(const nlohmann::json& object, std::string prefix)
      : object_(&object), prefix_(std::move(prefix)) {}

  // Null when the field is absent or null.
  const nlohmann::json* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Whether the field is present with the value null.
  bool is_null(std::string_view name) const;
  std::vector<std::string> names() const;

  // Whole numbers and numbers must lie in [min, max].
  Result<std::optional<std::int64_t>> integer(std::string_view name, std::int64_t min,
                                              std::int64_t max) const;
  Result<std::int64_t> required_integer(std::string_view name, std::int64_t min,
                                        std::int64_t max) const;
  Result<std::optional<double>> number(std::string_view name, double min, double max) const;
  Result<double> required_number(std::string_view name, double min, double max) const;
  Result<bool> boolean(std::string_view name, bool absent) const;
  Result<std::optional<std::string>> string(std::string_view name) const;
  Result<std::optional<std::vector<std::string>>> strings(std::string_view name) const;
  // One id or a list. Some real checkpoints have ids outside of the vocabulary, which can never
  // occur; those are dropped with a warning in the log.
  Result<std::vector<TokenId>> token_ids(std::string_view name, std::int32_t vocab_size) const;

  Error error(std::string_view name, std::string_view message) const;
  Error refusal(std::string_view name, std::string_view message) const;  // kUnsupported

 private:
  const nlohmann::json* object_;
  std::string prefix_;
};

// Parses a document that must be an object. `file` names it in errors.
Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view file);

}  // namespace sluice
