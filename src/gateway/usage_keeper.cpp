#include "gateway/usage_keeper.h"

#include <fmt/format.h>

#include <iterator>
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
  return [this, rows = std::move(rows)] {
    Status status = store_->write(rows);
    if (status && group_ != nullptr) group_->written(rows);
    return status;
  };
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
  Question question{query, std::move(tenant), std::move(gateways), std::move(answer)};
  jobs_.add([this, write = write_job(day), question = std::move(question)] {
    report_written(write(), question);
  });
}

void UsageKeeper::report_written(Status status, Question question) {
  const std::string first = month_start(question.query.first);
  const std::string last = question.query.last;
  auto own = status ? store_->read(first, last) : Result<std::vector<UsageRow>>(status.error());
  const auto answer = [this, status, question](const Result<std::vector<UsageRow>>& rows,
                                               const std::optional<UsageGateways>& gateways) {
    Result<Report> report = Report{{}, gateways};
    if (rows) {
      report->text = usage_report(*rows, question.query, question.tenant, prices_, gateways);
    } else {
      report = rows.error();
    }
    post_([this, status, answer = question.answer, report = std::move(report)] {
      written(status);
      answer(report);
    });
  };
  if (!own || group_ == nullptr || !question.gateways) return answer(own, question.gateways);
  group_->read(first, last,
               [answer, own = *std::move(own),
                gateways = *question.gateways](Result<std::vector<UsageRow>> others) mutable {
                 if (!others) return answer(own, gateways.alone());
                 own.insert(own.end(), std::make_move_iterator(others->begin()),
                            std::make_move_iterator(others->end()));
                 answer(merge_usage(std::move(own)), gateways);
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
