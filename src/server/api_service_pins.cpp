// ApiService's calls about pinned prefixes.
#include <fmt/format.h>

#include <utility>

#include "base/unix_time.h"
#include "server/api_service.h"
#include "server/pin_call.h"
#include "server/request_json.h"

namespace sluice {
namespace {

ApiError no_such_pin(std::string_view id) {
  ApiError error;
  error.status = 404;
  error.message = fmt::format("there is no pinned prefix {}; GET /v1/kv/prefixes lists yours",
                              shown_value(JsonValue(std::string(id))));
  error.code = "prefix_not_found";
  return error;
}

}  // namespace

void ApiService::put_pin(Call call) {
  if (auto error = refuse_state()) return answer_error(std::move(call), *error);
  if (const Status supported = engine_.supports_pins(); !supported) {
    return answer_error(std::move(call), to_api_error(supported.error()));
  }
  const std::string id = pin_id_of(call.exchange->request().path);
  if (!is_pin_id(id)) {
    return answer_error(
        std::move(call),
        bad_field("id",
                  fmt::format("id: got {}; expected 1 to {} letters, digits and any of - _ ., "
                              "a letter or digit first",
                              shown_value(JsonValue(id)), kMaxPinIdBytes)));
  }
  prepare(std::move(call), Endpoint::kPutPin);
}

void ApiService::ask_pins(Call call, PinAction action) {
  if (auto error = refuse_state()) return answer_error(std::move(call), *error);
  if (const Status supported = engine_.supports_pins(); !supported) {
    return answer_error(std::move(call), to_api_error(supported.error()));
  }
  PinQuestion question;
  question.ticket = next_pin_ticket_++;
  question.action = action;
  question.tenant = call.record.client;
  if (action != PinAction::kList) question.id = pin_id_of(call.exchange->request().path);
  const std::uint64_t ticket = question.ticket;
  if (const Status asked = engine_.ask_pins(std::move(question)); !asked) {
    return answer_error(std::move(call), to_api_error(asked.error()));
  }
  pin_calls_.emplace(ticket, PinCall{std::move(call), action});
}

void ApiService::pins_answered(PinAnswer answer) {
  const auto found = pin_calls_.find(answer.ticket);
  if (found == pin_calls_.end()) return;  // failed meanwhile
  PinCall pins = std::move(found->second);
  pin_calls_.erase(found);
  const TimePoint now = clock_.now();
  if (pins.action == PinAction::kList) {
    return answer_json(std::move(pins.call), 200, pin_list_json(answer.pins, now, unix_seconds()));
  }
  if (answer.pins.empty()) {
    const ApiError error = no_such_pin(pin_id_of(pins.call.exchange->request().path));
    return answer_error(std::move(pins.call), error);
  }
  const PinStatus& pin = answer.pins.front();
  answer_json(std::move(pins.call), 200,
              pins.action == PinAction::kRemove ? pin_deleted_json(pin.id)
                                                : pin_json(pin, now, unix_seconds()));
}

void ApiService::fail_pin_calls(const ApiError& error) {
  for (auto& [ticket, pins] : std::exchange(pin_calls_, {})) {
    answer_error(std::move(pins.call), error);
  }
}

}  // namespace sluice
