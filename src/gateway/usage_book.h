// UsageBook: the bill's counts of a gateway. It feeds a UsageMeter, whose functions and platform
// together are exactly the machine, and adds the meter's counts to rows by day, tenant and
// function.
//
// A day is that of the settlement, so counts of a second may stand in the next day. A wall clock
// that falls behind by a day at most moves no usage into a day that was billed: the later day goes
// on. One that falls further was wrong before, so its day is left. Rows of an earlier day go on
// from what they were, so nothing counts twice. Owner: the gateway. Threads: the event loop's.
// Allocation: when functions and days are new.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "gateway/usage_row.h"
#include "gateway/usage_sink.h"
#include "serverless/bill.h"
#include "serverless/usage_meter.h"

namespace sluice {

class UsageBook final : public UsageSink {
 public:
  // `cores_per_turn`: that a function has while it has a turn. `rows`: all that were written of
  // `first_day` and later days. REQUIRES: the clock outlives it.
  UsageBook(const MachineCapacity& capacity, std::int32_t cores_per_turn, const Clock& clock,
            std::span<const UsageRow> rows, std::string first_day = {});

  // The machines together have more or less from now on; at least what is used.
  void set_capacity(const MachineCapacity& capacity);

  // Numbered from 0.
  std::int32_t add_backbone();
  std::int32_t add_function(const std::string& tenant, const std::string& name,
                            std::int32_t backbone);

  void set_backbone_bytes(std::int32_t backbone, std::int64_t bytes) override;
  void count_request(std::int32_t function, std::int64_t prompt_tokens) override;
  void count_output(std::int32_t function, std::int64_t tokens) override;
  void set_active(std::int32_t function, bool active) override;
  void sample(std::int32_t function, const FunctionSample& sample) override;

  // Adds all that was used since the last call to the rows of `day`. Returns the rows that changed.
  std::vector<UsageRow> settle(std::string_view day);
  // To which the last settlement added.
  const std::string& day() const { return day_; }
  // All rows that the book has.
  std::vector<UsageRow> rows() const;

  struct TenantUnits {
    double before = 0;  // of the month, before the day
    double day = 0;
  };
  // The units of a tenant's bill, until the last settlement.
  TenantUnits units_of_tenant(std::string_view tenant, const PriceList& prices) const;
  // The money of a tenant for the last settled day, by tiers of its units in that month.
  double money_of_day(std::string_view tenant, const PriceList& prices) const;
  // The same of functions, by their numbers, and of the platform. A view for a moment: the book
  // must not change meanwhile. A tenant's rows are read once, when one of its functions is asked
  // for.
  class DayCosts {
   public:
    // REQUIRES: both outlive it.
    DayCosts(const UsageBook& book, const PriceList& prices) : book_(book), prices_(prices) {}
    double of(std::int32_t function);
    double platform() const { return book_.money_of_day("", prices_); }

   private:
    const UsageBook& book_;
    const PriceList& prices_;
    std::map<std::string_view, double> price_of_;  // of a unit, by tenant
  };

 private:
  struct Backbone {
    std::int32_t share = 0;
    std::int64_t bytes = 0;
  };
  struct Function {
    std::string tenant;
    std::string name;
    std::int32_t backbone = 0;
    std::int32_t meter = 0;
    bool live = false;
    std::int64_t bytes = 0;
    std::int64_t prompt_tokens = 0;  // since the last settlement
    std::int64_t output_tokens = 0;
    FunctionUsage settled;  // of the meter
  };
  using Key = std::tuple<std::string, std::string, std::string>;  // tenant, day, function

  Function& at(std::int32_t function) { return functions_[static_cast<std::size_t>(function)]; }
  // At most what the machine has left: samples of processes are of different moments.
  std::int64_t fitting(std::int64_t bytes, std::int64_t before) const;
  UsageRow& row_of(const std::string& tenant, const std::string& function);
  void set_day(std::string_view day);

  MachineCapacity capacity_;
  const std::int32_t cores_per_turn_;
  const Clock& clock_;
  UsageMeter meter_;
  std::int64_t bytes_ = 0;  // of all functions and backbones
  std::vector<Backbone> backbones_;
  std::vector<Function> functions_;
  FunctionUsage platform_settled_;
  const std::string first_day_;  // rows before it are not known
  std::string day_;              // of the last settlement, or of the last row
  std::map<Key, UsageRow> rows_;
};

}  // namespace sluice
