// The function process of tests: on the CPU, as the command's.
#include "device/cpu/cpu_device.h"
#include "function/run_function.h"

int main() {
  return sluice::run_function(
      [](sluice::ThreadPool& pool) { return sluice::make_cpu_device({&pool, 0, {}}); });
}
