// Settings of every loop, texts too: they belong to no method, and each keeps what it has.
#pragma once

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

}  // namespace setting

// kCache and these.
std::span<const Setting* const> loop_settings();
bool is_precise(const DecodeMethod& method);
// Those of `given` and no others.
void set_loop(DecodeMethod& method, const SettingValues& given);

}  // namespace tessera
