// `eval scenes`: paints held-out prompts of the tabletop world, has the judge read the pictures,
// and counts how often each attribute is right, beside a ceiling (true renders, and those the
// tokenizer reconstructs) and a floor (the same tokenizer under a language model that was never
// trained).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/lab/eval_reader.h"
#include "apps/lab/eval_statistics.h"
#include "apps/runtime/generate_request.h"

namespace tessera {

struct EvalScenesRequest {
  GenerateOptions options;
  SettingValues sampling;
  std::string judge;                // as SceneReader::open() takes it
  std::uint64_t seed = 1;           // of the painting; picture i is painted with seed + i
  std::uint64_t scene_seed = 1000;  // of the prompts: scenes 0, 1, ... of each split
  std::vector<SceneSplit> splits = {SceneSplit::kVal, SceneSplit::kHoldout};
  std::int64_t prompts = 200;          // of each split
  std::int64_t ceiling = 1000;         // true renders of val and of each split; mismatched pairs
  std::int64_t reconstructions = 200;  // renders through the tokenizer
  std::int64_t floor = 100;            // prompts painted by the untrained model; 0 = leave it out
};

// One finished part of the evaluation, in the order in which they are made.
struct EvalPart {
  EvalRow row;         // empty name: none
  std::string figure;  // a single figure beside the rows: "mismatched_accepted", "psnr_db"
  Interval value;
};

struct EvalSample {
  std::string prompt;
  Image image;
};

struct EvalScenesReport {
  std::string model, judge;  // as shown
  LawSettings law;
  DecodeMethod method;
  DecodeMeters meters;       // of all prompts but the floor's, pooled
  Interval tokens_per_pass;  // over those pictures
  std::vector<EvalRow> rows;
  Interval mismatched_accepted;     // share of pairs
  Interval psnr_db;                 // tokenizer on val renders
  std::vector<EvalSample> samples;  // pictures of the first split, in order
  bool stopped = false;
};

// What a caller may listen to.
struct EvalListener {
  std::function<void(const EvalPart&)> on_part;
  // After each pass of painting; kStop ends the evaluation.
  std::function<Flow(const std::string& what, std::int64_t done, std::int64_t of)> on_progress;
};

// Error kUsage when the model takes no text or its pictures are no multiple of what the judge
// reads, found before weights are read; kModel for a bad model or judge.
EvalScenesReport eval_scenes(const EvalScenesRequest& request, const EvalListener& listener);

// `model` with weights drawn from a seed in place of its own, its visual tokenizer kept.
OpenedModel untrained(OpenedModel model, std::uint64_t seed);

}  // namespace tessera
