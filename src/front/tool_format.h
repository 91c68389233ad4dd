// The formats in which models write tool calls, as a table, and the parser of one call's text. A
// call stands between two markers; ToolCallStream finds them in an answer.
// Immutable and pure; any thread. Input may be any text: text that is no call gives none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text of an object
  // The limit of tokens cut the call: `arguments` are the beginning of an object, or empty.
  bool cut = false;

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// The names of a request's tools, and the types that they declare for their parameters. Formats
// that write values without quotes need them: "3" may be a text or a number.
class ToolParameters {
 public:
  // `tools_json`: the request's array of tools. Tools without a usable schema declare nothing.
  static ToolParameters from_json(std::string_view tools_json);

  // The JSON Schema type; empty: not declared, or not one type.
  std::string_view type_of(const std::string& tool, const std::string& parameter) const;
  bool has_tool(std::string_view name) const { return names_.contains(name); }

 private:
  std::set<std::string, std::less<>> names_;
  std::map<std::pair<std::string, std::string>, std::string> types_;
};

// The text between the markers.
enum class ToolBody : std::uint8_t {
  kJson,          // {"name": .., "arguments": ..}, or an array of these; other names are known too
  kNamedObjects,  // [{NAME: ARGUMENTS}, ..]
  kSeparated,     // NAME separator ARGUMENTS
  kMistral,       // NAME[ARGS]ARGUMENTS, perhaps with [CALL_ID] behind the name; or kJson
  kFunctionTags,  // <function=NAME><parameter=KEY>VALUE</parameter>..</function>
  kArgPairs,      // NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>..
  kInvokes,       // <｜DSML｜invoke name="NAME"><｜DSML｜parameter name=.. string=..>VALUE..
  kHarmony,       // NAME .. <|message|>ARGUMENTS
  kGemma,         // call:NAME{KEY:VALUE,..}, strings between `separator`s
  kPython,        // [NAME(KEY=VALUE, ..), ..]
};

struct ToolFormat {
  std::string_view name;   // for --tool-call-parser; vLLM's where it has the format
  std::string_view begin;  // empty: an answer that begins with `whole_begin` is calls as a whole
  std::string_view end;    // empty: a call ends at the next `begin` or with the answer
  ToolBody body = ToolBody::kJson;
  std::string_view separator = {};                 // of kSeparated; the quotes of kGemma
  std::span<const std::string_view> dropped = {};  // markers around calls that are no text
  // Stands in front of all text of an answer. If it is not empty, answers are read in this format
  // also when the request has no tools.
  std::string_view text_begin = {};
  // The prompt ends with `begin`, and behind each one stand a call or `text_begin` and text.
  bool prompt_has_begin = false;

  char whole_begin() const { return body == ToolBody::kPython ? '[' : '{'; }
  // A call is complete when its brackets are closed. In the other bodies one more argument, or one
  // more call, may follow until `end` stands there.
  bool body_shows_its_end() const {
    return body != ToolBody::kFunctionTags && body != ToolBody::kArgPairs &&
           body != ToolBody::kInvokes;
  }
};

// All formats. If several formats read the same text, the first one is preferred.
std::span<const ToolFormat> tool_formats();
// nullptr: there is none of that name.
const ToolFormat* find_tool_format(std::string_view name);

// A tool's name without what formats put around it: "functions.get_weather:0" is Kimi's name of
// get_weather.
std::string_view clean_tool_name(std::string_view name);

// The calls in the text between two markers; nothing when it is not of the format.
std::optional<std::vector<ToolCall>> parse_tool_body(const ToolFormat& format,
                                                     std::string_view body,
                                                     const ToolParameters& parameters);

}  // namespace sluice
