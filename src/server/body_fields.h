// BodyFields: the fields that a reader of a body asks for, with their types, so that the document
// of the API lists what the reader reads. A recording reader gets an empty object and fails
// nothing. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/ignored_fields.h"

namespace sluice {

enum class BodyFieldType : std::uint8_t {
  kAny,  // of several types
  kInteger,
  kNumber,
  kBoolean,
  kString,
  kArray,
  kTokenIds,
  kObject,
};

struct BodyField {
  std::string name;
  BodyFieldType type = BodyFieldType::kAny;
  std::int64_t min = 0;  // kInteger
  std::int64_t max = 0;  // kInteger; of kString the most bytes
  bool required = false;
  std::string_view only =
      {};  // JSON array: the only values that are served; empty: others are, too
};

struct BodyFields {
  std::vector<BodyField> fields;
  std::vector<std::pair<std::string, std::string>> either;  // exactly one of the two is given

  // A field that is read twice keeps its first type.
  void add(std::string_view name, BodyFieldType type, std::int64_t min = 0, std::int64_t max = 0);
  // A field that is not served; `only`: the values that change nothing.
  void add_refused(std::string_view name, std::string_view only);
  void require(std::string_view name);
  void require_either(std::string_view name, std::string_view other);
};

// How a body is read.
struct BodyReading {
  // NOLINTNEXTLINE(google-explicit-constructor): most callers say only what becomes of unknown ones
  BodyReading(UnknownFields unknown_fields) : unknown(unknown_fields) {}
  // Records the fields of a body. REQUIRES: the body is {}.
  explicit BodyReading(BodyFields& recorded) : unknown(UnknownFields::kIgnore), fields(&recorded) {}

  UnknownFields unknown;
  BodyFields* fields = nullptr;
};

}  // namespace sluice
