#include "gateway_group/group_usage.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/unix_time.h"
#include "gateway_group/usage_reader.h"

namespace sluice {

GroupUsage::GroupUsage(UsagePublisherOptions options, std::span<const UsageRow> rows,
                       UsagePublisher::Ask ask, const Clock& clock)
    : options_(options),
      ask_(std::move(ask)),
      clock_(clock),
      news_(rows.begin(), rows.end()),
      publisher_(std::move(options)),
      next_(clock.now()) {}

void GroupUsage::tick() {
  if (clock_.now() < next_ || publishing_.exchange(true)) return;
  next_ = clock_.now() + kRound;
  jobs_.add([this] {
    publish();
    publishing_ = false;
  });
}

void GroupUsage::stop() {
  if (std::exchange(stopped_, true)) return;
  jobs_.add([this] { publish(); });
  jobs_.stop();
}

void GroupUsage::written(std::span<const UsageRow> rows) {
  const std::lock_guard lock(mutex_);
  news_.insert(news_.end(), rows.begin(), rows.end());
}

void GroupUsage::read(std::string first, std::string last, Done done) {
  jobs_.add([this, first = std::move(first), last = std::move(last), done = std::move(done)] {
    auto rows = read_group_usage(options_.prefix, options_.store, first, last, ask_);
    if (!rows && !read_failed_) {
      log_warning(fmt::format("etcd: /v1/usage has the rows of this gateway only: {}",
                              rows.error().message));
    }
    read_failed_ = !rows;
    done(std::move(rows));
  });
}

void GroupUsage::publish() {
  std::vector<UsageRow> news;
  {
    const std::lock_guard lock(mutex_);
    news.swap(news_);
  }
  publisher_.add(news);
  const Status status = publisher_.publish(ask_, unix_seconds());
  if (!status && !failed_) {
    log_warning(fmt::format("etcd: the usage was not written, a later write has it too: {}",
                            status.error().message));
  }
  failed_ = !status;
}

}  // namespace sluice
