// From a folder's processor files to the way its images are prepared: a function of the files, with
// the defaults of the reference's class for absent keys. Source: the image processors of
// Hugging Face transformers 5 that resize by Pillow.
#pragma once

#include <span>
#include <string_view>

#include "engine/families/family.h"
#include "engine/families/folder_files.h"

namespace tessera {

// The processor's keys: within processor_config.json (image_processor), or else those of
// preprocessor_config.json. Error kModel where both name a key and the values differ.
JsonReader image_processor_keys(FolderFiles& files);
// Whether the folder has such keys at all.
bool has_image_processor(FolderFiles& files);

// What postprocess() of one of these classes, the first where none is named, makes of a decoded
// image. Error kModel as read_image_policy(); also where it makes no levels.
PixelLevels read_pixel_levels(std::span<const std::string_view> classes, FolderFiles& files);

// Error kModel naming file and key for what the reference refuses with this encoder, and for what
// is not done here. Where there can be no processor files (a configuration alone, a model whose
// encoder has them): the published policy, sized to the encoder.
PreprocessPolicy read_image_policy(const Describer& row, const JsonReader& config,
                                   const VisionTower& tower, FolderFiles& files);
// The keys of processor_config.json that repeat what the model's configuration says, against it.
// Error kModel.
void check_processor(const Describer& row, const DescribeSpec& spec, const JsonReader& config,
                     FolderFiles& files);

}  // namespace tessera
