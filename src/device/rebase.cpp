#include "device/rebase.h"

#include <fmt/format.h>

#include <cstring>

#include "device/op_fields.h"

namespace sluice {
namespace {

Error cannot_move(const OpList& ops, std::size_t index, const OpField& field, const void* address,
                  const char* why) {
  return internal_error(fmt::format("op {} ({}): {} is {}, which {}", index,
                                    op_info(ops[index].op).name, field.name, address, why));
}

}  // namespace

Result<OpList> rebase(const OpList& ops, const Arena& from, const Arena& to) {
  OpList moved = ops;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    for (const OpField& field : op_fields(moved[i].op)) {
      if (field.kind != FieldKind::kPointer) continue;
      std::byte* bytes = moved.params(i).data() + field.offset;
      const void* address = nullptr;
      std::memcpy(&address, bytes, sizeof(address));
      if (address == nullptr) continue;
      const auto place = from.find(address);
      if (!place) return cannot_move(ops, i, field, address, "lies in no buffer of the arena");
      const std::byte* target = to.address(*place);
      if (target == nullptr) {
        return cannot_move(ops, i, field, address,
                           fmt::format("lies in '{}' at {}; the other arena has no such place",
                                       place->buffer, place->offset)
                               .c_str());
      }
      std::memcpy(bytes, &target, sizeof(target));
    }
  }
  return moved;
}

}  // namespace sluice
