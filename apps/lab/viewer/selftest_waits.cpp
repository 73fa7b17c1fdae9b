// Orders of the self-test that wait, and those that use the gallery and captions.
#include <algorithm>

#include "apps/lab/viewer/selftest.h"
#include "apps/studio/event.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr double kPatience = 180;  // seconds a line may wait

bool generation_now(const Snapshot& snapshot) {
  return std::any_of(snapshot.generations.begin(), snapshot.generations.end(), [](const auto& one) {
    return one.state == GenerateState::kQueued || one.state == GenerateState::kLoading ||
           one.state == GenerateState::kGeneration;
  });
}

bool describing_now(const Snapshot& snapshot) {
  if (snapshot.folder_captions.listing || snapshot.folder_captions.waiting > 0) return true;
  return std::any_of(snapshot.captions.begin(), snapshot.captions.end(),
                     [](const auto& one) { return !is_final(one.state); });
}

}  // namespace

// False while it is not so yet; true also when patience ran out, which is a failure.
bool SelfTest::wait(const ScriptLine& line, const Snapshot& snapshot) {
  bool here = false;
  const double count = line.numbers.empty() ? 0 : line.numbers.front();
  std::string found;
  switch (line.order) {
    case Order::kWaitDone:
      here = !snapshot.generations.empty() && !generation_now(snapshot);
      found = std::to_string(snapshot.generations.size()) + " generated images, some not done";
      break;
    case Order::kWaitRows: {
      const Generation* one = snapshot.running();
      if (one == nullptr && !snapshot.generations.empty()) one = &snapshot.generations.back();
      here = one != nullptr && to_double(one->rows_done) >= count;

      found = "fewer rows";
      break;
    }
    case Order::kWaitModels:
      here = snapshot.models_known;
      found = "not looked for yet";
      break;
    case Order::kWaitGallery: {
      std::size_t read = 0;
      for (const GalleryEntry& one : snapshot.gallery) {
        read += one.thumbnail != nullptr || !one.problem.empty() ? 1 : 0;
      }
      here = to_double(read) >= count;
      found = std::to_string(read) + " images";
      break;
    }
    case Order::kWaitCaption:
      here = !snapshot.captions.empty() && !describing_now(snapshot);
      found = std::to_string(snapshot.captions.size()) + " texts, some not done";
      break;
    case Order::kOpen:
    case Order::kDrop:
      here = look_up(snapshot, viewer_.state().shown).opened != nullptr &&
             (line.order == Order::kOpen || viewer_.state().recall_asked == 0);
      found = "the image is not open, or its settings did not come";
      break;
    case Order::kRecall:
    case Order::kWaitRecall:
      here = viewer_.state().recall_asked == 0;
      found = "nothing recalled";
      break;
    case Order::kStopAfterRows:
      found = "rows or the end did not come";
      break;
    case Order::kCompare:
      found = "the queue stays full";
      break;
    default:
      expects(false, "every order of a script is carried out somewhere");
  }
  if (here) return true;
  const bool counted = line.order == Order::kWaitRows || line.order == Order::kWaitGallery;
  const std::size_t limit_at = counted ? 1 : 0;
  const bool may_limit = line.order != Order::kStopAfterRows && line.order != Order::kOpen &&
                         line.order != Order::kDrop && line.numbers.size() > limit_at;
  const double limit = may_limit ? line.numbers[limit_at] : kPatience;
  if (monotonic_seconds() - line_started_ < limit) return false;
  fail(line, "an end within " + number_text(limit, 0) + " s", found);
  return true;
}

bool SelfTest::stop_after_rows(const ScriptLine& line, const Snapshot& snapshot) {
  if (stop_posted_) return !generation_now(snapshot) || wait(line, snapshot);
  const Generation* running = snapshot.running();
  if (!generation_now(snapshot)) {
    fail(line, "an image that is still generated", "it ended before");
    return true;
  }
  const bool due = running != nullptr && running->state == GenerateState::kGeneration &&
                   to_double(running->rows_done) >= line.numbers.front();
  if (!due) return wait(line, snapshot);
  act(Action::kStop, viewer_.state(), snapshot, post_);
  stop_posted_ = true;
  return false;
}

bool SelfTest::use_gallery(const ScriptLine& line, const Snapshot& snapshot) {
  if (stop_posted_) return wait(line, snapshot);
  const auto index = truncate<std::size_t>(line.numbers.front());
  if (index >= snapshot.gallery.size()) {
    fail(line, "picture " + std::to_string(index) + " of the gallery",
         std::to_string(snapshot.gallery.size()) + " images");
    return true;
  }
  const std::filesystem::path path = snapshot.gallery[index].path;
  UiState& state = viewer_.state();
  if (line.order == Order::kDrop) {
    viewer_.drop({path});
  } else {
    show_file(path, state, post_);
  }
  stop_posted_ = true;  // once
  return false;
}

bool SelfTest::captions(const ScriptLine& line, const Snapshot& snapshot) {
  UiState& state = viewer_.state();
  if (line.order == Order::kCaption) {
    act(Action::kDescribe, state, snapshot, post_);
  } else if (line.order == Order::kEditCaption) {
    state.caption_text = line.text;
  } else {
    post_(SaveCaptionCommand{state.caption_chosen, state.caption_text});
  }
  return true;
}

}  // namespace tessera
