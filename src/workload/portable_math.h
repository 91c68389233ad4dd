// Logarithm and exponential from additions, multiplications and divisions alone, which IEEE 754
// rounds the same everywhere: the C library's differ in the last bit between versions and
// processors, and a workload with them. Within a few units in the last place. Pure; any thread.
#pragma once

namespace sluice {

double portable_log(double x);  // REQUIRES: x > 0 and finite
double portable_exp(double x);  // REQUIRES: |x| <= 700

}  // namespace sluice
