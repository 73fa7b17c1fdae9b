// Rows of codes side by side whose tokens are drawn on the host.
#pragma once

#include <cstdint>
#include <utility>

#include "engine/decoding/row_base.h"

namespace tessera {

template <typename Real, typename Random>
class RowSequence final : public RowBase<Real, Random> {
 public:
  using RowBase<Real, Random>::RowBase;

  void judge(RawRows<Real> raw, std::size_t usable) override {
    this->settle(HostRows{*this, raw}, usable);
  }

 private:
  struct HostRows {
    RowSequence& sequence;
    RawRows<Real> raw;

    std::pair<std::int32_t, RowFigures> draw(std::size_t j, std::size_t position) {
      const TargetRow<Real> row = sequence.process(position, raw(j));
      const std::int32_t token =
          sequence.random_.race(static_cast<std::uint32_t>(position), row.logits);
      return {token, figures_of(row, token)};
    }
  };
};

}  // namespace tessera
