// What a loop of streams holds: its slots, spaces and pass.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/hidden_signal.h"
#include "engine/decoding/loop_space.h"
#include "engine/decoding/model_pass.h"
#include "engine/decoding/prompt_prefixes.h"
#include "engine/decoding/stream_loop.h"
#include "engine/decoding/stream_slot.h"

namespace tessera {

struct StreamLoop::State {
  State(const PassModel& pass_model, const StreamLimits& stream_limits);

  void use(const LoopParts& parts, WindowController* window_controller);
  void check(const Stream& stream) const;
  void check_blocks(const Stream& stream) const;
  void check_grammars(const Stream& stream) const;
  void begin(std::size_t number, Stream stream, bool slid);
  void fill(StreamSlot& slot, std::size_t number);
  std::optional<VocabularyGrammar> part_grammar(const StreamSlot& slot, std::size_t number) const;
  void begin_part(StreamSlot& slot, std::size_t number, const VocabularyGrammar& grammar);
  void switch_part(std::size_t number);
  void switch_parts();
  void free(std::size_t number);
  bool shares_prompts(const Stream& stream) const;
  std::size_t slot_for(const Stream& stream) const;
  void draft();
  void add_rows(std::size_t number, int branch, std::size_t most);
  void add_windows();
  void add_prompts();
  void add_part(std::size_t number, std::int64_t& room);
  void run();
  void run_window_heads();
  void read_cut_prompt(std::size_t number, int branch, std::int64_t logit_row);
  void mix_branches();
  void make_room_to_mix(const PassModel& space);
  void verify();
  void keep_rows(std::size_t number);
  void settle_caches();
  void show_hidden();
  std::string broken_place(std::size_t number);
  void name_layers();
  void count_time(double seconds, double verifying);
  void emit(const PassTimes& times, StreamListener& listener);

  Backend& backend() const { return model.backend(); }
  std::int32_t sequence_of(std::size_t number, int branch) const {
    return narrow<std::int32_t>(to_index(number) * limits.branches()) + branch;
  }
  // Tokens of all streams.
  std::int64_t committed() const {
    std::int64_t tokens = 0;
    for (const StreamSlot& slot : slots) {
      tokens += std::ssize(slot.result.tokens);
    }
    return tokens;
  }
  bool prompts_in_pass() const { return prompt_rows > 0 || !ended.empty(); }

  const PassModel& model;
  StreamLimits limits;
  WindowController* controller = nullptr;
  ModelPass pass;
  PromptPrefixes prefixes;
  std::vector<LoopSpace> spaces;  // the model's own is the first one
  Tensor last_row;                // [1, D] of a prompt with cuts; empty until there is one
  Tensor mixed;  // [window x the most ids of a space]; empty where no stream has a branch of images
  std::vector<StreamSlot> slots;
  std::vector<std::size_t> waiting;  // slots that still read what they begin with, oldest first
  std::vector<std::size_t> ended;    // slots whose first token is drawn in this pass
  std::vector<StreamView> views;
  PassLine line;
  std::vector<std::int64_t> kept;
  std::vector<std::int32_t> mix_rows;
  std::vector<float> mix_weights;
  HiddenSignal hidden;
  std::int64_t passes = 0, frees = 0;
  std::int64_t decode_rows = 0, prompt_rows = 0;  // of the pass at hand
  std::int64_t written = 0;                       // tokens that it committed
  bool cut_one = false;                           // a prompt with cuts goes through in it
  StreamTimes times;
};

}  // namespace tessera
