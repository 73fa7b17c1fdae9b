#include "engine/decoding/judged_rows.h"

#include <utility>

namespace tessera {

// The rows of a judged pass, as settle() asks for them.
struct JudgedRows::Records {
  std::span<const RowRecord> records;

  std::pair<std::int32_t, RowFigures> draw(std::size_t j, std::size_t) const {
    return {records[j].token, figures_of(records[j])};
  }
};

void JudgedRows::describe(std::int32_t cond, std::int32_t uncond, JudgedBatch& batch) {
  begin_pass();
  const auto count = static_cast<std::int32_t>(rows());
  const auto item = static_cast<std::int32_t>(batch.items.size());
  JudgedItem stream =
      judged_item(law_.settings(), random_, static_cast<std::int32_t>(batch.rows.size()), count);
  stream.apart = 1;
  batch.items.push_back(stream);
  for (std::int32_t j = 0; j < count; ++j) {
    JudgedRow row = judged_row(law_.settings(), item, cond + j, uncond + j);
    const std::optional<std::size_t> gives =
        tokens_.empty() ? std::size_t{0} : lines_[static_cast<std::size_t>(j)].gives;
    if (gives) {
      row.place = static_cast<std::int32_t>(*gives);
      if (const auto forced = grammar().forced(*gives)) row.forced = *forced;
    } else {
      row.forced = 0;  // nobody asks for its token: no law is made
    }
    batch.rows.push_back(row);
  }
}

void JudgedRows::take(std::span<const RowRecord> records, const JudgedCount& item) {
  settle(Records{records}, static_cast<std::size_t>(item.sound));
}

}  // namespace tessera
