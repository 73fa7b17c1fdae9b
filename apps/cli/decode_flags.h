// Flags that choose a decoding method, for every sub-command that paints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/decoding/decode_method.h"

namespace CLI {
class App;
}

namespace tessera {

// What was given; empty values come from the method's own row.
struct DecodeFlags {
  std::optional<std::string> decode, drafter, tail, accept, draft_model, tree;
  std::optional<std::int64_t> window, group_size, neighbours, tree_width, tree_depth, row_lead;
  bool static_groups = false;
  std::optional<double> delta, lambda, lenience, cool_peak, cool_decay, tv_budget;
};

void add_decode_flags(CLI::App& app, DecodeFlags& flags);
// Without --decode and --window, for a command that goes through several of them.
void add_decode_part_flags(CLI::App& app, DecodeFlags& flags);

// Error kUsage for names that do not exist. `fallback` holds when --decode is not given.
DecodeMethod method_of(const DecodeFlags& flags, const DecodeMethod& fallback = {});

// A method by name as texts take it: their tokens are plain decoding's whatever is guessed.
DecodeMethod text_method(const std::string& name);

}  // namespace tessera
