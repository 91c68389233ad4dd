// `sluice doctor`: checks whether this machine can run models, and says what is missing and what to
// do. One thread.
#pragma once

namespace sluice {

struct DoctorArguments {
  bool json = false;
};

// Returns the exit code: success unless a model could not run at all.
int run_doctor(const DoctorArguments& arguments);

}  // namespace sluice
