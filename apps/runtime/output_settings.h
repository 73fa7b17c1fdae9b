// The settings of what is written: sizes of images, lengths and rates of videos, files.
#pragma once

#include "engine/core/setting.h"

namespace tessera {

std::span<const std::string_view> continue_choices();
std::span<const std::string_view> container_choices();

namespace setting {

inline constexpr Doors kWhereSized = Door::kGenerate | Door::kBatch | Door::kViewer | Door::kRecord;

inline constexpr Setting kWidth{.name = "width",
                                .kind = SettingKind::kInteger,
                                .help = "width of an image",
                                .low = 1,
                                .high = 16384,
                                .unit = "pixels",
                                .doors = kWhereSized,
                                .record = "width"};
inline constexpr Setting kHeight{.name = "height",
                                 .kind = SettingKind::kInteger,
                                 .help = "height of an image",
                                 .low = 1,
                                 .high = 16384,
                                 .unit = "pixels",
                                 .doors = kWhereSized,
                                 .record = "height"};

inline constexpr Setting kFrames{
    .name = "frames",
    .kind = SettingKind::kInteger,
    .help = "frames of the video, first ones included",
    .low = 1,
    .high = 1'000'000,
    .unit = "frames",
    .otherwise = "the model's own length",
    .doors = Door::kVideo | Door::kBatch | Door::kField | Door::kViewer};
inline constexpr Setting kFps{.name = "fps",
                              .kind = SettingKind::kInteger,
                              .help = "frames a second",
                              .low = 1,
                              .high = 240,
                              .unit = "frames/s",
                              .doors = Door::kVideo | Door::kBatch | Door::kField};
inline constexpr Setting kContinue{
    .name = "continue",
    .kind = SettingKind::kChoice,
    .help =
        "what a window knows of the grids it begins with: recompute, what they show alone; "
        "sinks, also what they saw of those that went, without computing them again",
    .text_fallback = "recompute",
    .choices = continue_choices,
    .doors = Door::kVideo};
inline constexpr Setting kContainer{.name = "container",
                                    .kind = SettingKind::kChoice,
                                    .help = "the ending of a video's file",
                                    .otherwise = "as --name ends",
                                    .choices = container_choices,
                                    .doors = Door::kField};
inline constexpr Setting kQuality{.name = "quality",
                                  .kind = SettingKind::kInteger,
                                  .help = "of lossy codecs",
                                  .low = 1,
                                  .high = 100,
                                  .fallback = 80,
                                  .doors = Door::kVideo | Door::kBatch};

inline constexpr Setting kBatchSize{.name = "batch-size",
                                    .kind = SettingKind::kInteger,
                                    .help = "images generated at once",
                                    .low = 1,
                                    .high = 256,
                                    .fallback = 1,
                                    .doors = Door::kGenerate | Door::kBatch | Door::kEval,
                                    .changes_bytes = false};
inline constexpr Setting kBatchCount{.name = "batch-count",
                                     .kind = SettingKind::kInteger,
                                     .help = "images for each prompt; seeds count up",
                                     .low = 1,
                                     .high = 100'000,
                                     .fallback = 1,
                                     .doors = Door::kGenerate};
inline constexpr Setting kMaxImages{.name = "max-images",
                                    .kind = SettingKind::kInteger,
                                    .help = "images of an answer of --interleave",
                                    .low = 1,
                                    .high = 64,
                                    .fallback = 4,
                                    .doors = Door::kGenerate};
inline constexpr Setting kPreviewInterval{.name = "preview-interval",
                                          .kind = SettingKind::kInteger,
                                          .help = "grid rows between two previews",
                                          .low = 1,
                                          .high = 4096,
                                          .unit = "rows",
                                          .fallback = 1,
                                          .doors = Door::kGenerate | Door::kVideo,
                                          .changes_bytes = false};

inline constexpr const Setting* kSizeRows[] = {&kWidth, &kHeight};
inline constexpr const Setting* kVideoRows[] = {&kFrames, &kFps, &kContinue, &kContainer,
                                                &kQuality};
inline constexpr const Setting* kOutputRows[] = {&kBatchSize, &kBatchCount, &kMaxImages,
                                                 &kPreviewInterval};

}  // namespace setting

// "Size", "Video", "Output".
std::span<const SettingGroup> output_groups();

}  // namespace tessera
