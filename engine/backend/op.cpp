// Tables of ops, and what becomes of an op that a device does not have.
#include "engine/backend/op.h"

#include <string>

#include "engine/backend/backend.h"

namespace tessera {

void OpTable::put(const OpKind& kind, OpFunction run) {
  const std::uint64_t id = op_id(kind.name);
  std::size_t at = id % kPlaces;
  while (entries_[at].run != nullptr && entries_[at].id != id) at = (at + 1) % kPlaces;
  if (entries_[at].run == nullptr) ++count_;
  expects(count_ <= kPlaces / 2, "a table of ops is at most half full");
  expects(entries_[at].run == nullptr || std::string_view(entries_[at].kind->name) == kind.name,
          "two ops have names with one hash");
  entries_[at] = {id, run, &kind};
}

std::vector<const OpKind*> OpTable::kinds() const {
  std::vector<const OpKind*> out;
  for (const Entry& entry : entries_) {
    if (entry.run != nullptr) out.push_back(entry.kind);
  }
  return out;
}

void Backend::run_unknown(const OpKind& kind, const void* /*op*/) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_OP",
               .where = "device " + name(),
               .expected = std::string("the op '") + kind.name + "'",
               .found = "a device without it",
               .hint = "--device cpu"});
}

}  // namespace tessera
