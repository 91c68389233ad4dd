#include "server/access_log.h"

#include <fmt/format.h>
#include <spdlog/async.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <chrono>
#include <filesystem>

#include "base/log.h"
#include "base/text.h"
#include "base/unix_time.h"
#include "server/json_writer.h"

namespace sluice {
namespace {

constexpr std::size_t kQueueLines = 8192;
constexpr std::chrono::seconds kLossReportInterval{10};

void append_field(std::string_view name, std::string_view value, std::string& out) {
  if (value.empty()) return;
  append_format(out, ",\"{}\":", name);
  append_json_string(value, out);  // any bytes: paths and names come from clients
}

}  // namespace

std::string access_line(const AccessRecord& r, std::int64_t unix_ms) {
  std::string out;
  out.reserve(384);
  append_format(out, "{{\"time\":\"{}.{:03}Z\"", utc_text(unix_ms / 1000, "%Y-%m-%dT%H:%M:%S"),
                unix_ms % 1000);
  append_field("request_id", r.request_id, out);
  append_field("peer", r.peer, out);
  append_field("method", r.method, out);
  append_field("path", r.path, out);
  append_format(out, ",\"status\":{}", r.status);
  append_field("model", r.model, out);
  append_field("client", r.client, out);
  if (r.prompt_tokens > 0) {
    append_format(out, ",\"prompt_tokens\":{},\"cached_tokens\":{},\"completion_tokens\":{}",
                  r.prompt_tokens, r.cached_tokens, r.completion_tokens);
  }
  if (r.ttft) append_format(out, ",\"ttft_ms\":{:.3f}", to_milliseconds(*r.ttft));
  append_format(out, ",\"total_ms\":{:.3f}", to_milliseconds(r.total));
  append_field("finish_reason", r.finish_reason, out);
  append_format(out, ",\"bytes\":{}", r.bytes);
  append_field("close_reason", r.close_reason, out);
  out += '}';
  return out;
}

struct AccessLog::Impl {
  std::shared_ptr<spdlog::details::thread_pool> thread;  // shared as spdlog has it, with its logger
  std::shared_ptr<spdlog::async_logger> logger;          // shared as spdlog has it, with its lines
  std::int64_t reported_losses = 0;
  std::chrono::steady_clock::time_point next_report;
};

AccessLog::AccessLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

AccessLog::~AccessLog() {
  if (impl_ == nullptr) return;
  impl_->logger->flush();
  const auto lost = static_cast<std::int64_t>(impl_->thread->overrun_counter());
  // The thread ends after it has written its queue; only then does no other thread use the logger.
  impl_->thread.reset();
  impl_->logger.reset();
  if (lost > impl_->reported_losses) {
    log_warning(fmt::format("access log: {} lines were lost in all", lost));
  }
}

Result<std::unique_ptr<AccessLog>> AccessLog::open(const std::string& target) {
  if (target == "off") return std::unique_ptr<AccessLog>(new AccessLog(nullptr));
  // The library would create missing folders, which would hide a typing error.
  const auto folder = std::filesystem::path(target).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    return invalid_argument(
        fmt::format("--access-log {}: there is no folder {}", target, folder.string()));
  }
  auto impl = std::make_unique<Impl>();
  try {
    std::shared_ptr<spdlog::sinks::sink> sink;  // shared as spdlog has it
    if (target == "stderr") {
      sink.reset(new spdlog::sinks::stderr_sink_mt());
    } else {
      sink.reset(new spdlog::sinks::basic_file_sink_mt(target));
    }
    impl->thread.reset(new spdlog::details::thread_pool(kQueueLines, 1));
    impl->logger.reset(new spdlog::async_logger("access", std::move(sink), impl->thread,
                                                spdlog::async_overflow_policy::overrun_oldest));
    impl->logger->set_pattern("%v");
    impl->logger->flush_on(spdlog::level::info);
  } catch (const spdlog::spdlog_ex& error) {
    return invalid_argument(
        fmt::format("--access-log {}: {}; give a file that can be written, stderr or off", target,
                    error.what()));
  }
  return std::unique_ptr<AccessLog>(new AccessLog(std::move(impl)));
}

void AccessLog::write(const AccessRecord& record) {
  if (impl_ == nullptr) return;
  impl_->logger->info("{}", access_line(record, unix_time().count()));
  report_losses();
}

std::int64_t AccessLog::lost_lines() const {
  return impl_ == nullptr ? 0 : static_cast<std::int64_t>(impl_->thread->overrun_counter());
}

void AccessLog::report_losses() {
  const std::int64_t lost = lost_lines();
  if (lost == impl_->reported_losses) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < impl_->next_report) return;
  log_warning(fmt::format("access log: {} lines were lost, it cannot be written fast enough",
                          lost - impl_->reported_losses));
  impl_->reported_losses = lost;
  impl_->next_report = now + kLossReportInterval;
}

}  // namespace sluice
