// PackedMatrix: a matrix of integer codes, scales and zero points in one of the forms in which
// other tools store it (Packing), as views of the checkpoint's tensors. It is repacked, row by row,
// to the blocks that products take (tensor/dtype.h), in which every element is the same: scale *
// (code - zero).
//
// Forms, of a matrix [rows, columns] whose product takes `columns` inputs. A word has 32 bits and
// 32 / bits codes, the first in its low bits.
//   kGptq, kGptqV2: words [columns / codes of a word, rows]: a word has codes of one row. Scales
//                   [groups, rows]; zero points in words [groups, rows / codes of a word]. kGptq
//                   stores them minus 1: 1 in every place is added to each word first.
//   kAwq:           words [columns, rows / 8]: a word has eight rows, in the order 0 2 4 6 1 3 5 7.
//                   Scales as above, zero points in words of the same order.
//   kCompressed:    words [rows, columns / codes of a word]. Scales [rows, groups]; zero points in
//                   words [rows / codes of a word, groups], or in bytes [rows, groups] with a sign.
//   kPlainInt8:     bytes [rows, columns] with a sign. Scales [rows, groups].
// Codes and zero points are without a sign, except in bytes, to which half of the range is added.
//
// Columns may belong to groups in any order (GPTQ's desc_act). Blocks hold whole groups, so column
// k of the blocks is then column order[k] of the matrix (MatmulSegment::order).
//
// Values: views, which the checkpoint's files outlive. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "model/model_config.h"
#include "tensor/dtype.h"

namespace sluice {

struct PackedMatrix {
  WeightPacking form;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
  DType scale_dtype = DType::kF16;   // F32, F16 or BF16
  std::span<const std::byte> zeros;  // empty: half of the range of codes
  bool zeros_are_bytes = false;
  std::span<const std::int32_t> order;  // [cols], or empty: groups follow each other

  std::int64_t group() const {
    return form.group_size == 0 || form.group_size > cols ? cols : form.group_size;
  }
  std::int64_t groups() const { return (cols + group() - 1) / group(); }
  std::int64_t codes_of_word() const { return 32 / form.bits; }
  // By row and by place among the row's groups.
  float scale(std::int64_t row, std::int64_t group) const;
  int zero(std::int64_t row, std::int64_t group) const;  // 0 to 255
};

// The type of blocks that holds every scale and zero point unchanged. kUnsupported, naming the
// cause, if there is none. Reads all scales and zero points.
Result<DType> block_type(const PackedMatrix& matrix);

// Rows are repacked in bands that begin at a multiple of this many.
inline constexpr std::int64_t kRepackedRows = 64;

// Writes rows [begin, end) as rows of blocks of the type. REQUIRES: it is the matrix's
// block_type(); `begin` is a multiple of kRepackedRows.
void repack_rows(const PackedMatrix& matrix, DType type, std::int64_t begin, std::int64_t end,
                 std::byte* target);

}  // namespace sluice
