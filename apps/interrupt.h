// SIGINT as a flag: the first one asks for a clean end, the second one ends the process.
// Install once, in main's thread; interrupted() may be asked from any thread.
#pragma once

namespace sluice {

void catch_interrupts();
bool interrupted();

}  // namespace sluice
