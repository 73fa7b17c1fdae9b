// What logits processors make of one row, id by id: plain data, and the arithmetic that a host and
// a device share. The numbers of a row are edited after guidance and before temperature.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

enum class EditKind : std::int32_t {
  kChange,  // by the numbers of the edit
  kDrop,    // the id is not drawn
  kZero,    // the logit is 0
};

struct LogitEdit {
  std::int32_t id = 0;
  EditKind kind = EditKind::kChange;
  std::int32_t count = 0;  // of the id among the tokens so far, times `frequency`
  double bias = 0;         // added first
  // Logits below zero are multiplied by a scale, others divided.
  double prompt_scale = 1, scale = 1;
  double frequency = 0, presence = 0;  // taken off, one after the other
  double growth = 0;                   // then the logit's size, so many times, is added
};

// The edits of a row, one an id. `only`: ids without an edit are not drawn.
struct RowEdits {
  std::span<const LogitEdit> edits = {};
  bool only = false;

  bool empty() const { return edits.empty() && !only; }
};

template <typename Real>
constexpr Real scaled_logit(Real logit, Real scale) {
  return logit < 0 ? logit * scale : logit / scale;
}

template <typename Real>
constexpr Real edited_logit(Real logit, const LogitEdit& edit) {
  if (edit.kind == EditKind::kZero) return 0;
  Real out = logit + static_cast<Real>(edit.bias);
  out = scaled_logit(out, static_cast<Real>(edit.prompt_scale));
  out = scaled_logit(out, static_cast<Real>(edit.scale));
  out = out - static_cast<Real>(edit.frequency) * static_cast<Real>(edit.count);
  out = out - static_cast<Real>(edit.presence);
  return out + (out < 0 ? -out : out) * static_cast<Real>(edit.growth);
}

}  // namespace tessera
