// Reducers of the viewer's own state, and what keys and buttons post.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "apps/studio/viewer_options.h"
#include "apps/viewer/actions.h"
#include "apps/viewer/ui_state.h"
#include "engine/core/error.h"
#include "engine/decoding/decode_settings.h"
#include "engine/decoding/rules/grouped_rule.h"

namespace tessera::viewer_state_test {
namespace {

// Keeps what was posted.
struct Posted {
  std::vector<Command> commands;
  bool full = false;
  Poster poster() {
    return [this](Command command) {
      if (!full) commands.push_back(std::move(command));
      return !full;
    };
  }
  template <typename Kind>
  const Kind& last() const {
    return std::get<Kind>(commands.back());
  }
};

Generation generation(std::uint64_t number, GenerateState state) {
  Generation out;
  out.number = number;
  out.state = state;
  out.settings.prompt = "picture " + std::to_string(number);
  out.settings.seed = 100 + number;
  out.settings.method = decode_method("gsd");
  out.grid_rows = out.grid_columns = 4;
  if (state == GenerateState::kDone || state == GenerateState::kGeneration) {
    out.image = std::make_shared<const Image>(8, 8);
  }
  return out;
}

Snapshot snapshot_of(std::vector<Generation> generations) {
  Snapshot out;
  out.generations = std::move(generations);
  return out;
}

GenerateSettings unusual() {
  GenerateSettings out;
  out.model = "m";
  out.prompt = "p";
  out.negative_prompt = "n";
  out.sampling = values_of(DistributionSettings{.guidance = 1.5,
                                       .temperature = 0.5,
                                       .top_k = 7,
                                       .top_p = 0.9,
                                       .min_p = 0.1,
                                       .typical = 0.8});
  out.method = decode_method("gsd");
  out.method.set(setting::kGroupSize, 3);
  out.draft_model = "d";
  out.storage = DType::kBF16;
  out.seed = 99;
  out.width = 64;
  out.height = 32;
  return out;
}

TEST(UiState, OpensReadyToGenerate) {
  const UiState state = first_state("", std::nullopt);
  EXPECT_FALSE(state.settings.prompt.empty());
  EXPECT_TRUE(state.settings.model.empty()) << "empty stands for the bundled model";
  EXPECT_EQ(state.settings.method.name, "gumbel");
}

TEST(UiState, RecallTakesEveryField) {
  UiState state = first_state("", std::nullopt);
  state.seed_mode = SeedMode::kRandom;
  EXPECT_EQ(differing_fields(state.settings, unusual()).size(), 15u);
  Snapshot snapshot;
  snapshot.recalled = Recalled{1, "a.png", unusual(), {"a warning"}};
  follow_snapshot(state, snapshot);
  EXPECT_EQ(state.settings.prompt, first_state("", std::nullopt).settings.prompt)
      << "nobody asked for it";
  Posted posted;
  open_file("old.png", state, posted.poster());
  open_file("b.png", state, posted.poster());
  const std::uint64_t asked = posted.last<OpenCommand>().recall;
  for (const std::uint64_t request : {std::uint64_t{1}, asked + 1}) {
    snapshot.recalled->request = request;
    follow_snapshot(state, snapshot);
    EXPECT_NE(state.settings.prompt, "p") << "the answer to another question";
  }
  snapshot.recalled->request = asked;
  follow_snapshot(state, snapshot);
  EXPECT_TRUE(differing_fields(state.settings, unusual()).empty());
  EXPECT_EQ(state.seed_mode, SeedMode::kLocked);
  EXPECT_TRUE(state.negative_on);
  EXPECT_TRUE(state.edits_stale);
  EXPECT_EQ(state.recall_warnings, std::vector<std::string>{"a warning"});
  state.settings.prompt = "typed since";
  follow_snapshot(state, snapshot);
  EXPECT_EQ(state.settings.prompt, "typed since") << "only once";
}

// An image without a record, then one of the gallery that is only looked at.
TEST(UiState, ALateAnswerOverwritesNothing) {
  UiState state = first_state("", std::nullopt);
  const GenerateSettings mine = state.settings;
  Posted posted;
  open_file("foreign.jpg", state, posted.poster());
  Snapshot snapshot;
  snapshot.recalled = Recalled{posted.last<OpenCommand>().recall, "foreign.jpg", {}, {}};
  follow_snapshot(state, snapshot);
  EXPECT_EQ(state.notice, "foreign.jpg records no settings");
  show_file("ours.png", state, posted.poster());
  EXPECT_EQ(posted.last<OpenCommand>().recall, 0u);
  snapshot.recalled->settings = unusual();
  follow_snapshot(state, snapshot);
  EXPECT_TRUE(differing_fields(state.settings, mine).empty());
  // Turned away from before the answer came.
  open_file("slow.png", state, posted.poster());
  snapshot.recalled = Recalled{posted.last<OpenCommand>().recall, "slow.png", unusual(), {}};
  show_file("ours.png", state, posted.poster());
  follow_snapshot(state, snapshot);
  EXPECT_TRUE(differing_fields(state.settings, mine).empty());
}

// Several files dropped at once: the last one's settings, whatever comes with the same update.
TEST(UiState, TheLastOfSeveralDroppedFilesWins) {
  UiState state = first_state("", std::nullopt);
  Posted posted;
  Snapshot snapshot;
  for (const char* path : {"a.png", "b.png"}) open_file(path, state, posted.poster());
  for (const Command& command : posted.commands) {
    const auto& open = std::get<OpenCommand>(command);
    GenerateSettings recorded = unusual();
    recorded.prompt = open.path.string();
    snapshot.recalled = Recalled{open.recall, open.path, recorded, {}};
    follow_snapshot(state, snapshot);
  }
  EXPECT_EQ(state.settings.prompt, "b.png");
}

TEST(UiState, NamesOfFilesAreText) {
  EXPECT_EQ(name_of("a/\xc3\xa9.png"), "\xc3\xa9.png");
  EXPECT_EQ(name_of("a/b\xff\n.png"), "b\\xff\\u{000a}.png");
}

TEST(UiState, ImagesOfAServerAndTextsAreWork) {
  EXPECT_FALSE(at_work(snapshot_of({generation(1, GenerateState::kDone)})));
  Snapshot snapshot = snapshot_of({generation(1, GenerateState::kGeneration)});
  snapshot.generations[0].from = "http://127.0.0.1:9";
  EXPECT_NE(snapshot.running(), nullptr) << "Stop is for it";
  EXPECT_TRUE(at_work(snapshot));
  Snapshot described;
  described.captions = {{.path = "a", .state = CaptionState::kQueued}};
  EXPECT_FALSE(at_work(described));
  described.captions[0].state = CaptionState::kWriting;
  EXPECT_TRUE(at_work(described));
}

TEST(UiState, BothSidesOfAComparisonAreKept) {
  UiState state;
  EXPECT_EQ(compared(state), KeepCommand{});
  state.side_a = {0, "a.png"};
  state.side_b = {7, {}};
  EXPECT_EQ(compared(state), (KeepCommand{{7}, {"a.png"}}));
}

TEST(UiState, EachFieldIsCompared) {
  const GenerateSettings base = unusual();
  const auto differs = [&](auto change, const std::string& name) {
    GenerateSettings other = base;
    change(other);
    EXPECT_EQ(differing_fields(base, other), std::vector<std::string>{name});
  };
  differs([](auto& s) { s.model = "x"; }, "model");
  differs([](auto& s) { s.negative_prompt.reset(); }, "negative prompt");
  differs([](auto& s) { s.sampling.clear(setting::kGuidance); }, "guidance");
  differs([](auto& s) { s.sampling.set(setting::kMinP, 0.2); }, "min-p");
  differs([](auto& s) { s.sampling.set(setting::kTopK, 8); }, "top-k");
  differs([](auto& s) { s.method.set(setting::kGroupSize, 4); }, "method");
  differs([](auto& s) { s.method.set(setting::kTvBudget, 4); }, "method");
  differs([](auto& s) { s.storage = DType::kF32; }, "storage");
  differs([](auto& s) { s.seed = 0; }, "seed");
  differs([](auto& s) { s.height = 8; }, "height");
}

TEST(UiState, FollowsWhatIsGeneratedAndStepsThroughTheRest) {
  UiState state;
  const Snapshot snapshot =
      snapshot_of({generation(1, GenerateState::kDone), generation(2, GenerateState::kFailed),
                   generation(3, GenerateState::kDone), generation(4, GenerateState::kGeneration),
                   generation(5, GenerateState::kQueued)});
  EXPECT_EQ(shown_ref(state, snapshot).generation, 4u);
  step_shown(state, snapshot, -1);
  EXPECT_EQ(shown_ref(state, snapshot).generation, 3u);
  step_shown(state, snapshot, -1);
  EXPECT_EQ(shown_ref(state, snapshot).generation, 1u) << "a failed image has nothing to show";
  step_shown(state, snapshot, -1);
  EXPECT_EQ(shown_ref(state, snapshot).generation, 1u);
  step_shown(state, snapshot, 9);
  EXPECT_EQ(shown_ref(state, snapshot).generation, 4u);
  state.follow = true;
  state.shown = {1, {}};
  EXPECT_EQ(shown_ref(state, snapshot).generation, 4u);
  const Snapshot idle =
      snapshot_of({generation(1, GenerateState::kDone), generation(3, GenerateState::kDone)});
  EXPECT_EQ(shown_ref(state, idle).generation, 3u) << "the newest";
}

TEST(UiState, ANewPairOpensTheComparison) {
  UiState state;
  Snapshot snapshot = snapshot_of({generation(1, GenerateState::kDone), generation(2, GenerateState::kDone)});
  snapshot.compare_left = 1;
  snapshot.compare_right = 2;
  follow_snapshot(state, snapshot);
  EXPECT_EQ(state.mode, StageMode::kCompare);
  EXPECT_EQ(state.side_a.generation, 1u);
  EXPECT_EQ(state.side_b.generation, 2u);
  state.mode = StageMode::kImage;
  follow_snapshot(state, snapshot);
  EXPECT_EQ(state.mode, StageMode::kImage) << "only once";
  snapshot.generations.pop_back();
  follow_snapshot(state, snapshot);
  EXPECT_TRUE(state.side_b.empty()) << "gone from the list";
}

TEST(UiState, ExactAgainstGroupedDiffersInTheMethodAlone) {
  const CompareCommand pair = exact_against_grouped(unusual());
  EXPECT_EQ(differing_fields(pair.left, pair.right), std::vector<std::string>{"method"});
  EXPECT_NE(guarantee_of(pair.left.method), Guarantee::kNone);
  EXPECT_EQ(guarantee_of(pair.right.method), Guarantee::kNone);
  EXPECT_EQ(pair.left.seed, 99u);
}

TEST(UiState, LinesBreakAtSpacesAndComeBack) {
  const std::string text = "a large red shiny sphere and ünïcödé wörds überall";
  const Measure letters = [](std::string_view piece) {
    return static_cast<double>(std::count_if(piece.begin(), piece.end(), [](char byte) {
      return (static_cast<unsigned char>(byte) & 0xc0u) != 0x80u;
    }));
  };
  for (std::size_t columns = 1; columns < 60; ++columns) {
    const std::string broken = wrapped(text, static_cast<double>(columns), letters);
    ASSERT_EQ(broken.size(), text.size());
    EXPECT_EQ(joined(broken), text);
    std::size_t width = 0;
    bool one_word = true;
    for (const char byte : broken + "\n") {
      if (byte == '\n') {
        EXPECT_TRUE(width <= columns || one_word) << columns << ": " << broken;
        width = 0;
        one_word = true;
        continue;
      }
      if (byte == ' ') one_word = false;
      if ((static_cast<unsigned char>(byte) & 0xc0u) != 0x80u) ++width;
    }
  }
  EXPECT_EQ(wrapped("two\nlines of its own", 4, letters), "two\nlines of its own");
}

TEST(Actions, EveryKeyIsTakenOnce) {
  std::set<std::string_view> keys;
  for (const KeyRow& row : key_map()) {
    EXPECT_TRUE(keys.insert(row.key).second) << row.key;
    EXPECT_FALSE(row.does.empty());
    if (row.key.size() == 1) {
      EXPECT_EQ(row_of_character(static_cast<unsigned char>(row.key[0])), &row);
    }
  }
  EXPECT_EQ(row_of_character(U'='), row_of_character(U'+'));
  EXPECT_EQ(row_of_character(U'ü'), nullptr);
}

TEST(Actions, AllOfThemAreDoneOnAnEmptyWindow) {
  for (const KeyRow& row : key_map()) {
    UiState state = first_state("", std::nullopt);
    Posted posted;
    act(row.action, state, Snapshot{}, posted.poster());  // none may fail
    EXPECT_LE(posted.commands.size(), 1u) << row.key;
  }
}

TEST(Actions, GeneratePostsTheFields) {
  UiState state = first_state("", std::nullopt);
  take_settings(state, unusual());
  state.seed_mode = SeedMode::kPlusOne;
  state.count = 3;
  Posted posted;
  act(Action::kGenerate, state, {}, posted.poster());
  const auto& command = posted.last<GenerateCommand>();
  EXPECT_TRUE(differing_fields(command.settings, unusual()).empty());
  EXPECT_EQ(command.count, 3);
  EXPECT_EQ(state.settings.seed, 102u) << "the next ones count on";
  posted.full = true;
  act(Action::kGenerate, state, {}, posted.poster());
  EXPECT_EQ(state.notice, "the queue is full");
  EXPECT_EQ(state.settings.seed, 102u);
  state.settings.prompt.clear();
  act(Action::kGenerate, state, {}, posted.poster());
  EXPECT_EQ(state.notice, "write a prompt first");
}

TEST(Actions, AComparisonNeedsAPromptToo) {
  UiState state = first_state("", std::nullopt);
  Posted posted;
  act(Action::kCompareMethods, state, {}, posted.poster());
  EXPECT_TRUE(std::holds_alternative<CompareCommand>(posted.commands.at(0)));
  state.settings.prompt.clear();
  act(Action::kCompareMethods, state, {}, posted.poster());
  EXPECT_EQ(posted.commands.size(), 1u);
  EXPECT_EQ(state.notice, "write a prompt first");
}

TEST(Actions, PanelsGrowAndShrinkWithinBounds) {
  UiState state;
  Posted posted;
  for (int i = 0; i < 100; ++i) act(Action::kLeftWider, state, {}, posted.poster());
  EXPECT_EQ(state.sizes.left, kWidest);
  for (int i = 0; i < 100; ++i) act(Action::kLeftNarrower, state, {}, posted.poster());
  EXPECT_EQ(state.sizes.left, kNarrowest);
  for (int i = 0; i < 100; ++i) act(Action::kGalleryLower, state, {}, posted.poster());
  EXPECT_EQ(state.sizes.gallery, kLowestGallery);
}

TEST(Actions, StopNeedsARunningImage) {
  UiState state;
  Posted posted;
  act(Action::kStop, state, snapshot_of({generation(1, GenerateState::kDone)}), posted.poster());
  EXPECT_TRUE(posted.commands.empty());
  act(Action::kStop, state, snapshot_of({generation(1, GenerateState::kGeneration)}), posted.poster());
  EXPECT_TRUE(std::holds_alternative<StopCommand>(posted.commands.at(0)));
}

TEST(Actions, ADroppedFileIsOpenedAndRecalled) {
  UiState state;
  Posted posted;
  open_file("a b.png", state, posted.poster());
  EXPECT_EQ(posted.last<OpenCommand>().path, "a b.png");
  EXPECT_NE(posted.last<OpenCommand>().recall, 0u);
  EXPECT_EQ(posted.last<OpenCommand>().recall, state.recall_asked);
  EXPECT_EQ(state.shown.file, "a b.png");
  EXPECT_EQ(shown_ref(state, snapshot_of({generation(1, GenerateState::kGeneration)})).file, "a b.png");
}

TEST(Actions, DescribingAsksForTheShownFile) {
  UiState state;
  state.prune_method = "divprune";
  state.prune_rate = 0.75;
  Generation one = generation(1, GenerateState::kDone);
  Posted posted;
  act(Action::kDescribe, state, snapshot_of({one}), posted.poster());
  EXPECT_TRUE(posted.commands.empty()) << "no file yet";
  one.file = "x.png";
  act(Action::kDescribe, state, snapshot_of({one}), posted.poster());
  const auto& command = posted.last<CaptionCommand>();
  EXPECT_EQ(command.images, std::vector<std::filesystem::path>{"x.png"});
  EXPECT_EQ(command.prune_method, "divprune");
  EXPECT_EQ(command.prune_rate, 0.75);
}

TEST(Actions, OverlaysAndTokensGoRound) {
  UiState state;
  const Snapshot snapshot = snapshot_of({generation(1, GenerateState::kDone)});
  Posted posted;
  std::vector<Overlay> seen;
  for (int i = 0; i < 5; ++i) {
    act(Action::kOverlay, state, snapshot, posted.poster());
    seen.push_back(state.overlay);
  }
  EXPECT_EQ(seen, (std::vector<Overlay>{Overlay::kPass, Overlay::kAccepted, Overlay::kEntropy,
                                        Overlay::kProbability, Overlay::kNone}))
      << "visual tokens only where there are some";
  act(Action::kTokenRight, state, snapshot, posted.poster());
  for (int i = 0; i < 9; ++i) act(Action::kTokenRight, state, snapshot, posted.poster());
  act(Action::kTokenDown, state, snapshot, posted.poster());
  ASSERT_TRUE(state.cursor);
  EXPECT_EQ(state.cursor->column, 3);
  EXPECT_EQ(state.cursor->row, 1);
}

TEST(ViewerOptions, SurviveJson) {
  ViewerOptions options;
  options.model = "a \"quoted\" name";
  options.captioner = "c";
  options.output_dir = "söme where";
  options.device = "cpu";
  options.deterministic = true;
  options.tf32 = true;
  options.threads = 3;
  options.dtype = "bf16";
  options.connect = "http://127.0.0.1:8080";
  options.key_file = "key";
  options.theme = "light";
  options.scale = 1.5;
  options.files = {"x.png", "-y.png"};
  const ViewerOptions back = parse_viewer_options(to_json(options));
  EXPECT_EQ(to_json(back), to_json(options));
  EXPECT_EQ(back.connect, options.connect);
  EXPECT_EQ(back.files, options.files);
  EXPECT_FALSE(studio_options(parse_viewer_options("{}")).server);
  const StudioOptions studio = studio_options(back);
  EXPECT_EQ(studio.model, options.model);
  EXPECT_EQ(studio.threads, 3);
  EXPECT_TRUE(studio.cuda.deterministic);
  EXPECT_TRUE(studio.cuda.tf32);
  EXPECT_EQ(studio.storage, DType::kBF16);
  EXPECT_EQ(studio.folder, "söme where");
  ASSERT_TRUE(studio.server);
  EXPECT_EQ(studio.server->url, options.connect);
  EXPECT_EQ(studio.server->key_file, "key");
}

TEST(ViewerOptions, NamesOfFilesMayBeAnyBytes) {
  ViewerOptions options;
  options.files = {"x.png", "a\xff\xfe .png", "\xc3\xa9.png"};
  EXPECT_EQ(parse_viewer_options(to_json(options)).files, options.files);
  options.output_dir = "\xff";
  EXPECT_THROW(to_json(options), Error);
}

TEST(ViewerOptions, BadOnesAreNamed) {
  for (const char* text :
       {"", "[]", "{\"file_bytes\":[\"4\"]}", "{\"file_bytes\":[\"zz\"]}", "{\"theme\":\"pink\"}",
        "{\"scale\":9}", "{\"scale\":0.1}", "{\"listen\":70000}", "{\"colour\":1}",
        "{\"threads\":\"two\"}", "{\"dtype\":\"f64\"}", "{\"files\":\"a\"}"}) {
    try {
      parse_viewer_options(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().kind, ErrorKind::kUsage) << text;
    }
  }
}

}  // namespace
}  // namespace tessera::viewer_state_test
