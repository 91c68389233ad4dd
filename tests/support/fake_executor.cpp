#include "tests/support/fake_executor.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

FakeExecutor::FakeExecutor(const FakeModel& model, const KvOptions& options, int max_in_flight)
    : model_(model),
      options_(options),
      max_blocks_per_seq_((options.max_model_len + options.block_size - 1) / options.block_size),
      max_in_flight_(max_in_flight) {
  CHECK(model.group_windows == options.group_windows);
  const std::size_t blocks = at(std::max(options.max_blocks, options.num_blocks));
  contents_.assign(blocks * at(options.block_size), 0xDEADULL);
  written_.assign(contents_.size(), 0);
  copy_step_.assign(blocks, 0);
  slots_.resize(at(options.max_num_seqs));
  row_step_.assign(slots_.size(), 0);
  tables_.assign(slots_.size() * options.group_windows.size() * at(max_blocks_per_seq_),
                 kNullBlock);
  results_.resize(at(max_in_flight));
  backed_ = options.num_blocks;
  pages_.resize(at(options.tier_pages));
  accepts_saves_ = options.tier_pages > 0;
}

BlockId& FakeExecutor::entry(std::int32_t slot, std::int32_t group, std::int32_t block) {
  CHECK(block >= 0 && block < max_blocks_per_seq_);
  return tables_[(at(slot) * options_.group_windows.size() + at(group)) * at(max_blocks_per_seq_) +
                 at(block)];
}

std::uint64_t& FakeExecutor::content(BlockId block, std::int32_t offset) {
  CHECK(block > kNullBlock && block < backed_);
  return contents_[at(block) * at(options_.block_size) + at(offset)];
}

Status FakeExecutor::submit(const BatchPlan& plan) {
  CHECK(!plan.empty() && in_flight_ < results_.size());
  ++submitted_;
  start_transfers(plan);
  for (const SlotAssignment& assignment : plan.assignments) assign(assignment);
  apply_block_changes(plan);
  // The rows of a plan that shrinks have no use for what goes; those of one that grows must not
  // know of what comes.
  if (plan.kv_blocks != 0 && plan.kv_blocks < backed_) resize_kv(plan.kv_blocks);
  if (plan.has_rows()) run_rows(plan);
  if (plan.kv_blocks > backed_) resize_kv(plan.kv_blocks);
  return {};
}

// The row's blocks are those of its windows. Nothing of them is kept from step to step but the
// tails, so a sequence that gets its slot anew has whole pieces only.
void FakeExecutor::begin_streamed(const BatchPlan& plan) {
  CHECK(stream_.max_blocks >= plan.streamed_blocks && plan.rows.size() == 1);
  const PlanRow& row = plan.rows.front();
  CHECK(row.context_len + row.query_len <= plan.streamed_blocks * options_.block_size);
  CHECK(row.sequence == streamed_sequence_ || (streamed_is_new_ && row.context_len == 0));
  begin_file(row.sequence);
  CHECK(!streamed_is_new_ || row.context_len % stream_.piece_tokens() == 0);
  streamed_is_new_ = false;
  for (std::vector<std::uint64_t>& contents : streamed_) {
    CHECK(contents.size() >= at(row.context_len));
    contents.resize(at(row.context_len));
    contents.resize(at(row.context_len + row.query_len));
  }
  for (std::int32_t b = 0; b < stream_.pool_blocks(plan.streamed_blocks); ++b) {
    for (std::int32_t i = 0; i < options_.block_size; ++i) {
      content(entry(row.slot, 0, b), i) = 0xBEEFULL;
    }
  }
}

void FakeExecutor::begin_file(SequenceId sequence) {
  if (sequence == streamed_sequence_) return;
  CHECK(moves_.empty());
  streamed_sequence_ = sequence;
  streamed_.assign(options_.group_windows.size(), {});
}

void FakeExecutor::end_stream(SequenceId sequence) {
  if (sequence != streamed_sequence_) return;
  CHECK(moves_.empty());
  streamed_sequence_ = 0;
  streamed_.clear();
}

// As for pages: what is written has no contents until the end, what is read does not change.
void FakeExecutor::start_move(const PlanTransfer& transfer, const BatchPlan& plan) {
  const PagedBlock& block = plan.pages.at(at(transfer.resource));
  CHECK(block.block > kNullBlock && block.block < backed_ && plan.stream_file.sequence != 0);
  for (const Move& other : moves_) CHECK(other.block.block != block.block);
  for (const PagedBlock& other : paging_) CHECK(other.block != block.block);
  begin_file(plan.stream_file.sequence);
  const auto end = at((block.depth + 1) * options_.block_size);
  std::vector<std::uint64_t>& file = streamed_.at(at(block.group));
  const bool writes = transfer.kind == TransferKind::kWriteStream;
  CHECK(writes || file.size() >= end);
  Move move{transfer.id, block, {}};
  for (std::int32_t i = 0; i < options_.block_size; ++i) {
    if (!writes) content(block.block, i) = 0xDEADULL;
    move.contents.push_back(content(block.block, i));
  }
  transfers_.push_back(transfer);
  moves_.push_back(std::move(move));
}

void FakeExecutor::end_move(const PlanTransfer& transfer, bool failed) {
  const auto move = std::ranges::find(moves_, transfer.id, &Move::id);
  CHECK(move != moves_.end());
  std::vector<std::uint64_t>& file = streamed_.at(at(move->block.group));
  const std::size_t begin = at(move->block.depth * options_.block_size);
  const bool writes = transfer.kind == TransferKind::kWriteStream;
  if (writes && file.size() < begin + move->contents.size()) {
    file.resize(begin + move->contents.size(), 0xDEADULL);
  }
  for (std::int32_t i = 0; i < options_.block_size; ++i) {
    std::uint64_t& here = content(move->block.block, i);
    CHECK(here == move->contents[at(i)]);
    std::uint64_t& there = file.at(begin + at(i));
    if (failed) continue;
    (writes ? there : here) = writes ? here : there;
  }
  moves_.erase(move);
}

std::uint64_t& FakeExecutor::stored(std::int32_t slot, std::int32_t group, std::int32_t position) {
  if (runs_streamed_) return streamed_.at(at(group)).at(at(position));
  const BlockId block = entry(slot, group, position / options_.block_size);
  return content(block, position % options_.block_size);
}

void FakeExecutor::run_rows(const BatchPlan& plan) {
  runs_streamed_ = plan.streamed_blocks > 0;
  if (runs_streamed_) {
    begin_streamed(plan);
  } else {
    check_writes(plan);
  }
  StepResult& out = results_[(oldest_ + in_flight_) % results_.size()];
  out.clear();
  for (const PlanRow& row : plan.rows) run_row(plan, row, out);
  ++in_flight_;
  const auto tokens = static_cast<std::int64_t>(plan.token_ids.size());
  const std::int64_t rows = (tokens + 15) / 16 * 16;
  computed_work_ += {rows, rows - tokens, 100, 75};
}

void FakeExecutor::start_transfers(const BatchPlan& plan) {
  for (const std::int32_t page : plan.wrong_pages) {
    for (const PagedBlock& block : paging_) CHECK(block.page != page);
    pages_.at(at(page)).contents.clear();
  }
  for (const PlanTransfer& transfer : plan.transfers) {
    CHECK(transfer.id > last_transfer_);
    last_transfer_ = transfer.id;
    CHECK(transfer.resource >= 0);
    if (moves_stream(transfer.kind)) {
      start_move(transfer, plan);
      continue;
    }
    if (transfer.kind != TransferKind::kLoadAdapter) {
      start_paging(transfer, plan.pages.at(at(transfer.resource)));
      continue;
    }
    CHECK(std::none_of(transfers_.begin(), transfers_.end(), [&](const PlanTransfer& other) {
      return other.kind == TransferKind::kLoadAdapter && other.place == transfer.place;
    }));
    if (at(transfer.place) >= adapters_.size()) adapters_.resize(at(transfer.place) + 1);
    // Written from now on: a row that reads the slot meets contents that are no adapter's.
    adapters_[at(transfer.place)] = kUndefined;
    transfers_.push_back(transfer);
  }
}

// The contents of a block that is loaded are garbage until the end, and a block that is saved must
// not change until then.
void FakeExecutor::start_paging(const PlanTransfer& transfer, const PagedBlock& block) {
  CHECK(transfer.place == block.page && block.block > kNullBlock && block.block < backed_);
  for (const PagedBlock& other : paging_) {
    CHECK(other.page != block.page && other.block != block.block);
  }
  for (const Move& other : moves_) CHECK(other.block.block != block.block);
  Page& page = pages_.at(at(block.page));
  std::vector<std::uint64_t> contents;
  for (std::int32_t i = 0; i < options_.block_size; ++i) {
    if (transfer.kind == TransferKind::kSaveBlock) {
      contents.push_back(content(block.block, i));
    } else {
      content(block.block, i) = 0xDEADULL;
    }
  }
  if (transfer.kind == TransferKind::kLoadBlock) {
    CHECK(!page.contents.empty());
    CHECK(page.block.name == block.name && page.block.group == block.group);
  } else {
    page.contents.clear();
  }
  transfers_.push_back(transfer);
  paging_.push_back(block);
  expected_.push_back(std::move(contents));
}

void FakeExecutor::end_paging(const PlanTransfer& transfer, bool failed) {
  const auto found = std::find_if(paging_.begin(), paging_.end(), [&](const PagedBlock& block) {
    return block.page == transfer.place;
  });
  CHECK(found != paging_.end());
  const PagedBlock block = *found;
  const auto expected = expected_.begin() + (found - paging_.begin());
  Page& page = pages_[at(block.page)];
  for (std::int32_t i = 0; i < options_.block_size; ++i) {
    std::uint64_t& here = content(block.block, i);
    if (transfer.kind == TransferKind::kSaveBlock) {
      CHECK(here == (*expected)[at(i)]);
    } else {
      CHECK(here == 0xDEADULL);
      if (!failed) here = page.contents[at(i)];
    }
  }
  if (transfer.kind == TransferKind::kSaveBlock && !failed) {
    page = {block, std::move(*expected), ++num_saves_};
  }
  paging_.erase(found);
  expected_.erase(expected);
}

std::vector<PagedBlock> FakeExecutor::saved_pages() const {
  std::vector<const Page*> saved;
  for (const Page& page : pages_) {
    if (!page.contents.empty()) saved.push_back(&page);
  }
  std::sort(saved.begin(), saved.end(),
            [](const Page* a, const Page* b) { return a->saved < b->saved; });
  std::vector<PagedBlock> blocks;
  blocks.reserve(saved.size());
  for (const Page* page : saved) blocks.push_back(page->block);
  return blocks;
}

void FakeExecutor::drop_page(const PagedBlock& block) {
  pages_.at(at(block.page)).contents.clear();
  lost_pages_.push_back(block);
}

void FakeExecutor::take_lost_pages(std::vector<PagedBlock>& lost) {
  lost.insert(lost.end(), lost_pages_.begin(), lost_pages_.end());
  lost_pages_.clear();
}

void FakeExecutor::take_tier(FakeExecutor& other) {
  CHECK(paging_.empty() && other.paging_.empty() && pages_.size() == other.pages_.size());
  pages_ = std::move(other.pages_);
  num_saves_ = other.num_saves_;
}

void FakeExecutor::end_transfer(std::size_t index, bool failed, bool unreadable) {
  CHECK(index < transfers_.size());
  const PlanTransfer transfer = transfers_[index];
  transfers_.erase(transfers_.begin() + static_cast<std::ptrdiff_t>(index));
  bool damaged = false;
  if (moves_stream(transfer.kind)) {
    end_move(transfer, failed);
  } else if (transfer.kind != TransferKind::kLoadAdapter) {
    end_paging(transfer, failed);
    // As the engine does it.
    damaged = failed && !unreadable && transfer.kind == TransferKind::kLoadBlock;
    if (damaged) pages_[at(transfer.place)].contents.clear();
  } else if (!failed) {
    adapters_[at(transfer.place)] = transfer.resource;
  }
  completed_.push_back({transfer.id, failed, damaged});
}

Status FakeExecutor::poll(std::vector<TransferResult>& completed) {
  while (!holds_transfers_ && !transfers_.empty()) end_transfer(0, fails_transfers_);
  completed.insert(completed.end(), completed_.begin(), completed_.end());
  completed_.clear();
  return {};
}

Status FakeExecutor::wait_for_transfer(Duration /*at_most*/) {
  CHECK(in_flight_ == 0 && (!transfers_.empty() || !completed_.empty()));
  ++waits_;
  return {};
}

void FakeExecutor::resize_kv(std::int32_t blocks) {
  CHECK(blocks >= 1 && blocks <= static_cast<std::int32_t>(copy_step_.size()));
  growth_failed_ = blocks > backed_ && refuses_growth_;
  if (growth_failed_) return;
  const std::size_t size = at(options_.block_size);
  // Memory that comes or goes has no contents.
  const auto first = at(std::min(blocks, backed_)) * size;
  const auto last = at(std::max(blocks, backed_)) * size;
  std::fill(contents_.begin() + static_cast<std::ptrdiff_t>(first),
            contents_.begin() + static_cast<std::ptrdiff_t>(last), 0xDEADULL);
  backed_ = blocks;
}

Status FakeExecutor::collect(StepResult& out) {
  CHECK(in_flight_ > 0);
  std::swap(out, results_[oldest_]);
  oldest_ = (oldest_ + 1) % results_.size();
  --in_flight_;
  return {};
}

void FakeExecutor::assign(const SlotAssignment& assignment) {
  streamed_is_new_ = streamed_is_new_ || assignment.sequence->streamed_blocks > 0;
  Slot& slot = slots_[at(assignment.slot)];
  slot.request.sampling = assignment.sequence->request->sampling;
  slot.request.adapter = assignment.sequence->request->adapter;
  slot.adapter_slot = assignment.adapter_slot;
  slot.sequence = assignment.sequence->id;
  slot.choice = assignment.sequence->choice;
  slot.last_token = -1;
}

void FakeExecutor::apply_block_changes(const BatchPlan& plan) {
  for (const BlockTableUpdate& update : plan.table_updates) {
    for (std::int32_t i = 0; i < update.count; ++i) {
      entry(update.slot, update.group, update.first_entry + i) =
          plan.block_ids[at(update.first_id + i)];
    }
  }
  // Copies may run in any order and at once, so no block may be touched by two of them, unless
  // both only read it.
  const std::uint64_t stamp = submitted_;
  for (const BlockCopy& copy : plan.copies) {
    CHECK(copy.source != kNullBlock && copy.target != kNullBlock && copy.source != copy.target);
    CHECK(copy_step_[at(copy.target)] != stamp);
    copy_step_[at(copy.target)] = stamp;
  }
  for (const BlockCopy& copy : plan.copies) CHECK(copy_step_[at(copy.source)] != stamp);
  for (const BlockCopy& copy : plan.copies) {
    for (std::int32_t i = 0; i < options_.block_size; ++i) {
      content(copy.target, i) = content(copy.source, i);
    }
  }
}

// No token slot is written twice in a step, because rows run at the same time.
void FakeExecutor::check_writes(const BatchPlan& plan) {
  for (const PlanRow& row : plan.rows) {
    for (std::int32_t i = 0; i < row.query_len; ++i) {
      const std::int32_t position = row.context_len + i;
      for (std::size_t g = 0; g < options_.group_windows.size(); ++g) {
        const BlockId block =
            entry(row.slot, static_cast<std::int32_t>(g), position / options_.block_size);
        CHECK(block != kNullBlock);
        std::uint64_t& written =
            written_[at(block) * at(options_.block_size) + at(position % options_.block_size)];
        CHECK(written != submitted_);
        written = submitted_;
      }
    }
  }
}

// The sum of all contents before `end` that a query at `position` sees.
std::uint64_t FakeExecutor::seen_by(std::int32_t slot, std::int32_t position, std::int32_t end) {
  std::uint64_t seen = 0;
  for (std::size_t g = 0; g < options_.group_windows.size(); ++g) {
    const std::int32_t window = options_.group_windows[g];
    const std::int32_t begin = window == 0 ? 0 : std::max(0, position - window + 1);
    for (std::int32_t p = begin; p < end; ++p) {
      seen += stored(slot, static_cast<std::int32_t>(g), p);
    }
  }
  return seen;
}

// As seen_by(), with contents by group of the positions from `end` on, which are in no block.
std::uint64_t FakeExecutor::seen_with(std::int32_t slot, std::int32_t position, std::int32_t end,
                                      const std::vector<std::vector<std::uint64_t>>& extra) {
  std::uint64_t seen = seen_by(slot, position, end);
  for (std::size_t g = 0; g < extra.size(); ++g) {
    const std::int32_t window = options_.group_windows[g];
    for (std::size_t i = 0; i < extra[g].size(); ++i) {
      const std::int32_t p = end + static_cast<std::int32_t>(i);
      if (window == 0 || p > position - window) seen += extra[g][i];
    }
  }
  return seen;
}

// Samples on without KV memory for the tokens that follow.
void FakeExecutor::force(const PlanRow& row, RowResult& result, StepResult& out) {
  CHECK(max_in_flight_ == 1);
  Slot& slot = slots_[at(row.slot)];
  const std::int32_t end = row.context_len + row.query_len;
  const std::uint64_t count = FakeModel::mix(slot.sequence, at(end)) % (max_forced_ + 1);
  std::vector<std::vector<std::uint64_t>> extra(options_.group_windows.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(count); ++i) {
    const std::int32_t output_index = row.output_index + 1 + i;
    if (model_.fails(slot.request, slot.choice, output_index)) return;
    const std::int32_t position = end + i;
    const std::uint64_t before = seen_with(row.slot, position, end, extra);
    for (std::size_t g = 0; g < extra.size(); ++g) {
      extra[g].push_back(model_.content(slot.last_token, position, static_cast<std::int32_t>(g),
                                        slot.request.adapter, before));
    }
    slot.last_token = model_.sample(slot.request, slot.choice, output_index,
                                    seen_with(row.slot, position, end, extra));
    out.tokens.push_back(slot.last_token);
    ++result.num_tokens;
    ++result.num_forced;
  }
}

void FakeExecutor::write_contents(std::int32_t slot, std::int32_t position, TokenId token) {
  const std::uint64_t seen = seen_by(slot, position, position);
  for (std::size_t g = 0; g < options_.group_windows.size(); ++g) {
    const auto group = static_cast<std::int32_t>(g);
    stored(slot, group, position) =
        model_.content(token, position, group, slots_[at(slot)].request.adapter, seen);
  }
}

bool FakeExecutor::sample(const PlanRow& row, std::int32_t position, std::int32_t output_index,
                          TokenId& token) {
  const Slot& slot = slots_[at(row.slot)];
  if (model_.fails(slot.request, slot.choice, output_index)) return false;
  token = model_.sample(slot.request, slot.choice, output_index,
                        seen_by(row.slot, position, position + 1));
  return true;
}

// A row with several logits holds guessed tokens. The token sampled at each position is compared
// with the guess at the next position; tokens are accepted up to the first difference.
void FakeExecutor::run_row(const BatchPlan& plan, const PlanRow& row, StepResult& out) {
  Slot& slot = slots_[at(row.slot)];
  CHECK(slot.sequence == row.sequence);
  CHECK(row.query_len >= 1 && row.context_len >= 0);
  CHECK(row_step_[at(row.slot)] != submitted_);
  row_step_[at(row.slot)] = submitted_;
  const std::int32_t adapter = slot.request.adapter;
  CHECK(adapter < 0 ? slot.adapter_slot < 0 : adapters_.at(at(slot.adapter_slot)) == adapter);
  RowResult result;
  result.first_token = static_cast<std::int32_t>(out.tokens.size());
  bool accepting = true;
  std::int32_t logit = 0;
  for (std::int32_t i = 0; i < row.query_len; ++i) {
    const std::int32_t position = row.context_len + i;
    TokenId token = plan.token_ids[at(row.first_token + i)];
    if (token == kTokenFromLastStep) token = slot.last_token;
    CHECK(token >= 0 && token < model_.vocab_size);
    if (logit > 0 && token != slot.last_token) accepting = false;
    write_contents(row.slot, position, token);
    if (logit == row.num_logits || plan.logit_positions[at(row.first_logit + logit)] != i) continue;
    if (accepting) {
      TokenId next = -1;
      accepting = sample(row, position, row.output_index + logit, next);
      // The tokens accepted so far are kept; the next row will fail at its first position.
      result.failed = !accepting && result.num_tokens == 0;
      if (accepting) {
        out.tokens.push_back(next);
        slot.last_token = next;
        ++result.num_tokens;
      }
    }
    ++logit;
  }
  CHECK(logit == row.num_logits);
  if (max_forced_ > 0 && row.num_logits == 1 && !result.failed) force(row, result, out);
  // After a failure the slot's tokens have no meaning, but a later step may still read one.
  if (result.failed) slot.last_token = 0;
  out.rows.push_back(result);
}

}  // namespace sluice
