// Describes tools to a model whose chat template does not show them: in the first message, in the
// words of Hermes's format, in which calls are then read. Earlier calls and results become text in
// that format too, since such templates know no role "tool".
// Pure function; any thread.
#pragma once

#include "server/generation_call.h"

namespace sluice {

// Moves chat.tools into the messages; chat.tools is null afterwards.
// REQUIRES: checked messages and tools (chat_fields.h).
void describe_tools(ChatPart& chat);

}  // namespace sluice
