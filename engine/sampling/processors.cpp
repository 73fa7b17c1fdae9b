#include "engine/sampling/processors.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/sampling/processor_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

using Ids = std::span<const std::int32_t>;

bool among(Ids ids, std::int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

// Whether what stands ends with these ids. Unknown ids are like no other.
bool ends_with(Ids prefix, Ids ids) {
  return prefix.size() >= ids.size() &&
         std::equal(ids.begin(), ids.end(), prefix.end() - std::ssize(ids),
                    [](std::int32_t a, std::int32_t b) { return a == b && a >= 0; });
}

// The ids of sequences of one id.
void drop_all(const BiasedIds& lists, EditList& edits) {
  for (const std::vector<std::int32_t>& ids : lists.ids) edits.drop(ids.front());
}

// Sums are of floats, as the reference's are.
void bias_sequences(const DistributionSettings&, const BiasedIds& lists,
                    const ProcessedPosition& at, EditList& edits) {
  for (std::size_t i = 0; i < lists.ids.size(); ++i) {
    const Ids ids = lists.ids[i];
    if (!ends_with(at.prefix, ids.first(ids.size() - 1))) continue;
    if (LogitEdit* const edit = edits.at(ids.back())) {
      edit->bias = static_cast<float>(edit->bias) + static_cast<float>(lists.biases[i]);
    }
  }
}

// Keskar et al. 2019, section 4.1, the other way round: what the prompt says gains.
void favour_prompt(const DistributionSettings& settings, const BiasedIds&,
                   const ProcessedPosition& at, EditList& edits) {
  for (const std::int32_t id : at.prefix.first(at.prompt)) {
    if (LogitEdit* const edit = edits.at(id)) edit->prompt_scale = 1 / settings.prompt_penalty;
  }
}

void penalise_repetition(const DistributionSettings& settings, const BiasedIds&,
                         const ProcessedPosition& at, EditList& edits) {
  for (const std::int32_t id : at.prefix) {
    if (LogitEdit* const edit = edits.at(id)) edit->scale = settings.repetition_penalty;
  }
}

void penalise_frequency(const DistributionSettings& settings, const BiasedIds&,
                        const ProcessedPosition& at, EditList& edits) {
  for (const std::int32_t id : at.written()) {
    LogitEdit* const edit = edits.at(id);
    if (edit == nullptr) continue;
    edit->frequency = settings.frequency_penalty;
    ++edit->count;
  }
}

void penalise_presence(const DistributionSettings& settings, const BiasedIds&,
                       const ProcessedPosition& at, EditList& edits) {
  for (const std::int32_t id : at.written()) {
    if (LogitEdit* const edit = edits.at(id)) edit->presence = settings.presence_penalty;
  }
}

// What would end a run of `size` ids that `text` has.
void drop_ngrams(Ids text, Ids prefix, std::size_t size, EditList& edits) {
  if (prefix.size() + 1 < size || text.size() < size) return;
  const Ids newest = prefix.last(size - 1);
  for (std::size_t end = size - 1; end < text.size(); ++end) {
    if (ends_with(text.first(end), newest)) edits.drop(text[end]);
  }
}

void drop_own_ngrams(const DistributionSettings& settings, const BiasedIds&,
                     const ProcessedPosition& at, EditList& edits) {
  drop_ngrams(at.prefix, at.prefix, to_size(settings.no_repeat_ngram), edits);
}

void drop_prompt_ngrams(const DistributionSettings& settings, const BiasedIds&,
                        const ProcessedPosition& at, EditList& edits) {
  drop_ngrams(at.prefix.first(at.prompt), at.prefix, to_size(settings.prompt_ngram), edits);
}

// An id that ends the stream is no bad word by itself.
void drop_bad_words(const DistributionSettings&, const BiasedIds& words,
                    const ProcessedPosition& at, EditList& edits) {
  for (const std::vector<std::int32_t>& word : words.ids) {
    if (word.size() == 1 && among(at.stops, word.front())) continue;
    if (ends_with(at.prefix, Ids(word).first(word.size() - 1))) edits.drop(word.back());
  }
}

void drop_stops(const ProcessedPosition& at, EditList& edits) {
  for (const std::int32_t id : at.stops) edits.drop(id);
}

void keep_length(const DistributionSettings& settings, const BiasedIds&,
                 const ProcessedPosition& at, EditList& edits) {
  const std::size_t standing = at.prompt + at.position;
  if (standing < to_size(settings.min_length)) drop_stops(at, edits);
}

void keep_new_tokens(const DistributionSettings& settings, const BiasedIds&,
                     const ProcessedPosition& at, EditList& edits) {
  if (at.position < to_size(settings.min_new_tokens)) drop_stops(at, edits);
}

void force_first(const DistributionSettings&, const BiasedIds& lists, const ProcessedPosition& at,
                 EditList& edits) {
  if (at.position < lists.ids.size()) edits.keep_only(lists.ids[at.position]);
}

void force_begin(const DistributionSettings& settings, const BiasedIds&,
                 const ProcessedPosition& at, EditList& edits) {
  const auto id = narrow<std::int32_t>(settings.forced_bos);
  if (at.prompt + at.position == 1) edits.keep_only({&id, 1});
}

void force_end(const DistributionSettings&, const BiasedIds& lists, const ProcessedPosition& at,
               EditList& edits) {
  if (at.position + 1 != at.length) return;
  edits.keep_only({});
  for (const std::vector<std::int32_t>& one : lists.ids) edits.keep(one.front());
}

// From a length on an end is the likelier, or less likely, the longer the text. What would leave
// the range of a float is bounded far above every logit.
void favour_end(const DistributionSettings& settings, const BiasedIds&, const ProcessedPosition& at,
                EditList& edits) {
  constexpr double kMaxGrowth = 1e6;
  const std::size_t start = to_size(settings.length_decay_start);
  if (at.position <= start) return;
  const double growth = std::pow(settings.length_decay, to_double(at.position - start)) - 1;
  for (const std::int32_t id : at.stops) {
    if (LogitEdit* const edit = edits.at(id)) edit->growth = std::min(growth, kMaxGrowth);
  }
}

void suppress(const DistributionSettings&, const BiasedIds& lists, const ProcessedPosition&,
              EditList& edits) {
  drop_all(lists, edits);
}

// A forced first token is followed by the one that counts as first.
void suppress_first(const DistributionSettings& settings, const BiasedIds& lists,
                    const ProcessedPosition& at, EditList& edits) {
  const bool forced = settings.forced_bos >= 0 && at.prompt <= 1;
  if (at.position == (forced ? 1 : 0)) drop_all(lists, edits);
}

constexpr bool kReadsPrompt = true, kReadsText = false;

// The order of GenerationMixin._get_logits_processor; penalties that it lacks follow the one that
// is like them.
// clang-format off
constexpr LogitProcessor kProcessors[] = {
    {"sequence_bias", &setting::kSequenceBias, kReadsPrompt, bias_sequences},
    {"encoder_repetition_penalty", &setting::kPromptPenalty, kReadsPrompt, favour_prompt},
    {"repetition_penalty", &setting::kRepetitionPenalty, kReadsPrompt, penalise_repetition},
    {"", &setting::kFrequencyPenalty, kReadsText, penalise_frequency},
    {"", &setting::kPresencePenalty, kReadsText, penalise_presence},
    {"no_repeat_ngram_size", &setting::kNoRepeatNgram, kReadsPrompt, drop_own_ngrams},
    {"encoder_no_repeat_ngram_size", &setting::kPromptNgram, kReadsPrompt, drop_prompt_ngrams},
    {"bad_words_ids", &setting::kBadWords, kReadsPrompt, drop_bad_words},
    {"min_length", &setting::kMinLength, kReadsPrompt, keep_length},
    {"min_new_tokens", &setting::kMinNewTokens, kReadsText, keep_new_tokens},
    {"", &setting::kForcedTokens, kReadsText, force_first},
    {"forced_bos_token_id", &setting::kForcedBos, kReadsPrompt, force_begin},
    {"forced_eos_token_id", &setting::kForcedEos, kReadsText, force_end},
    {"exponential_decay_length_penalty", &setting::kLengthDecay, kReadsText, favour_end},
    {"suppress_tokens", &setting::kSuppressTokens, kReadsText, suppress},
    {"begin_suppress_tokens", &setting::kBeginSuppress, kReadsPrompt, suppress_first},
};
// clang-format on

SettingValue value_in(const DistributionSettings& settings, const Setting& row) {
  for (const BoundSetting<DistributionSettings>& bound : DistributionSettings::rows()) {
    if (bound.row == &row) return value_of(settings, bound);
  }
  expects(false, "the setting of a processor is one of the distribution's");
  return {};
}

// In the order in which the reference adds them up: single ids, then by length, the lengths in the
// order of their first sequences.
BiasedIds in_order_of_sums(const BiasedIds& lists) {
  std::vector<std::size_t> lengths = {1};
  for (const std::vector<std::int32_t>& ids : lists.ids) {
    if (std::ranges::find(lengths, ids.size()) == lengths.end()) lengths.push_back(ids.size());
  }
  BiasedIds out;
  for (const std::size_t length : lengths) {
    for (std::size_t i = 0; i < lists.ids.size(); ++i) {
      if (lists.ids[i].size() != length) continue;
      out.ids.push_back(lists.ids[i]);
      out.biases.push_back(lists.biases[i]);
    }
  }
  return out;
}

// Only of lists.
BiasedIds lists_in(const Setting& row, const SettingValue& value) {
  BiasedIds out;
  if (row.kind == SettingKind::kIds) {
    const std::optional<IdLists> ids = parse_ids(row, value.text);
    expects(ids.has_value(), "lists of ids that were checked");
    out.ids = *ids;
  }
  if (row.kind == SettingKind::kBiases) {
    const std::optional<BiasedIds> lists = parse_biases(row, value.text);
    expects(lists.has_value(), "biases that were checked");
    out = in_order_of_sums(*lists);
  }
  return out;
}

}  // namespace

void EditList::reserve(std::size_t codes, std::size_t capacity) {
  place_.assign(codes, -1);
  edits_.reserve(std::min(codes, capacity));
}

void EditList::begin() {
  for (const LogitEdit& edit : edits_) nth(place_, edit.id) = -1;
  edits_.clear();
  dropped_ = 0;
  only_ = false;
}

LogitEdit* EditList::at(std::int32_t id) {
  if (id < 0 || to_size(id) >= place_.size() || (only_ && nth(place_, id) < 0)) return nullptr;
  return made(id);
}

LogitEdit* EditList::made(std::int32_t id) {
  std::int32_t& place = nth(place_, id);
  if (place < 0) {
    place = narrow<std::int32_t>(edits_.size());
    edits_.push_back({.id = id});
  }
  return &nth(edits_, place);
}

void EditList::drop(std::int32_t id) {
  LogitEdit* const edit = at(id);
  if (edit == nullptr) return;
  dropped_ += edit->kind == EditKind::kDrop ? 0 : 1;
  edit->kind = EditKind::kDrop;
}

void EditList::keep_only(std::span<const std::int32_t> ids) {
  begin();
  only_ = true;
  for (const std::int32_t id : ids) keep(id);
}

void EditList::keep(std::int32_t id) {
  if (id >= 0 && to_size(id) < place_.size()) made(id)->kind = EditKind::kZero;
}

RowEdits EditList::finish() {
  const std::size_t all = only_ ? edits_.size() : place_.size();
  if (dropped_ < all) return {edits_, only_};
  for (LogitEdit& edit : edits_) {
    if (edit.kind == EditKind::kDrop) edit.kind = only_ ? EditKind::kZero : EditKind::kChange;
  }
  return {edits_, only_ && !edits_.empty()};
}

std::span<const LogitProcessor> logit_processors() { return kProcessors; }

void check_processors(const DistributionSettings& settings, std::int64_t codes) {
  for (const LogitProcessor& processor : logit_processors()) {
    const Setting& row = *processor.setting;
    const SettingValue value = value_in(settings, row);
    for (const std::vector<std::int32_t>& ids : lists_in(row, value).ids) {
      for (const std::int32_t id : ids) {
        if (id < codes) continue;
        throw Error({.kind = ErrorKind::kUsage,
                     .code = "E_TOKEN_ID",
                     .where = "--" + std::string(row.name),
                     .expected = "ids below the model's " + std::to_string(codes),
                     .found = std::to_string(id)});
      }
    }
  }
}

LogitProcessors::LogitProcessors(const DistributionSettings& settings,
                                 const VocabularyGrammar& grammar)
    : settings_(settings), codes_(grammar.codes), length_(grammar.length()) {
  for (const LogitProcessor& processor : logit_processors()) {
    const SettingValue value = value_in(settings, *processor.setting);
    if (value == fallback_of(*processor.setting)) continue;
    active_.push_back({&processor, lists_in(*processor.setting, value)});
    for (const std::vector<std::int32_t>& ids : active_.back().lists.ids) listed_ += ids.size();
  }
  if (on()) reserve(0);
}

// Stops are few.
void LogitProcessors::reserve(std::size_t prompt) {
  constexpr std::size_t kMaxStops = 64;
  prefix_.reserve(prompt + length_);
  edits_.reserve(codes_, prompt + length_ + listed_ + kMaxStops);
}

void LogitProcessors::begin(std::span<const std::int32_t> prompt) {
  const bool read = std::any_of(active_.begin(), active_.end(),
                                [](const Active& one) { return one.processor->reads_prompt; });
  if (!read) return;
  prompt_ = prompt.size();
  prefix_.assign(prompt.begin(), prompt.end());
  reserve(prompt_);
}

std::vector<std::int32_t>& LogitProcessors::prefix() {
  prefix_.resize(prompt_);
  return prefix_;
}

RowEdits LogitProcessors::edit(std::size_t position, std::span<const std::int32_t> stops) {
  const ProcessedPosition at{prefix_, prompt_, position, length_, stops};
  edits_.begin();
  for (const Active& one : active_) one.processor->apply(settings_, one.lists, at, edits_);
  return edits_.finish();
}

}  // namespace tessera
