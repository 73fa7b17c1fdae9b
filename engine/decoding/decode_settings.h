// The settings of decoding as tables: rows that every method has; those of parts stand in their own
// files. What was given becomes a method here, a method becomes a record, and back.
#pragma once

#include <string>

#include "engine/decoding/decode_method.h"

namespace tessera {

// Of `--drafter`: what the table makes, and a draft model.
std::span<const std::string_view> drafter_choices();
std::span<const std::string_view> tree_choices();  // kNoTree and the trees
std::span<const std::string_view> cache_choices();

namespace setting {

inline constexpr Doors kWhereNamed =
    Door::kGenerate | Door::kVideo | Door::kBatch | Door::kEval | Door::kViewer | Door::kRecord;

// Parts by name have no control in the viewer, which shows what they read.
inline constexpr Doors kWhereChosen = Door::kGenerate | Door::kVideo | Door::kBatch | Door::kEval |
                                      Door::kBench | Door::kRecord;

inline constexpr Setting kDecode{.name = "decode",
                                 .kind = SettingKind::kName,
                                 .help = "how tokens are found",
                                 .text_fallback = "plain",
                                 .choices = method_names,
                                 .doors = kWhereNamed,
                                 .record = "decode",
                                 .word = "method"};
inline constexpr Setting kAccept{.name = "accept",
                                 .kind = SettingKind::kName,
                                 .help = "the rule that accepts drafts",
                                 .otherwise = "the method's",
                                 .choices = rule_names,
                                 .doors = kWhereChosen,
                                 .record = "accept",
                                 .word = "rule"};
inline constexpr Setting kWindow{.name = "window",
                                 .kind = SettingKind::kInteger,
                                 .help = "rows of a pass: the last committed token, and the drafts",
                                 .low = 1,
                                 .high = 1 << 20,
                                 .unit = "rows",
                                 .otherwise = "the method's",
                                 .doors = kWhereNamed,
                                 .record = "window",
                                 .step = 1};
inline constexpr Setting kDrafter{.name = "drafter",
                                  .kind = SettingKind::kName,
                                  .help = "who drafts tokens",
                                  .otherwise = "the method's",
                                  .choices = drafter_choices,
                                  .doors = kWhereChosen,
                                  .record = "drafter"};
inline constexpr Setting kRedraft{.name = "redraft",
                                  .kind = SettingKind::kName,
                                  .help = "what becomes of drafts after a rejected one",
                                  .otherwise = "the method's",
                                  .choices = redraft_names,
                                  .doors = kWhereChosen,
                                  .record = "tail",
                                  .alias = "tail"};
inline constexpr Setting kModelDraft{
    .name = "model-draft",
    .kind = SettingKind::kText,
    .help = "draft model, of one image tokenizer with the model; drafter \"model\"",
    .otherwise = "none",
    .doors = kWhereChosen,
    .record = "draft_model",
    .word = "draft model"};
inline constexpr Setting kTree{.name = "tree",
                               .kind = SettingKind::kName,
                               .help = "drafts branch, several a position",
                               .otherwise = "the method's",
                               .choices = tree_choices,
                               .doors = kWhereChosen,
                               .record = "tree.kind"};
inline constexpr Setting kRowLead{
    .name = "row-lead",
    .kind = SettingKind::kInteger,
    .help = "grid rows side by side: codes by which a row leads the next one; 0 = off",
    .low = 0,
    .high = 1 << 20,
    .limit = ModelLimit::kRowTokens,
    .unit = "codes",
    .fallback = 0,
    .doors = kWhereChosen,
    .record = "row_lead",
    .step = 1};
inline constexpr Setting kRowWindow{
    .name = "row-window",
    .kind = SettingKind::kInteger,
    .help = "of rows side by side: a row's newest code and its drafts in one pass",
    .low = 1,
    .high = 1 << 20,
    .limit = ModelLimit::kRowTokens,
    .unit = "codes",
    .fallback = 1,
    .doors = kWhereChosen,
    .record = "row_window",
    .step = 1};
inline constexpr Setting kTvBudget{
    .name = "tv-budget",
    .help = "most total variation of an image's distribution from the target's; 0 = no bound",
    .low = 0,
    .high = 1e6,
    .fallback = 0,
    .doors = kWhereChosen,
    .record = "tv_budget",
    .step = 0.1};
// Of every loop, texts too.
inline constexpr Setting kCache{
    .name = "kv",
    .kind = SettingKind::kChoice,
    .help = "how keys and values are cached; q8: 8 bits each, about half of bf16",
    .text_fallback = "auto",
    .choices = cache_choices,
    .doors = kWhereNamed | Door::kCaption,
    .record = "kv",
    .word = "cache"};

// Of texts.
inline constexpr Setting kTextDecode{
    .name = "decode",
    .kind = SettingKind::kChoice,
    .help = "who drafts, with --model-draft that model; the text is plain's",
    .text_fallback = "auto",
    .choices = text_method_names,
    .doors = Door::kCaption,
    .changes_bytes = false};
inline constexpr Setting kTextWindow{.name = "window",
                                     .kind = SettingKind::kInteger,
                                     .help = "rows of a text in one pass",
                                     .low = 1,
                                     .high = 128,
                                     .unit = "rows",
                                     .otherwise = "the method's",
                                     .doors = Door::kCaption,
                                     .changes_bytes = false};

}  // namespace setting

// "Decoding", then those of parts.
std::span<const SettingGroup> decode_groups();
const SettingGroup& text_decode_group();

// What was given, and `fallback` where `decode` is not. Error kUsage for names that do not exist
// and for what the method does not read though its row says that it must.
DecodeMethod method_of(const SettingValues& given, const DecodeMethod& fallback = {});
// The other way: values that method_of() makes the method of.
SettingValues values_of(const DecodeMethod& method);

// What a record says of a method: first its name and its rule's, further on the rest.
// `draft_model` empty = none.
void write_method_names(Json& record, const DecodeMethod& method);
void write_method(Json& record, const DecodeMethod& method, const std::string& draft_model);
// Keys that a record may have at its top.
std::vector<std::string_view> method_record_keys();
// Names are checked when the method is used: a record of another version may know more of them.
DecodeMethod read_method(const JsonReader& reader);
// For reports, by the records' keys: names of method and parts, window, guarantee.
Json method_report(const DecodeMethod& method);

}  // namespace tessera
