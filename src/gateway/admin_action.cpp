#include "gateway/admin_action.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "server/field_reader.h"
#include "server/request_json.h"

namespace sluice {
namespace {

constexpr std::array<std::pair<std::string_view, AdminVerb>, 4> kVerbs = {
    {{"stop", AdminVerb::kStop},
     {"load", AdminVerb::kLoad},
     {"unload", AdminVerb::kUnload},
     {"reload", AdminVerb::kReload}}};

void read_verb(FieldReader& reader, AdminAction& action) {
  constexpr std::string_view kExpected = "stop, load, unload or reload";
  const std::string* name = reader.string("action", AdminAction::kMaxNameBytes);
  if (name == nullptr) return reader.missing("action", kExpected);
  for (const auto& [text, verb] : kVerbs) {
    if (text != *name) continue;
    action.verb = verb;
    return;
  }
  reader.bad("action", fmt::format("must be {}", kExpected));
}

// Each action has its own names; another one is a slip.
void read_name(FieldReader& reader, std::string_view name, std::string_view expected, bool wanted,
               std::string& out) {
  const std::string* given = reader.string(name, AdminAction::kMaxNameBytes);
  if (given != nullptr && !wanted) return reader.bad(name, "is not a field of this action");
  if (given != nullptr) {
    out = *given;
  } else if (wanted) {
    reader.missing(name, expected);
  }
}

ApiResult<AdminAction> read(std::string_view body, BodyFields* recorded) {
  auto object = parse_request_json(body);
  if (!object) return tl::unexpected(std::move(object).error());
  FieldReader reader(*object, "", nullptr, recorded);
  AdminAction action;
  read_verb(reader, action);
  const bool stop = action.verb == AdminVerb::kStop;
  const bool move = action.verb == AdminVerb::kLoad || action.verb == AdminVerb::kUnload;
  read_name(reader, "tenant", "the function's tenant", stop, action.tenant);
  read_name(reader, "function", "the function's full name", stop, action.function);
  read_name(reader, "backbone", "the backbone's name", move, action.backbone);
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  return action;
}

}  // namespace

ApiResult<AdminAction> parse_admin_action(std::string_view body) { return read(body, nullptr); }

BodyFields admin_action_fields() {
  BodyFields fields;
  static_cast<void>(read("{}", &fields));
  return fields;
}

}  // namespace sluice
