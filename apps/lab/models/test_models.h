// Models without files: small seeded ones for tests, and published dimensions with seeded random
// weights for benchmarks.
#pragma once

#include <string>
#include <string_view>

#include "engine/families/open_model.h"

namespace tessera {

// "test:...", "random:...".
bool is_made_up_model(std::string_view name);

// test:tiny: Janus-shaped, 2 layers of width 64, 64 codes, 8x8 tokens, 32x32 pixels.
// test:rows: the same with a token after each row and one after the image.
// test:clip: Emu3-shaped, videos of 4 grids of 4x6 codes, 16 frames of 24x16 pixels, plain codes.
// test:clip-rows: the same with a token after each row, grid, video and stream.
// test:cosmos: Cosmos-shaped, goes on with videos of 3 grids of 2x3 codes, 17 frames of 48x32
// pixels. test:cosmos-text: the same with attention to 512 rows of a text encoder of width 24.
// test:nbp: the videos of test:clip in blocks, a row of codes each; test:nbp-frames: without
// prompts, on from given frames.
// test:null: the smallest thing that is still a model: 1 layer, 2x2 tokens, 4x4 pixels.
// random:llamagen:{B,L,XL,XXL,XXXL,1B,3B,7B}, random:janus-pro:{1B,7B}, random:clip:{B,L} (videos of 16
// frames of 128x128 pixels, 1024 codes, by LlamaGen's transformers): weights are drawn when the
// loader asks for them, so that only the packed form is ever held.
// Error kModel for any other name, listing these.
// ModelUse::kDescribe: make_up_captioner().
OpenedModel make_up_model(const std::string& name, const FamilyOptions& options = {});

// test:tiny as a model that describes: Janus-shaped like the generator of that name, 2 layers of
// width 64 over a byte-level vocabulary, images of 32x32 pixels in 4x4 visual tokens, seeded random
// weights. Error kModel for another name.
OpenedModel make_up_captioner(const std::string& name);
bool is_made_up_captioner(std::string_view name);

// A byte-level tokenizer.json without merges, with the special tokens of the Janus template.
std::string test_tokenizer_json();
// The same with Emu3's, which puts nothing before a text.
std::string test_clip_tokenizer_json();
// The config.json after a test model, by the part of its name after "test:".
std::string test_model_config(std::string_view name);

}  // namespace tessera
