#include "gateway/usage_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/file.h"

namespace sluice {
namespace {

constexpr int kVersion = 1;
constexpr const char* kCreate =
    "CREATE TABLE IF NOT EXISTS usage ("
    "day TEXT NOT NULL, tenant TEXT NOT NULL, function TEXT NOT NULL,"
    "requests INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,"
    "core_ns TEXT NOT NULL,"
    "host_active TEXT NOT NULL, host_idle TEXT NOT NULL,"
    "device_active TEXT NOT NULL, device_idle TEXT NOT NULL,"
    "disk_active TEXT NOT NULL, disk_idle TEXT NOT NULL,"
    "PRIMARY KEY (day, tenant, function)) WITHOUT ROWID";
constexpr const char* kInsert =
    "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
constexpr const char* kSelect =
    "SELECT * FROM usage WHERE day >= ? AND day <= ? ORDER BY day, tenant, function";
constexpr int kFirstMemory = 7;  // column of host_active

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

// The text is copied.
void bind_text(const Statement& statement, int position, const std::string& text) {
  sqlite3_bind_text(statement.get(), position, text.data(), static_cast<int>(text.size()),
                    SQLITE_TRANSIENT);
}

std::string text_of(const Statement& statement, int column) {
  const unsigned char* text = sqlite3_column_text(statement.get(), column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement.get(), column));
  return text == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(text), size);
}

Result<UsageRow> read_row(const Statement& statement) {
  UsageRow row;
  row.day = text_of(statement, 0);
  row.tenant = text_of(statement, 1);
  row.function = text_of(statement, 2);
  row.usage.requests = sqlite3_column_int64(statement.get(), 3);
  row.prompt_tokens = sqlite3_column_int64(statement.get(), 4);
  row.output_tokens = sqlite3_column_int64(statement.get(), 5);
  ASSIGN_OR_RETURN(row.usage.core_ns, parse_amount(text_of(statement, 6)));
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    const int column = kFirstMemory + 2 * static_cast<int>(k);
    ASSIGN_OR_RETURN(row.usage.memory[k].active, parse_amount(text_of(statement, column)));
    ASSIGN_OR_RETURN(row.usage.memory[k].idle, parse_amount(text_of(statement, column + 1)));
  }
  return row;
}

// With its mode. Closed before SQLite opens it, because the end of any descriptor of a file ends
// all of the process's locks of it.
Status create_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.valid()) return {};
  return unavailable(fmt::format("{}: cannot open it: {}", path, std::strerror(errno)));
}

}  // namespace

std::string amount_text(Amount amount) {
  std::string text;
  do {
    text += static_cast<char>('0' + static_cast<int>(amount % 10));
    amount /= 10;
  } while (amount > 0);
  std::ranges::reverse(text);
  return text;
}

Result<Amount> parse_amount(std::string_view text) {
  constexpr std::size_t kMostDigits = 38;  // below 2^127
  const bool digits = std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (text.empty() || text.size() > kMostDigits || !digits) {
    return invalid_argument(fmt::format("'{}' is not an amount", text));
  }
  Amount amount = 0;
  for (const char c : text) amount = amount * 10 + (c - '0');
  return amount;
}

Result<std::unique_ptr<UsageStore>> UsageStore::open(const std::string& path) {
  RETURN_IF_ERROR(create_file(path));
  sqlite3* db = nullptr;
  const int opened = sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE, nullptr);
  std::unique_ptr<UsageStore> store(new UsageStore(path, db));
  if (opened != SQLITE_OK) return store->error();
  if (Status status = store->prepare_file(); !status) return std::move(status).error();
  return store;
}

UsageStore::~UsageStore() { sqlite3_close(db_); }

Error UsageStore::error() const {
  if (db_ != nullptr && (sqlite3_errcode(db_) & 0xff) == SQLITE_BUSY) {
    return unavailable(path_ +
                       ": another process has this file; give each gateway its own (--usage FILE)");
  }
  return unavailable(
      fmt::format("{}: {}", path_, db_ == nullptr ? "out of memory" : sqlite3_errmsg(db_)));
}

Status UsageStore::run(const char* sql) {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return error();
  return {};
}

Status UsageStore::prepare_file() {
  // The lock is taken by the first access and kept. A commit needs no fsync to outlive this
  // process; after a power failure the last seconds may be missing.
  RETURN_IF_ERROR(run("PRAGMA locking_mode = EXCLUSIVE"));
  RETURN_IF_ERROR(run("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(run("PRAGMA synchronous = NORMAL"));
  RETURN_IF_ERROR(run("BEGIN EXCLUSIVE"));
  sqlite3_stmt* made = nullptr;
  sqlite3_prepare_v2(db_, "PRAGMA user_version", -1, &made, nullptr);
  const Statement statement(made);
  if (statement == nullptr || sqlite3_step(statement.get()) != SQLITE_ROW) return error();
  const int version = sqlite3_column_int(statement.get(), 0);
  sqlite3_reset(statement.get());
  if (version != 0 && version != kVersion) {
    return invalid_argument(fmt::format(
        "{}: has version {} of the usage table, this program writes {}; give another --usage FILE",
        path_, version, kVersion));
  }
  // A file that is there needs no write, so that a full disk keeps no gateway from its start.
  if (version == kVersion) return run("COMMIT");
  RETURN_IF_ERROR(run(kCreate));
  RETURN_IF_ERROR(run(fmt::format("PRAGMA user_version = {}", kVersion).c_str()));
  return run("COMMIT");
}

Result<std::string> UsageStore::id() {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
    return unavailable("the system gives no random numbers");
  }
  const auto find = [this]() -> Result<std::string> {
    sqlite3_stmt* made = nullptr;
    sqlite3_prepare_v2(db_, "SELECT id FROM file", -1, &made, nullptr);
    const Statement statement(made);
    if (statement == nullptr) return error();  // files of earlier versions have no such table
    return sqlite3_step(statement.get()) == SQLITE_ROW ? text_of(statement, 0) : std::string();
  };
  if (auto id = find(); id && !id->empty()) return id;
  const std::string write = fmt::format(
      "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS file (id TEXT NOT NULL);"
      "INSERT INTO file VALUES ('{:016x}'); COMMIT",
      random);
  if (const Status status = run(write.c_str()); !status) {
    static_cast<void>(run("ROLLBACK"));
    return status.error();
  }
  return find();
}

Status UsageStore::write(std::span<const UsageRow> rows) {
  RETURN_IF_ERROR(run("BEGIN IMMEDIATE"));
  if (Status status = write_rows(rows); !status) {
    static_cast<void>(run("ROLLBACK"));
    return status;
  }
  if (Status status = run("COMMIT"); !status) {
    static_cast<void>(run("ROLLBACK"));
    return status;
  }
  return {};
}

Status UsageStore::write_rows(std::span<const UsageRow> rows) {
  sqlite3_stmt* made = nullptr;
  sqlite3_prepare_v2(db_, kInsert, -1, &made, nullptr);
  const Statement statement(made);
  if (statement == nullptr) return error();
  for (const UsageRow& row : rows) {
    bind_text(statement, 1, row.day);
    bind_text(statement, 2, row.tenant);
    bind_text(statement, 3, row.function);
    sqlite3_bind_int64(statement.get(), 4, row.usage.requests);
    sqlite3_bind_int64(statement.get(), 5, row.prompt_tokens);
    sqlite3_bind_int64(statement.get(), 6, row.output_tokens);
    bind_text(statement, 7, amount_text(row.usage.core_ns));
    for (std::size_t k = 0; k < kMemoryKinds; ++k) {
      const int position = kFirstMemory + 1 + 2 * static_cast<int>(k);
      bind_text(statement, position, amount_text(row.usage.memory[k].active));
      bind_text(statement, position + 1, amount_text(row.usage.memory[k].idle));
    }
    if (sqlite3_step(statement.get()) != SQLITE_DONE) return error();
    sqlite3_reset(statement.get());
  }
  return {};
}

Result<std::vector<UsageRow>> UsageStore::read(const std::string& first, const std::string& last) {
  sqlite3_stmt* made = nullptr;
  sqlite3_prepare_v2(db_, kSelect, -1, &made, nullptr);
  const Statement statement(made);
  if (statement == nullptr) return error();
  bind_text(statement, 1, first);
  bind_text(statement, 2, last);
  std::vector<UsageRow> rows;
  for (;;) {
    const int step = sqlite3_step(statement.get());
    if (step == SQLITE_DONE) return rows;
    if (step != SQLITE_ROW) return error();
    auto row = read_row(statement);
    if (!row) return with_context(path_, std::move(row).error());
    rows.push_back(*std::move(row));
  }
}

}  // namespace sluice
