// Finds the format of a model's tool calls from its chat template: the template prints a call, and
// the format is the first one that reads this call back.
// Pure; any thread. Cost: a few renderings, at start.
#pragma once

#include "chat_template/template_loader.h"
#include "front/tool_format.h"

namespace sluice {

// nullptr: the template prints no calls, or in no known format.
const ToolFormat* detect_tool_format(const ChatTemplates& templates);

}  // namespace sluice
