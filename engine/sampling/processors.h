// Logits processors: functions of what stands before a position - the prompt's ids and the tokens
// of the stream - that change the row of the position after guidance and before temperature, as
// transformers' logits processors do, in their order. They look at nothing else. So the target of a
// position stays one distribution, and drafts, trees, batches and devices change no distribution.
//
// A processor is a row of the table in processors.cpp: its key, its setting, what it reads, and
// what it does to a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/core/logit_edit.h"
#include "engine/core/setting.h"
#include "engine/sampling/dist.h"

namespace tessera {

// Where a row stands.
struct ProcessedPosition {
  // Ids of the prompt, then of the stream up to the position; below zero: not known (yet).
  std::span<const std::int32_t> prefix;
  std::size_t prompt = 0;                    // of them, the prompt's
  std::size_t position = 0;                  // of the stream's tokens, from 0
  std::size_t length = 0;                    // tokens of the stream at most
  std::span<const std::int32_t> stops = {};  // ids that end the stream

  std::span<const std::int32_t> written() const { return prefix.subspan(prompt); }
};

// The edits of one row while processors make them. Ids outside the vocabulary are passed over.
class EditList {
 public:
  // Room for `capacity` edits of ids below `codes`.
  void reserve(std::size_t codes, std::size_t capacity);
  void begin();
  // The edit of an id, made if there is none; null for an id that has no logit, or is not among
  // the few that are kept.
  LogitEdit* at(std::int32_t id);
  void drop(std::int32_t id);
  // These ids alone, whatever was said of any id so far; keep() names one more of them.
  void keep_only(std::span<const std::int32_t> ids);
  void keep(std::int32_t id);
  // Where nothing would be left, no id is dropped.
  RowEdits finish();

 private:
  LogitEdit* made(std::int32_t id);

  std::vector<LogitEdit> edits_;
  std::vector<std::int32_t> place_;  // [codes] in edits_; -1 = none
  std::size_t dropped_ = 0;
  bool only_ = false;
};

struct LogitProcessor {
  std::string_view config_key;       // of transformers' generation_config.json; empty = none
  const Setting* setting = nullptr;  // at its own value the processor does nothing
  // Whether it asks what the prompt is; else the prefix may begin with the stream.
  bool reads_prompt = false;
  // `lists`: those of the setting, if it has any.
  void (*apply)(const DistributionSettings& settings, const BiasedIds& lists,
                const ProcessedPosition& at, EditList& edits) = nullptr;
};

// All of them, in the order in which they are applied.
std::span<const LogitProcessor> logit_processors();

// Error kUsage: a list names an id that is not below `codes`.
void check_processors(const DistributionSettings& settings, std::int64_t codes);

// The processors of one stream that its settings switch on.
class LogitProcessors {
 public:
  // Without any processor nothing is allocated; edit() allocates nothing.
  LogitProcessors(const DistributionSettings& settings, const VocabularyGrammar& grammar);

  bool on() const { return !active_.empty(); }
  // Before the first position: the prompt's ids, of the stream's own token space.
  void begin(std::span<const std::int32_t> prompt);
  // Where the tokens of the stream before a position are to be appended, for edit().
  std::vector<std::int32_t>& prefix();
  // Of the row of a position, by what prefix() holds. Lives until the next call.
  RowEdits edit(std::size_t position, std::span<const std::int32_t> stops);

 private:
  struct Active {
    const LogitProcessor* processor;
    BiasedIds lists;
  };
  void reserve(std::size_t prompt);

  DistributionSettings settings_;
  std::size_t codes_ = 0, length_ = 0, listed_ = 0;  // listed_: ids of all lists
  std::vector<Active> active_;
  std::size_t prompt_ = 0;
  std::vector<std::int32_t> prefix_;
  EditList edits_;
};

}  // namespace tessera
