// Every setting of every table through all of its doors: flag, method, record in a PNG, back,
// viewer, record, job field, flag. A value is the same after each door, or it is refused at each,
// with the same range.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/jobs/job_fields.h"
#include "apps/cli/decode_flags.h"
#include "apps/cli/sampling_flags.h"
#include "apps/cli/setting_flags.h"
#include "apps/runtime/metadata.h"
#include "apps/runtime/output_settings.h"
#include "apps/runtime/setting_groups.h"
#include "apps/studio/settings.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_folder.h"

namespace tessera::walk_test {
namespace {

using Words = std::vector<std::string>;

std::string flag_of(const Setting& row) { return "--" + std::string(row.name); }

// All flags of the tables that `generate` and `video` have; or the flag of one row alone.
struct Flags {
  SettingValues sampling, decode, others;

  // Error as the program throws it.
  explicit Flags(const Words& words, const Setting* alone = nullptr) {
    CLI::App app;
    if (alone != nullptr) {
      setting_flag(app, *alone, others);
      parse(app, words);
      return;
    }
    add_sampling_flags(app, Door::kGenerate, sampling);
    add_decode_flags(app, Door::kGenerate, decode);
    for (const SettingGroup& group : output_groups()) {
      for (const Setting* row : group.rows) {
        if (!row->doors.has(Door::kField) || row->kind != SettingKind::kChoice) {
          setting_flag(app, *row, others);
        }
      }
    }
    parse(app, words);
  }
  static void parse(CLI::App& app, const Words& words) {
    app.parse(Words(words.rbegin(), words.rend()));
  }
  const SettingValue* find(const Setting& row) const {
    for (const SettingValues* values : {&sampling, &decode, &others}) {
      if (const SettingValue* value = values->find(row)) return value;
    }
    return nullptr;
  }
};

ErrorInfo error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.info();
  }
  return {};
}

ImageFacts facts_with(const DistributionSettings& dist, const DecodeMethod& method) {
  ImageFacts facts;
  facts.program = "tessera 0";
  facts.prompt = "p";
  facts.model = "m";
  facts.family = "f";
  facts.dtype = "f32";
  facts.backend = "b";
  facts.width = facts.height = 64;
  facts.dist = dist;
  facts.method = method;
  if (needs_of(method).draft_model) facts.draft_model = "small";
  facts.tokens = facts.passes = 16;
  return facts;
}

// What an image of these facts says when its file is read.
ImageFacts through_file(const ImageFacts& facts, const TempFolder& folder) {
  const auto path = folder.path() / "a.png";
  const ImageTexts texts = image_texts(facts, RecordFacts::kAll);
  put_file(path, encode_png(Image(1, 1), texts.texts, texts.xmp));
  const ImageMetadata read = read_metadata(path);
  EXPECT_TRUE(read.warnings.empty()) << (read.warnings.empty() ? "" : read.warnings.front());
  return read.facts.value();
}

// What the viewer would record of its own settings.
ImageFacts generated_again(const ImageFacts& facts) {
  const GenerateSettings settings = settings_of(facts);
  ImageFacts out = facts;
  out.dist = settle_dist({}, settings.sampling);
  out.method = settings.method;
  out.draft_model = settings.draft_model;
  out.width = settings.width;
  out.height = settings.height;
  return out;
}

// Flags next to which a row of the group is read.
Words base_of(const SettingGroup& group, const Setting& row) {
  if (&row == &setting::kDecode) return {};
  if (&row == &setting::kRowLead) return {"--decode", "rows"};
  if (&row == &setting::kRowWindow) return {"--decode", "pjd"};
  if (group.chosen_by == &setting::kTree) return {"--decode", "tree"};
  if (group.chosen_by != nullptr) {
    return {"--decode", "coupled", flag_of(*group.chosen_by), std::string(group.of)};
  }
  return {"--decode", "coupled"};
}

// Text of values that a row takes: its own, the ends, one between.
std::vector<SettingValue> values_for(const Setting& row) {
  std::vector<SettingValue> out;
  if (row.choices != nullptr) {
    for (const std::string_view choice : row.choices()) out.push_back({0, std::string(choice)});
    return out;
  }
  if (row.kind == SettingKind::kText) return {{0, "a text"}};
  if (row.kind == SettingKind::kIds) {
    return {{0, "0"}, {0, row.high == 1 ? "7,1073741823" : "5,6 7,3"}};
  }
  if (row.kind == SettingKind::kBiases) return {{0, "0:1"}, {0, "5:-2.5,6 7:0.001"}};
  if (row.kind == SettingKind::kSwitch) return {{1}};
  const double middle = row.low + (row.high - row.low) / 3;
  out = {{row.low}, {row.high}, {row.kind == SettingKind::kInteger ? std::floor(middle) : middle}};
  if (row.fallback) out.push_back({*row.fallback});
  if (row.zero_is_off) out.push_back({0});
  return out;
}

// Just outside.
std::vector<double> strangers_for(const Setting& row) {
  if (row.kind == SettingKind::kInteger) return {row.low - 1, row.high + 1};
  const double below = row.low == 0 ? -1e-9 : std::nextafter(row.low, -1e9);
  return {below, std::nextafter(row.high, 1e9), row.zero_is_off ? row.low / 2 : below};
}

std::string number_text(const Setting& row, double value) {
  return setting_text(row, SettingValue{value});
}

struct Walk {
  const SettingGroup& group;
  const Setting& row;
  const TempFolder& folder;
  std::string what(const SettingValue& value) const {
    return std::string(group.title) + ", " + std::string(row.name) + " = " +
           setting_text(row, value);
  }

  Words words(const SettingValue& value) const {
    Words out = base_of(group, row);
    out.push_back(flag_of(row));
    if (row.kind != SettingKind::kSwitch) out.push_back(setting_text(row, value));
    return out;
  }

  void flag_to_record_and_back(const SettingValue& value) {
    const bool flagged = row.doors.has(Door::kGenerate);
    const Flags flags(flagged ? words(value) : base_of(group, row));
    if (flagged) {
      ASSERT_NE(flags.find(row), nullptr) << what(value);
      EXPECT_EQ(*flags.find(row), value) << what(value);
    }
    DecodeMethod method = method_of(flags.decode);
    if (!flagged) method.set(row, value);
    ImageFacts facts = facts_with(settle_dist({}, flags.sampling), method);
    for (const auto& bound : ImageFacts::rows()) {
      if (bound.row == &row) assign(facts, bound, value);
    }
    const ImageFacts read = through_file(facts, folder);
    EXPECT_EQ(facts_json(read), facts_json(facts)) << what(value);
    EXPECT_EQ(read.method, facts.method) << what(value);
    EXPECT_EQ(values_of(read.dist), values_of(facts.dist)) << what(value);
    const ImageFacts again = generated_again(read);
    EXPECT_EQ(facts_json(again), facts_json(facts)) << what(value);
    EXPECT_EQ(method_of(values_of(again.method)), method) << what(value);
    // The value itself is in the record.
    const auto [place, key] = record_place(row);
    const Json json = facts_json(facts);
    const Json& object = place.empty() ? json : json.value(std::string(place), Json::object());
    const SettingValue found =
        row.is_text() ? SettingValue{0, object.value(std::string(key), "")} : SettingValue{};
    if (row.is_text() && !found.text.empty() && &row != &setting::kModelDraft) {
      EXPECT_EQ(found, value) << what(value);
    }
    if (!row.is_text() && value != fallback_of(row)) {
      ASSERT_TRUE(object.contains(std::string(key))) << what(value);
      EXPECT_EQ(object.at(std::string(key)), setting_json(row, value)) << what(value);
    }
  }

  JobList job(const std::string& value) const {
    const bool video = find_job_field(row.name)->of_videos;
    MemorySource source("{\"prompt\":\"p\",\"" + std::string(row.name) + "\":" + value +
                        (video ? ",\"kind\":\"video\"}" : "}"));
    return read_job(source, "job.jsonl", JobForm::kJsonLines);
  }

  void field_and_back(const SettingValue& value) {
    const JobList list = job(setting_json(row, value).dump());
    ASSERT_TRUE(list.errors.empty()) << format_error(list.errors.front());
    const JobField& field = *find_job_field(row.name);
    const JobItem& item = list.items.at(0);
    EXPECT_EQ(job_field_json(item, field), setting_json(row, value)) << what(value);
    MemorySource line(job_line(item));
    EXPECT_TRUE(read_job(line, "j", JobForm::kJsonLines).items.at(0) == item) << what(value);
    // And from the field to the flag.
    const Json json = job_field_json(item, field);
    const std::string text = json.is_string() ? json.get<std::string>() : json.dump();
    const Flags flags(row.kind == SettingKind::kChoice ? Words{} : Words{flag_of(row), text});
    if (row.kind != SettingKind::kChoice) {
      ASSERT_NE(flags.find(row), nullptr);
      EXPECT_EQ(*flags.find(row), value) << what(value);
    }
  }

  void refuses(double stranger) {
    const std::string text = number_text(row, stranger);
    const std::string about = std::string(row.name) + " = " + text;
    const bool texts = !row.doors.has(Door::kGenerate) && row.doors.has(Door::kCaption);
    Words given = texts ? Words{} : base_of(group, row);
    given.insert(given.end(), {flag_of(row), text});
    if (texts || row.doors.has(Door::kGenerate) || row.doors.has(Door::kVideo)) {
      const ErrorInfo info = error_of([&] { Flags(given, texts ? &row : nullptr); });
      EXPECT_EQ(info.code, "E_FLAG_VALUE") << about;
      EXPECT_EQ(info.where, flag_of(row)) << about;
      EXPECT_EQ(info.expected, expected_of(row)) << about;
    }
    if (row.doors.has(Door::kField)) {
      const JobList list = job(text);
      ASSERT_FALSE(list.errors.empty()) << about;
      EXPECT_EQ(list.errors.front().code, "E_JOB_FIELD");
      EXPECT_EQ(list.errors.front().expected, std::string(row.name) + " as " + expected_of(row));
    }
    if (row.doors.has(Door::kRecord)) refuses_record(stranger, about);
    // The viewer's controls stay within, and a method that was made in another way is refused.
    EXPECT_TRUE(in_range(row, clamped(row, stranger))) << about;
    if (group.chosen_by != nullptr || &row == &setting::kTvBudget) {
      DecodeMethod method = settle_method(decode_method("coupled"), {}, 64);
      method.set(row, stranger);
      DecodeAids aids;
      aids.grammar = VocabularyGrammar::line(1024, 64);
      const ErrorInfo info = error_of([&] { check_method(method, aids, 64); });
      EXPECT_EQ(info.code, "E_DECODE_RANGE") << about;
      EXPECT_EQ(info.where, flag_of(row)) << about;
    }
  }

  void refuses_record(double stranger, const std::string& about) {
    const Flags flags(base_of(group, row));
    Json json = facts_json(facts_with({}, method_of(flags.decode)));
    write_setting(json, row, SettingValue{stranger});
    const ErrorInfo info =
        error_of([&] { parse_facts(json.dump(), "a.png", ErrorKind::kGeneral); });
    EXPECT_NE(info.where.find(record_place(row).second), std::string::npos)
        << about << ": " << format_error(info);
  }
};

TEST(SettingsWalk, EveryValueIsTheSameAfterEveryDoor) {
  int recorded = 0, fields = 0, texts = 0, refused = 0;
  const TempFolder folder;
  for (const SettingGroup& group : setting_groups()) {
    for (const Setting* row : group.rows) {
      Walk walk{group, *row, folder};
      for (const SettingValue& value : values_for(*row)) {
        if (!row->doors.has(Door::kGenerate) && row->doors.has(Door::kCaption)) {
          const Flags flags({flag_of(*row), setting_text(*row, value)}, row);
          EXPECT_EQ(*flags.find(*row), value) << walk.what(value);
          ++texts;
        }
        if (row->doors.has(Door::kRecord)) {
          walk.flag_to_record_and_back(value);
          ++recorded;
        }
        if (row->doors.has(Door::kField)) {
          walk.field_and_back(value);
          ++fields;
        }
      }
      if (row->is_text() || row->kind == SettingKind::kSwitch) continue;
      for (const double stranger : strangers_for(*row)) {
        walk.refuses(stranger);
        ++refused;
      }
    }
  }
  EXPECT_GT(recorded, 100);
  EXPECT_GT(fields, 25);
  EXPECT_GT(texts, 20);
  EXPECT_GT(refused, 60);
}

// Lists of ids are read whole or not at all, wherever they come from.
TEST(SettingsWalk, ListsThatAreNoneAreRefusedAtEveryDoor) {
  int refused = 0;
  for (const Setting* row : sampling_group().rows) {
    if (row->kind != SettingKind::kIds && row->kind != SettingKind::kBiases) continue;
    for (const std::string text : {"5,", "a", "1073741824", "-1", "1.5"}) {
      const ErrorInfo flag = error_of([&] { Flags({flag_of(*row), text}, row); });
      EXPECT_EQ(flag.code, "E_FLAG_VALUE") << row->name << ' ' << text;
      EXPECT_EQ(flag.expected, expected_of(*row));
      if (row->doors.has(Door::kField)) {
        MemorySource source("{\"prompt\":\"p\",\"" + std::string(row->name) + "\":\"" + text + "\"}");
        const JobList list = read_job(source, "job.jsonl", JobForm::kJsonLines);
        ASSERT_FALSE(list.errors.empty()) << row->name << ' ' << text;
        EXPECT_EQ(list.errors.front().expected, std::string(row->name) + " as " + expected_of(*row));
      }
      if (row->doors.has(Door::kRecord)) {
        Json json = facts_json(facts_with({}, {}));
        json[std::string(row->record)] = text;
        const ErrorInfo info =
            error_of([&] { parse_facts(json.dump(), "a.png", ErrorKind::kGeneral); });
        EXPECT_NE(info.where.find(row->record), std::string::npos) << format_error(info);
      }
      ++refused;
    }
  }
  EXPECT_EQ(refused, 30);
}

// What older records lack stands in new ones only where it changes something.
TEST(SettingsWalk, RecordsWithoutProcessorsAreAsTheyWere) {
  const Json json = facts_json(facts_with({}, {}));
  for (const Setting* row : sampling_group().rows) {
    EXPECT_FALSE(row->late && json.contains(std::string(row->record))) << row->name;
  }
  EXPECT_EQ(values_of(parse_facts(json.dump(), "a.png", ErrorKind::kGeneral).dist),
            values_of(DistributionSettings{}));
}

// The viewer generated with it when flags and records did not take it.
TEST(SettingsWalk, GuidanceBelowOneIsTakenEverywhere) {
  for (const char* value : {"0", "0.5", "1", "100"}) {
    const Flags flags({"--cfg-scale", value});
    EXPECT_EQ(flags.sampling.number(setting::kGuidance), std::stod(value));
    Json json = facts_json(facts_with({}, {}));
    json[std::string(setting::kGuidance.record)] = std::stod(value);
    const ImageFacts read = parse_facts(json.dump(), "a.png", ErrorKind::kUsage);
    EXPECT_EQ(settings_of(read).sampling.number(setting::kGuidance), std::stod(value));
    MemorySource job("{\"prompt\":\"p\",\"cfg_scale\":" + std::string(value) + "}");
    EXPECT_TRUE(read_job(job, "j", JobForm::kJsonLines).errors.empty());
    EXPECT_EQ(clamped(setting::kGuidance, std::stod(value)), std::stod(value));
  }
}

TEST(SettingsWalk, HiddenSpellingsOfFlagsStayValid) {
  int aliases = 0;
  for (const SettingGroup& group : setting_groups()) {
    for (const Setting* row : group.rows) {
      if (row->alias.empty()) continue;
      ++aliases;
      const std::string value(row->choices().back());
      const Flags flags({"--" + std::string(row->alias), value});
      EXPECT_EQ(flags.decode.text(*row), value);
    }
  }
  EXPECT_GT(aliases, 0);
  CLI::App app;
  hide_aliases(app);
  SettingValues values;
  add_decode_flags(app, Door::kGenerate, values);
  EXPECT_NE(app.help().find("--redraft"), std::string::npos);
  EXPECT_EQ(app.help().find("--tail"), std::string::npos);
}

// A flag that a method does not read is a mistake where its row says so.
TEST(SettingsWalk, FlagsThatWouldChangeNothingAreRefused) {
  int refused = 0;
  for (const SettingGroup& group : part_groups()) {
    for (const Setting* row : group.rows) {
      if (!row->refused_unused) continue;
      SettingValues given;
      given.set(setting::kDecode, std::string("gumbel"));
      given.set(*row, 1);
      const ErrorInfo info = error_of([&] { method_of(given); });
      EXPECT_EQ(info.code, "E_DECODE_CONFLICT") << row->name;
      EXPECT_EQ(info.where, flag_of(*row));
      ++refused;
    }
  }
  EXPECT_EQ(refused, 3);
}

}  // namespace
}  // namespace tessera::walk_test
