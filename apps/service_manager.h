// The service manager that started this process, systemd mostly: it learns when the server is ready
// and what it does now. The protocol is a datagram to the socket in NOTIFY_SOCKET (man 3
// sd_notify); without that variable nothing happens. Functions; any thread that does not change the
// environment.
#pragma once

#include <string_view>

namespace sluice {

// Sends lines such as "READY=1\nSTATUS=..." with line feeds between them. When the manager does not
// get them a warning says why, and the server goes on.
void tell_service_manager(std::string_view lines);

}  // namespace sluice
