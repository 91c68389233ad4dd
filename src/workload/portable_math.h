// Logarithm and exponential from additions, multiplications and divisions only, which IEEE 754
// rounds equally everywhere. The functions of C libraries differ in the last bit between versions
// and processors, which would change workloads. Within a few units in the last place. Pure; any
// thread.
#pragma once

namespace sluice {

double portable_log(double x);  // REQUIRES: x > 0 and finite
double portable_exp(double x);  // REQUIRES: |x| <= 700

}  // namespace sluice
