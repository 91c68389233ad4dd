#include "front/cut_tool_call.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace sluice {
namespace {

using Calls = std::vector<ToolCall>;

constexpr std::string_view kSpace = " \t\r\n";
// Places at which a body without end marks of arguments is tried to be closed, from its end. Each
// try reads the body.
constexpr int kMaxTries = 64;

std::string_view without_leading_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

// Follows JSON text by its brackets and strings, whether or not the text is complete.
class JsonCursor {
 public:
  enum class Event : unsigned char { kNone, kOpen, kClose, kComma, kColon, kStringEnd };

  Event take(char c) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        return Event::kStringEnd;
      }
      return Event::kNone;
    }
    switch (c) {
      case '"': in_string_ = true; return Event::kNone;
      case '{':
      case '[': ++depth_; return Event::kOpen;
      case '}':
      case ']': --depth_; return Event::kClose;
      case ',': return Event::kComma;
      case ':': return Event::kColon;
      default: return Event::kNone;
    }
  }

  bool in_string() const { return in_string_; }
  int depth() const { return depth_; }

 private:
  bool in_string_ = false;
  bool escaped_ = false;
  int depth_ = 0;
};

// The object at the front of `text`, or its beginning. Nothing when another value stands there.
std::optional<std::string_view> leading_object(std::string_view text) {
  text = without_leading_space(text);
  if (text.empty()) return text;
  if (!text.starts_with('{')) return std::nullopt;
  JsonCursor cursor;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (cursor.take(text[i]) == JsonCursor::Event::kClose && cursor.depth() == 0) {
      return text.substr(0, i + 1);
    }
  }
  return text;
}

// The call that a JSON text ends in.
struct OpenCall {
  std::size_t begin = 0;  // of its object
  std::string_view name;
  std::string_view arguments;
};

// `named`: calls are {NAME: ARGUMENTS}.
std::optional<OpenCall> find_open_call(std::string_view body, bool named) {
  const int call_depth = body.starts_with('[') ? 2 : 1;
  JsonCursor cursor;
  OpenCall call;
  std::string_view key;
  std::size_t string_begin = 0;
  bool is_key = true;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const bool was_string = cursor.in_string();
    const JsonCursor::Event event = cursor.take(body[i]);
    if (!was_string && cursor.in_string()) string_begin = i + 1;
    if (event == JsonCursor::Event::kOpen && cursor.depth() == call_depth) {
      call = OpenCall{i, {}, {}};
      is_key = true;
    } else if (event == JsonCursor::Event::kOpen && cursor.depth() == call_depth + 1) {
      const bool holds_arguments = named || key == "arguments" || key == "parameters";
      if (!is_key && holds_arguments) call.arguments = leading_object(body.substr(i)).value_or("");
    } else if (event == JsonCursor::Event::kClose && cursor.depth() < call_depth) {
      call = {};
    }
    if (cursor.depth() != call_depth) continue;
    if (event == JsonCursor::Event::kComma) is_key = true;
    if (event == JsonCursor::Event::kColon) is_key = false;
    if (event != JsonCursor::Event::kStringEnd) continue;
    const std::string_view text = body.substr(string_begin, i - string_begin);
    if (is_key) key = text;
    if (named ? is_key : !is_key && (key == "name" || key == "tool_name")) call.name = text;
  }
  if (call.name.empty()) return std::nullopt;
  return call;
}

bool add_open_call(std::string_view name, std::string_view arguments,
                   const ToolParameters& parameters, Calls& calls) {
  if (!parameters.has_tool(name)) return false;
  calls.push_back({std::string(name), std::string(arguments), /*cut=*/true});
  return true;
}

std::optional<Calls> read_cut_json(const ToolFormat& format, std::string_view body,
                                   const ToolParameters& parameters) {
  body = without_leading_space(body);
  const auto open = find_open_call(body, format.body == ToolBody::kNamedObjects);
  if (!open) return std::nullopt;
  Calls calls;
  const std::string_view before = body.substr(0, open->begin);
  if (const std::size_t comma = before.rfind(','); comma != std::string_view::npos) {
    auto complete = parse_tool_body(format, std::string(before.substr(0, comma)) + "]", parameters);
    if (!complete) return std::nullopt;
    calls = *std::move(complete);
  }
  if (!add_open_call(open->name, open->arguments, parameters, calls)) return std::nullopt;
  return calls;
}

// `name_end` separates the name from what may follow before `mark`; the arguments follow `mark`.
std::optional<Calls> read_cut_arguments(std::string_view body, std::string_view name,
                                        std::string_view mark, const ToolParameters& parameters) {
  const std::size_t at = body.find(mark);
  std::string_view arguments;
  if (at != std::string_view::npos) {
    const auto object = leading_object(body.substr(at + mark.size()));
    if (!object) return std::nullopt;
    arguments = *object;
  }
  Calls calls;
  if (!add_open_call(clean_tool_name(name), arguments, parameters, calls)) return std::nullopt;
  return calls;
}

// A place at which a body can be closed.
struct Closing {
  std::size_t size = 0;  // what is kept of the body
  std::string_view suffix;
  bool complete = false;  // the last call has all of its arguments
};

std::optional<Calls> close_at(const ToolFormat& format, std::string_view body,
                              const Closing& closing, const ToolParameters& parameters) {
  std::string closed(body.substr(0, closing.size));
  closed += closing.suffix;
  auto calls = parse_tool_body(format, closed, parameters);
  if (!calls || closing.complete) return calls;
  ToolCall& last = calls->back();
  if (!parameters.has_tool(last.name)) return std::nullopt;
  last.arguments.pop_back();  // the brace: the model has not written it
  last.cut = true;
  return calls;
}

// The marks of bodies in which arguments stand between tags.
struct TagMarks {
  std::string_view call_begin;
  std::string_view name_end;
  std::string_view argument_end;
  std::string_view call_end;
};
constexpr TagMarks kFunctionMarks{"<function=", ">", "</parameter>", "</function>"};
constexpr TagMarks kInvokeMarks{"<｜DSML｜invoke name=\"", "\">", "</｜DSML｜parameter>",
                                "</｜DSML｜invoke>"};
constexpr TagMarks kPairMarks{"", "\n", "</arg_value>", ""};

std::optional<Calls> read_cut_tags(const ToolFormat& format, std::string_view body,
                                   const TagMarks& marks, const ToolParameters& parameters) {
  const auto close = [&](std::size_t size, bool complete) {
    return close_at(format, body, {size, complete ? "" : marks.call_end, complete}, parameters);
  };
  std::size_t begin = 0;
  if (!marks.call_begin.empty()) {
    const std::size_t last_end = body.rfind(marks.call_end);
    begin = body.rfind(marks.call_begin);
    if (last_end != std::string_view::npos && (begin == std::string_view::npos || begin < last_end))
      return close(last_end + marks.call_end.size(), true);
    if (begin == std::string_view::npos) return std::nullopt;
  }
  const std::size_t argument = body.rfind(marks.argument_end);
  if (argument != std::string_view::npos && argument > begin) {
    return close(argument + marks.argument_end.size(), false);
  }
  const std::size_t name_end = body.find(marks.name_end, begin + marks.call_begin.size());
  if (name_end != std::string_view::npos) return close(name_end + marks.name_end.size(), false);
  // The call whose name is cut is left out.
  return begin == 0 ? std::nullopt : close(begin, true);
}

// Literals have no end marks: the last place that can be closed counts.
std::optional<Calls> read_cut_literals(const ToolFormat& format, std::string_view body,
                                       const ToolParameters& parameters) {
  const bool python = format.body == ToolBody::kPython;
  std::size_t end = body.size();
  for (int tries = 0; tries < kMaxTries && end > 0; ++tries) {
    const std::size_t at = body.find_last_of(python ? "(,)" : "{,}", end - 1);
    if (at == std::string_view::npos) break;
    end = at;
    const char mark = body[at];
    Closing closing{at + 1, python ? ")]" : "}", false};
    if (mark == ',') closing.size = at;
    if (mark == ')') closing = {at + 1, "]", true};
    if (mark == '}') closing = {at + 1, "", true};
    if (auto calls = close_at(format, body, closing, parameters)) return calls;
  }
  return std::nullopt;
}

std::optional<Calls> read_cut_separated(std::string_view body, std::string_view separator,
                                        const ToolParameters& parameters) {
  const std::size_t at = body.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view name = body.substr(0, std::min(at, body.find("[CALL_ID]")));
  return read_cut_arguments(body, name, separator, parameters);
}

// The header ends the recipient's name.
std::optional<Calls> read_cut_harmony(std::string_view body, const ToolParameters& parameters) {
  const std::size_t name_end = std::min(body.find(' '), body.find("<|"));
  if (name_end == std::string_view::npos) return std::nullopt;
  return read_cut_arguments(body, body.substr(0, name_end), "<|message|>", parameters);
}

}  // namespace

std::optional<Calls> parse_cut_tool_body(const ToolFormat& format, std::string_view body,
                                         const ToolParameters& parameters) {
  switch (format.body) {
    case ToolBody::kJson:
    case ToolBody::kNamedObjects: return read_cut_json(format, body, parameters);
    case ToolBody::kSeparated: return read_cut_separated(body, format.separator, parameters);
    case ToolBody::kMistral:
      if (without_leading_space(body).starts_with('[')) {
        return read_cut_json(format, body, parameters);
      }
      return read_cut_separated(body, "[ARGS]", parameters);
    case ToolBody::kFunctionTags: return read_cut_tags(format, body, kFunctionMarks, parameters);
    case ToolBody::kArgPairs: return read_cut_tags(format, body, kPairMarks, parameters);
    case ToolBody::kInvokes: return read_cut_tags(format, body, kInvokeMarks, parameters);
    case ToolBody::kHarmony: return read_cut_harmony(body, parameters);
    case ToolBody::kGemma:
    case ToolBody::kPython: return read_cut_literals(format, body, parameters);
  }
  return std::nullopt;
}

}  // namespace sluice
