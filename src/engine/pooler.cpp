#include "engine/pooler.h"

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace sluice {

Pooler::Pooler(std::int32_t slots, std::int32_t width, Device& device)
    : device_(device), width_(static_cast<std::size_t>(width)), slots_(index(slots)) {}

void Pooler::assign(std::int32_t slot, Pooling pooling) {
  Slot& state = slots_[index(slot)];
  state.pooling = pooling;
  state.count = 0;
  state.sum.clear();
  if (pooling == Pooling::kMean) state.sum.resize(width_);
  if (pooling != Pooling::kNone) state_.resize(width_);
}

Status Pooler::take(const PlanRow& row, const TensorView& tokens, const TensorView& logits,
                    RowResult& out, StepResult& result) {
  Slot& slot = slots_[index(row.slot)];
  if (slot.pooling == Pooling::kMean) {
    CHECK(slot.count == row.context_len);  // every token passed here: none came from the cache
    for (std::int32_t i = 0; i < row.query_len; ++i) {
      RETURN_IF_ERROR(read(tokens, std::int64_t{row.first_token} + i));
      for (std::size_t k = 0; k < width_; ++k) slot.sum[k] += static_cast<double>(state_[k]);
    }
    slot.count += row.query_len;
  }
  if (row.num_logits == 0 || out.failed) return {};
  out.first_embedding = static_cast<std::int32_t>(result.embeddings.size());
  out.num_embedding = static_cast<std::int32_t>(width_);
  if (slot.pooling == Pooling::kLastToken) {
    RETURN_IF_ERROR(read(logits, row.first_logit));
    result.embeddings.insert(result.embeddings.end(), state_.begin(), state_.end());
  } else {
    for (const double sum : slot.sum) {
      result.embeddings.push_back(static_cast<float>(sum / slot.count));
    }
  }
  slot.pooling = Pooling::kNone;  // the prompt has ended
  return {};
}

Status Pooler::read(const TensorView& states, std::int64_t row) {
  const std::size_t bytes = width_ * size_of(states.dtype);
  const auto* source =
      static_cast<const std::byte*>(states.data) + static_cast<std::size_t>(row) * bytes;
  if (!device_.traits().host_accessible) {
    copy_.resize(bytes);
    RETURN_IF_ERROR(device_.copy_to_host(copy_.data(), source, bytes));
    RETURN_IF_ERROR(device_.synchronize(Queue::kCompute));
    source = copy_.data();
  }
  for (std::size_t i = 0; i < width_; ++i) {
    switch (states.dtype) {
      case DType::kF32: state_[i] = reinterpret_cast<const float*>(source)[i]; break;
      case DType::kBF16:
        state_[i] = bf16_to_float(reinterpret_cast<const std::uint16_t*>(source)[i]);
        break;
      case DType::kF16:
        state_[i] = f16_to_float(reinterpret_cast<const std::uint16_t*>(source)[i]);
        break;
      default: CHECK(!"hidden states are F32, BF16 or F16");
    }
  }
  return {};
}

}  // namespace sluice
