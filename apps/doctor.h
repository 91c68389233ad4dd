// `sluice doctor`: what this machine offers a model, what is missing, and what to do. One thread.
#pragma once

namespace sluice {

struct DoctorArguments {
  bool json = false;
};

// Returns the exit code: success unless a model could not run at all.
int run_doctor(const DoctorArguments& arguments);

}  // namespace sluice
