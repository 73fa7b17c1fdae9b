// Sentences about a scene: captions from a small grammar, and questions with their answers. Every
// caption names size, colour, material and kind of each solid and the floor, so that an image can
// be scored against it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/lab/scene/scene.h"

namespace tessera {

struct QuestionAnswer {
  std::string question;
  std::string answer;
};

// "a large red shiny sphere", without a place.
std::string describe(const Solid& solid);

// The plain list, left to right: "a large red shiny sphere, a small blue matte cube and a small
// green matte cone on a checkered floor".
std::string canonical_caption(const Scene& scene);

// The canonical caption for six scenes in ten, else a paraphrase; the choice is the scene seed's.
std::string scene_caption(const Scene& scene);

// Four or five questions that the image answers, chosen by the scene seed. Answers are one word.
std::vector<QuestionAnswer> scene_questions(const Scene& scene);

// Reads a canonical caption back: floor and attributes, left to right; seed, x and z stay 0.
// Any other text is an Error (kUsage) naming the word's place, what was expected and found.
Scene parse_canonical(std::string_view caption);

}  // namespace tessera
