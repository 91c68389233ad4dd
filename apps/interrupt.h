// SIGINT as a flag: the first SIGINT requests a clean end, the second one ends the process. Install
// once, in main's thread; any thread may call interrupted().
#pragma once

namespace sluice {

void catch_interrupts();
bool interrupted();

}  // namespace sluice
