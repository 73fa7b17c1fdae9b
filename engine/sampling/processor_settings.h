// The settings of logits processors (processors.h), one row each, in the order in which they are
// applied. Their own values leave every row as it is.
#pragma once

#include "engine/core/setting.h"

namespace tessera::setting {

// Of all that is written; token lists are those of the token space: text ids, or image codes.
inline constexpr Doors kWhereProcessed = Door::kGenerate | Door::kVideo | Door::kBatch |
                                         Door::kEval | Door::kField | Door::kRecord |
                                         Door::kCaption;
inline constexpr double kMaxTokenId = (1 << 30) - 1;

inline constexpr Setting kSequenceBias{
    .name = "sequence-bias",
    .kind = SettingKind::kBiases,
    .help = "on the logit of what ends a sequence: \"5:2,6 7:-1\"",
    .high = 64,
    .otherwise = "none",
    .doors = kWhereProcessed,
    .record = "sequence_bias",
    .late = true};
inline constexpr Setting kPromptPenalty{
    .name = "prompt-repetition-penalty",
    .help = "ids of the prompt: above 1 likelier, below 1 less likely",
    .low = 0.01,
    .high = 100,
    .fallback = 1,
    .doors = Door::kCaption};
inline constexpr Setting kRepetitionPenalty{
    .name = "repetition-penalty",
    .help = "ids that were there, in the prompt too: above 1 less likely",
    .low = 0.01,
    .high = 100,
    .fallback = 1,
    .doors = kWhereProcessed,
    .record = "repetition_penalty",
    .late = true};
inline constexpr Setting kFrequencyPenalty{.name = "frequency-penalty",
                                           .help = "off an id's logit, each time it was written",
                                           .low = -100,
                                           .high = 100,
                                           .fallback = 0,
                                           .doors = kWhereProcessed,
                                           .record = "frequency_penalty",
                                           .late = true};
inline constexpr Setting kPresencePenalty{.name = "presence-penalty",
                                          .help = "off an id's logit, once it was written",
                                          .low = -100,
                                          .high = 100,
                                          .fallback = 0,
                                          .doors = kWhereProcessed,
                                          .record = "presence_penalty",
                                          .late = true};
inline constexpr Setting kNoRepeatNgram{.name = "no-repeat-ngram",
                                        .kind = SettingKind::kInteger,
                                        .help = "no run of so many tokens comes twice; 0 = off",
                                        .low = 0,
                                        .high = 64,
                                        .unit = "tokens",
                                        .fallback = 0,
                                        .doors = kWhereProcessed,
                                        .record = "no_repeat_ngram",
                                        .late = true};
inline constexpr Setting kPromptNgram{.name = "prompt-no-repeat-ngram",
                                      .kind = SettingKind::kInteger,
                                      .help = "no run of so many tokens of the prompt; 0 = off",
                                      .low = 0,
                                      .high = 64,
                                      .unit = "tokens",
                                      .fallback = 0,
                                      .doors = Door::kCaption};
inline constexpr Setting kBadWords{.name = "bad-words",
                                   .kind = SettingKind::kIds,
                                   .help = "sequences that are not written: \"5,6 7\"",
                                   .high = 64,
                                   .otherwise = "none",
                                   .doors = kWhereProcessed,
                                   .record = "bad_words",
                                   .late = true};
inline constexpr Setting kMinLength{.name = "min-length",
                                    .kind = SettingKind::kInteger,
                                    .help = "no end before so many tokens, the prompt's included",
                                    .low = 0,
                                    .high = 1 << 24,
                                    .unit = "tokens",
                                    .fallback = 0,
                                    .doors = Door::kCaption};
inline constexpr Setting kMinNewTokens{.name = "min-new-tokens",
                                       .kind = SettingKind::kInteger,
                                       .help = "no end before so many tokens of text",
                                       .low = 0,
                                       .high = 4096,
                                       .unit = "tokens",
                                       .fallback = 0,
                                       .doors = Door::kCaption};
inline constexpr Setting kForcedTokens{.name = "forced-tokens",
                                       .kind = SettingKind::kIds,
                                       .help = "the first tokens: \"5,6,7\"",
                                       .high = 1,
                                       .otherwise = "none",
                                       .doors = kWhereProcessed,
                                       .record = "forced_tokens",
                                       .late = true};
inline constexpr Setting kForcedBos{.name = "forced-bos",
                                    .kind = SettingKind::kInteger,
                                    .help = "the id after a prompt of one token; -1 = any",
                                    .low = -1,
                                    .high = kMaxTokenId,
                                    .fallback = -1,
                                    .doors = Door::kCaption};
inline constexpr Setting kForcedEos{.name = "forced-eos",
                                    .kind = SettingKind::kIds,
                                    .help = "what the last token of a text that is full may be",
                                    .high = 1,
                                    .otherwise = "any",
                                    .doors = Door::kCaption};
inline constexpr Setting kLengthDecayStart{.name = "length-decay-start",
                                           .kind = SettingKind::kInteger,
                                           .help = "tokens of text that --length-decay spares",
                                           .low = 0,
                                           .high = 1 << 20,
                                           .unit = "tokens",
                                           .fallback = 0,
                                           .doors = Door::kCaption};
inline constexpr Setting kLengthDecay{.name = "length-decay",
                                      .help = "each token more multiplies what favours an end",
                                      .low = 0,
                                      .high = 100,
                                      .fallback = 1,
                                      .doors = Door::kCaption};
inline constexpr Setting kSuppressTokens{.name = "suppress-tokens",
                                         .kind = SettingKind::kIds,
                                         .help = "ids that are never written: \"5,6\"",
                                         .high = 1,
                                         .otherwise = "none",
                                         .doors = kWhereProcessed,
                                         .record = "suppress_tokens",
                                         .late = true};
inline constexpr Setting kBeginSuppress{.name = "begin-suppress-tokens",
                                        .kind = SettingKind::kIds,
                                        .help = "ids that are not the first token",
                                        .high = 1,
                                        .otherwise = "none",
                                        .doors = kWhereProcessed,
                                        .record = "begin_suppress_tokens",
                                        .late = true};

}  // namespace tessera::setting
