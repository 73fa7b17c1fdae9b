// The settings of describing: how long texts are, what of images and videos a model is shown.
#pragma once

#include "engine/core/setting.h"
#include "video/cuts/cut_finder.h"

namespace tessera {

namespace setting {

inline constexpr Setting kMaxTokens{.name = "max-tokens",
                                    .kind = SettingKind::kInteger,
                                    .help = "longest text",
                                    .low = 1,
                                    .high = 4096,
                                    .unit = "tokens",
                                    .fallback = 256,
                                    .doors = Door::kCaption};
// "none" and the pruners.
std::span<const std::string_view> prune_choices();
inline constexpr std::string_view kNoPruner = "none";

inline constexpr Setting kPrune{.name = "prune",
                                .kind = SettingKind::kChoice,
                                .help = "drops visual tokens",
                                .text_fallback = kNoPruner,
                                .choices = prune_choices,
                                .doors = Door::kCaption};
inline constexpr Setting kKeepTokens{
    .name = "keep-tokens",
    .kind = SettingKind::kInteger,
    .help = "visual tokens of each image that stay, in the place of prune-rate",
    .low = 1,
    .high = 1 << 20,
    .unit = "tokens",
    .otherwise = "as prune-rate says",
    .doors = Door::kCaption};
inline constexpr Setting kPruneRate{.name = "prune-rate",
                                    .help = "fraction of visual tokens that --prune drops",
                                    .low = 0,
                                    .high = 0.999,
                                    .fallback = 0.67,
                                    .doors = Door::kCaption | Door::kViewer,
                                    .start = 0.5};
inline constexpr Setting kVideoFrames{.name = "video-frames",
                                      .kind = SettingKind::kInteger,
                                      .help = "frames of a scene that the model is shown, at most",
                                      .low = 1,
                                      .high = 768,
                                      .unit = "frames",
                                      .otherwise = "32, fewer where its prompts are shorter",
                                      .doors = Door::kCaption};
inline constexpr Setting kShownRate{.name = "fps",
                                    .help = "frames a second that the model is shown",
                                    .low = 0.001,
                                    .high = 1000,
                                    .unit = "frames/s",
                                    .otherwise = "the family's own",
                                    .doors = Door::kCaption};
inline constexpr Setting kSceneCut{
    .name = "scene-cut",
    .help = "a new scene begins where the colours of two frames are so far apart; 1 = never",
    .low = 0.01,
    .high = 1,
    .fallback = CutSettings{}.distance,
    .doors = Door::kCaption};

inline constexpr Setting kSkipSimilar{
    .name = "skip-similar",
    .kind = SettingKind::kInteger,
    .help = "no caption for an image that looks like an earlier one: bits of 63 that may differ",
    .low = 0,
    .high = 16,
    .unit = "bits",
    .otherwise = "off; 6 without a value",
    .doors = Door::kCaption};

// The method first, then how much goes.
inline constexpr const Setting* kPruneRows[] = {&kPrune, &kPruneRate, &kKeepTokens};
inline constexpr const Setting* kCaptionRows[] = {&kMaxTokens,   &kPrune,     &kPruneRate,
                                                  &kKeepTokens,  &kVideoFrames, &kShownRate,
                                                  &kSceneCut,    &kSkipSimilar};

}  // namespace setting

const SettingGroup& caption_group();

}  // namespace tessera
