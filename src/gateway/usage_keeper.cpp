#include "gateway/usage_keeper.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/log.h"

namespace sluice {

UsageKeeper::UsageKeeper(std::unique_ptr<UsageStore> store, UsageBook& book, PriceList prices,
                         Post post)
    : store_(std::move(store)), book_(book), prices_(std::move(prices)), post_(std::move(post)) {}

UsageKeeper::~UsageKeeper() { jobs_.stop(); }

// The job runs on the thread.
std::function<Status()> UsageKeeper::write_job(const std::string& day) {
  std::vector<UsageRow> rows = book_.settle(day);
  note_day(day);
  if (failed_) rows = book_.rows();
  return [this, rows = std::move(rows)] { return store_->write(rows); };
}

// Tells once of a wall clock that does not fit to what was written.
void UsageKeeper::note_day(const std::string& day) {
  const bool behind = day < book_.day();
  if (behind && !behind_) {
    log_warning(fmt::format(
        "usage counts for {} although the clock says {}: there is usage of that day already; if "
        "the clock was wrong before, start again once it is right",
        book_.day(), day));
  } else if (book_.day() < day_) {
    log_warning(fmt::format("the clock went back from {} to {}: usage counts for {} from now on",
                            day_, day, book_.day()));
  }
  behind_ = behind;
  day_ = book_.day();
}

void UsageKeeper::written(const Status& status) {
  if (!status && !failed_) {
    log_error(
        "usage was not written, the next write has it too; free some space if the disk is "
        "full: " +
        status.error().message);
  }
  if (status && failed_) log_info("usage is written again, with all since the last time");
  failed_ = !status;
}

void UsageKeeper::keep(const std::string& day) {
  if (writing_ || stopped_) return;
  writing_ = true;
  jobs_.add([this, write = write_job(day)] {
    const Status status = write();
    post_([this, status] {
      writing_ = false;
      written(status);
    });
  });
}

void UsageKeeper::report(const std::string& day, const UsageQuery& query,
                         std::optional<std::string> tenant, std::optional<UsageGateways> gateways,
                         Answer answer) {
  if (stopped_) return answer(unavailable("the gateway stops"));
  jobs_.add([this, write = write_job(day), query, tenant = std::move(tenant),
             gateways = std::move(gateways), answer = std::move(answer)] {
    const Status status = write();
    Result<std::string> text = std::string();
    auto rows = status ? store_->read(month_start(query.first), query.last)
                       : Result<std::vector<UsageRow>>(status.error());
    if (rows) {
      text = usage_report(*rows, query, tenant, prices_, gateways);
    } else {
      text = std::move(rows).error();
    }
    post_([this, status, answer, text = std::move(text)] {
      written(status);
      answer(text);
    });
  });
}

void UsageKeeper::stop(const std::string& day) {
  if (std::exchange(stopped_, true)) return;
  jobs_.add([write = write_job(day)] {
    if (const Status status = write(); !status) {
      log_error("the last usage was not written: " + status.error().message);
    }
  });
  jobs_.stop();
}

}  // namespace sluice
