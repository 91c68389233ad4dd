// The service manager that started this process, systemd mostly: it learns when the server is ready
// and what it does now. The protocol is a datagram to the socket in NOTIFY_SOCKET (man 3
// sd_notify); without that variable nothing happens. Functions; any thread that does not change the
// environment.
#pragma once

#include <string_view>

#include "base/result.h"

namespace sluice {

// Sends lines such as "READY=1\nSTATUS=..." with line feeds between them. An error means that the
// manager did not get them; the server goes on.
Status tell_service_manager(std::string_view lines);

}  // namespace sluice
