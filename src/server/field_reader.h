// FieldReader: checked access to the fields of one JSON object of a request. A null field counts as
// not given. The reader keeps the first error and then returns nothing, so a parser reads all
// fields and checks for an error once, at the end. Every error names the field, its value and the
// expected values. Borrows the object, which must outlive it. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "server/api_error.h"
#include "server/body_fields.h"
#include "server/ignored_fields.h"
#include "server/request_json.h"

namespace sluice {

// The only accepted value of a field that is not served: the value that changes nothing.
enum class Neutral : std::uint8_t { kNull, kFalse, kTrue, kZero, kOne, kMinusOne, kEmpty };

// A known field that this server does not support.
struct RefusedField {
  std::string_view name;
  Neutral neutral = Neutral::kNull;
  std::string_view advice;  // what to do instead
};

class FieldReader {
 public:
  // `prefix` goes before names in errors: "" or "stream_options.". Unknown fields are appended to
  // `ignored`, which must outlive the reader; nullptr: they are errors.
  // `recorded`: gets the fields that are asked for, and none is missing; null: nothing is recorded.
  FieldReader(const JsonValue::Object& object, std::string prefix,
              std::vector<IgnoredField>* ignored, BodyFields* recorded = nullptr)
      : object_(&object), prefix_(std::move(prefix)), ignored_(ignored), recorded_(recorded) {}

  // Names must be literals: the reader keeps them as the known names.
  // A value of any type.
  const JsonValue* find(std::string_view name) { return find(name, BodyFieldType::kAny); }
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max);
  std::optional<float> number(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  const std::string* string(std::string_view name, std::size_t max_bytes);
  const JsonValue::Array* array(std::string_view name);
  const JsonValue::Object* object(std::string_view name);
  std::optional<std::vector<TokenId>> token_ids(std::string_view name, std::size_t max_count);

  // The value where it was given.
  void read_into(std::string_view name, bool& out);
  void read_into(std::string_view name, float& out, bool* given = nullptr);

  // Token ids in an array; `where` names it in errors.
  std::optional<std::vector<TokenId>> token_ids_in(const JsonValue::Array& array,
                                                   const std::string& where);

  void refuse_unless_neutral(std::span<const RefusedField> fields);

  // "prefix.name: message"; `name` may go deeper, as in "stop[2]".
  void bad(std::string_view name, std::string_view message);
  void unsupported(std::string_view name, std::string_view message);
  void missing(std::string_view name, std::string_view expected);
  // The same for a field that another one may stand for.
  void missing_either(std::string_view name, std::string_view other, std::string_view expected);
  // "prefix.name: got value; expected ..."
  void mistyped(std::string_view name, const JsonValue& value, std::string_view expected);
  void fail(ApiError error);
  bool failed() const { return error_.has_value(); }

  // Finds the members whose names no call has asked for: each is ignored or an error.
  void check_unknown();
  std::vector<IgnoredField>* ignored() const { return ignored_; }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const JsonValue* find(std::string_view name, BodyFieldType type, std::int64_t min = 0,
                        std::int64_t max = 0);
  void refuse_unknown(const std::string& name, std::string_view near);
  void ignore(const std::string& name, std::string_view near);

  const JsonValue::Object* object_;
  std::string prefix_;
  std::vector<IgnoredField>* ignored_;
  BodyFields* recorded_;
  std::vector<std::string_view> known_;
  std::optional<ApiError> error_;
};

// A whole number, also written as 3.0; nothing for anything else and beyond 64 bits.
std::optional<std::int64_t> whole_number(const JsonValue& value);

}  // namespace sluice
