// Settings of every loop, texts too: they belong to no method, and each keeps what it has.
#pragma once

#include <compare>
#include <span>

#include "engine/decoding/decode_settings.h"

namespace tessera {

namespace setting {

inline constexpr Setting kPrecise{
    .name = "precise",
    .kind = SettingKind::kSwitch,
    .help = "weights in blocks meet inputs of f32, not of 8 bits: slower, closer to f32",
    .fallback = 0,
    .doors = kWhereNamed | Door::kCaption,
    .record = "precise"};
inline constexpr Setting kBf16Inputs{
    .name = "bf16-inputs",
    .kind = SettingKind::kSwitch,
    .help = "weights of bf16 meet inputs rounded to bf16: prompts up to twice as fast",
    .fallback = 0,
    .doors = kWhereNamed | Door::kCaption,
    .record = "bf16_inputs"};

}  // namespace setting

// kCache and these.
std::span<const Setting* const> loop_settings();
// What products make of their inputs, as the two switches say.
struct ProductInputs {
  bool precise = false;  // f32 with weights in blocks
  bool bf16 = false;     // bf16 with weights of bf16
  auto operator<=>(const ProductInputs&) const = default;
};
ProductInputs product_inputs(const DecodeMethod& method);
// Those of `given` and no others.
void set_loop(DecodeMethod& method, const SettingValues& given);

}  // namespace tessera
