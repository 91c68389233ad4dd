#include "base/function_ref.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace sluice {
namespace {

int apply(FunctionRef<int(int)> f, int x) { return f(x); }

TEST(FunctionRef, CallsTheBorrowedObject) {
  int calls = 0;
  auto counter = [&calls](int x) mutable { return ++calls + x; };
  EXPECT_EQ(apply(counter, 10), 11);
  EXPECT_EQ(apply(counter, 10), 12);
  const auto constant = [](int x) { return 2 * x; };
  EXPECT_EQ(apply(constant, 4), 8);
  EXPECT_EQ(apply([](int x) { return -x; }, 4), -4);
}

TEST(FunctionRef, ForwardsMoveOnlyArgumentsAndReferences) {
  const auto take = [](std::unique_ptr<int> p, std::string& out) { out = std::to_string(*p); };
  const FunctionRef<void(std::unique_ptr<int>, std::string&)> ref = take;
  std::string out;
  ref(std::make_unique<int>(5), out);
  EXPECT_EQ(out, "5");
}

}  // namespace
}  // namespace sluice
