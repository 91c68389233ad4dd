// UsageKeeper: keeps the rows of a UsageBook in a UsageStore, which a thread of its own writes, and
// answers questions about them. Each keep() writes what changed since the last one; if a write
// fails, the next one writes all rows again. With a UsageGroup, reports have the rows of all
// gateways of the group, if these can be had.
// Owner: the command. Threads: the event loop's. REQUIRES: book and clock outlive it; `post` runs
// tasks on the event loop, and those that come after the loop's end are dropped.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/job_thread.h"
#include "gateway/usage_book.h"
#include "gateway/usage_group.h"
#include "gateway/usage_report.h"
#include "gateway/usage_store.h"

namespace sluice {

class UsageKeeper {
 public:
  using Post = std::function<void(std::function<void()>)>;

  UsageKeeper(std::unique_ptr<UsageStore> store, UsageBook& book, PriceList prices, Post post);
  ~UsageKeeper();  // stops
  UsageKeeper(const UsageKeeper&) = delete;
  UsageKeeper& operator=(const UsageKeeper&) = delete;

  // Before the first call of another function. REQUIRES: it outlives the keeper.
  void set_group(UsageGroup& group) { group_ = &group; }

  // Settles the book for `day` and writes. Does nothing while the last write runs.
  void keep(const std::string& day);
  // Writes, and then answers with what lies in the file, so that a later answer never has less.
  // `tenant`: absent: all. `gateways`: those of the group; the answer says whose rows it has.
  struct Report {
    std::string text;
    std::optional<UsageGateways> gateways;
  };
  using Answer = std::function<void(Result<Report>)>;
  void report(const std::string& day, const UsageQuery& query, std::optional<std::string> tenant,
              std::optional<UsageGateways> gateways, Answer answer);
  // Writes all that is left, and waits for it.
  void stop(const std::string& day);

  const PriceList& prices() const { return prices_; }

 private:
  struct Question {
    UsageQuery query;
    std::optional<std::string> tenant;
    std::optional<UsageGateways> gateways;
    Answer answer;
  };

  std::function<Status()> write_job(const std::string& day);
  // On the thread.
  void report_written(Status status, Question question);
  void written(const Status& status);
  void note_day(const std::string& day);

  const std::unique_ptr<UsageStore> store_;  // the thread's
  UsageBook& book_;
  const PriceList prices_;
  const Post post_;
  UsageGroup* group_ = nullptr;  // null: none
  bool writing_ = false;
  bool failed_ = false;  // the last write
  bool stopped_ = false;
  bool behind_ = false;  // the clock's day, behind the book's
  std::string day_;      // of the book, at the last settlement
  JobThread jobs_;       // last: it ends before what it uses
};

}  // namespace sluice
