#include "python/src/requests.h"

#include <pybind11/stl.h>

namespace tessera_python {

namespace {

using State = std::shared_ptr<RequestState>;

State new_state(bool progress) {
  auto state = std::make_shared<RequestState>();
  state->wants_progress = progress;
  return state;
}

template <typename Value>
void push(RequestState& state, std::size_t place, Value&& value) {
  state.events.push_back({place, std::forward<Value>(value)});
}

std::function<bool()> goes_on(const State& state) {
  return [state] {
    if (state->wants_progress) state->progress.emplace();
    return !state->stop;
  };
}

tessera::OnProgress goes_on_with_figures(const State& state) {
  return [state](const tessera::Progress& progress) {
    if (state->wants_progress) state->progress = progress;
    return !state->stop;
  };
}

tessera::OnError on_error(const State& state) {
  return [state](const tessera::Error& error) { push(*state, 0, error); };
}

std::function<void(std::string_view)> on_text(const State& state) {
  return [state](std::string_view more) { push(*state, 0, Text{std::string(more)}); };
}

std::function<void(std::string_view)> on_notice(const State& state) {
  return [state](std::string_view text) { push(*state, 0, Notice{std::string(text)}); };
}

// `submit` gives the library the request, without the interpreter's lock.
template <typename Submit>
Request submitted(const CorePointer& core, const State& state, const Submit& submit) {
  tessera::Runtime& runtime = core->runtime();
  {
    const py::gil_scoped_release released;
    state->ticket = submit(runtime);
  }
  core->keep(state);
  return {core, state};
}

// `turns`: tuples of a role and its parts, which are tuples of a text and whether it is an image.
std::vector<tessera::ChatTurn> turns_of(const py::list& given) {
  std::vector<tessera::ChatTurn> out;
  for (const py::handle& turn : given) {
    const auto both = py::cast<py::tuple>(turn);
    tessera::ChatTurn& made = out.emplace_back();
    made.role = py::cast<std::string>(both[0]);
    for (const py::handle& part : both[1]) {
      const auto text = py::cast<py::tuple>(part);
      made.parts.push_back({py::cast<std::string>(text[0]), py::cast<bool>(text[1])});
    }
  }
  return out;
}

template <typename Value>
std::optional<Value> optional_of(const py::dict& how, const char* name) {
  return py::cast<std::optional<Value>>(how[name]);
}

// What is the same in all requests of a submission.
tessera::DescribeRequest describe_request(const py::dict& how) {
  return {.question = py::cast<std::string>(how["question"]),
          .turns = turns_of(how["turns"]),
          .negative_question = optional_of<std::string>(how, "negative_question"),
          .max_tokens = py::cast<std::int64_t>(how["max_tokens"]),
          .seed = optional_of<std::uint64_t>(how, "seed"),
          .settings = settings_of(how["settings"]),
          .stop = py::cast<std::vector<std::string>>(how["stop"])};
}

void add_images(tessera::DescribeRequest& to, const py::handle& given) {
  const auto parts = py::cast<py::tuple>(given);
  for (const py::handle& image : parts[0]) to.images.push_back(image_of(image));
  for (const py::handle& file : parts[1]) to.files.emplace_back(py::cast<std::string>(file));
  for (const py::handle& file : parts[2]) to.encoded.emplace_back(py::cast<std::string_view>(file));
  to.number = py::cast<std::uint64_t>(parts[3]);
}

}  // namespace

Request submit_image(const CorePointer& core, std::uint64_t model, const std::string& prompt,
                     const std::optional<std::string>& negative, std::uint64_t seed,
                     const py::list& settings, std::int64_t partial_images, bool progress) {
  const tessera::ImageRequest request{.prompt = prompt,
                                      .negative_prompt = negative,
                                      .seed = seed,
                                      .settings = settings_of(settings),
                                      .partial_images = partial_images};
  const State state = new_state(progress);
  tessera::ImageCallbacks callbacks{
      .on_progress = goes_on_with_figures(state),
      .on_partial = [state](std::int64_t,
                            tessera::Image&& image) { push(*state, 0, Partial{std::move(image)}); },
      .on_image = [state](tessera::GeneratedImage&& made) { push(*state, 0, std::move(made)); },
      .on_error = on_error(state)};
  return submitted(core, state, [&](tessera::Runtime& runtime) {
    return runtime.submit({model}, request, std::move(callbacks));
  });
}

Request submit_video(const CorePointer& core, std::uint64_t model, const std::string& prompt,
                     const std::optional<std::string>& negative, std::uint64_t seed,
                     const py::list& first_frames, const std::string& text_features, bool endless,
                     const py::list& settings, bool progress) {
  tessera::VideoRequest request{.prompt = prompt,
                                .negative_prompt = negative,
                                .seed = seed,
                                .text_features = text_features,
                                .endless = endless,
                                .settings = settings_of(settings)};
  for (const py::handle& frame : first_frames) request.first_frames.push_back(image_of(frame));
  const State state = new_state(progress);
  tessera::VideoCallbacks callbacks{
      .on_progress = goes_on_with_figures(state),
      .on_frame =
          [state](std::int64_t index, tessera::Image&& frame) {
            push(*state, 0, Frame{index, std::move(frame)});
          },
      .on_video = [state](const tessera::GeneratedVideo& made) { push(*state, 0, made); },
      .on_error = on_error(state)};
  return submitted(core, state, [&](tessera::Runtime& runtime) {
    return runtime.submit({model}, request, std::move(callbacks));
  });
}

Request submit_describe(const CorePointer& core, std::uint64_t model, const py::list& requests,
                        const py::dict& how, bool pieces, bool progress) {
  core->runtime();  // before images are copied
  std::vector<tessera::DescribeRequest> all(requests.size(), describe_request(how));
  for (std::size_t i = 0; i < all.size(); ++i) add_images(all[i], requests[i]);
  const State state = new_state(progress);
  tessera::DescribeAllCallbacks callbacks{
      .on_progress = goes_on(state),
      .on_description = [state](
                            std::size_t place,
                            tessera::Description&& made) { push(*state, place, std::move(made)); },
      .on_notice = on_notice(state),
      .on_error = [state](std::size_t place,
                          const tessera::Error& error) { push(*state, place, error); }};
  if (pieces) {
    callbacks.on_text = [state](std::size_t place, std::string_view more) {
      push(*state, place, Text{std::string(more)});
    };
  }
  return submitted(core, state, [&](tessera::Runtime& runtime) {
    return runtime.submit({model}, std::move(all), std::move(callbacks));
  });
}

Request submit_complete(const CorePointer& core, std::uint64_t model, const std::string& prompt,
                        const py::list& turns, std::uint64_t seed, std::uint64_t number,
                        const py::dict& how, bool pieces, bool progress) {
  const tessera::CompleteRequest request{
      .prompt = prompt,
      .negative_prompt = optional_of<std::string>(how, "negative_prompt"),
      .chat = py::cast<bool>(how["chat"]),
      .turns = turns_of(turns),
      .max_tokens = py::cast<std::int64_t>(how["max_tokens"]),
      .seed = seed,
      .number = number,
      .settings = settings_of(how["settings"]),
      .stop = py::cast<std::vector<std::string>>(how["stop"])};
  const State state = new_state(progress);
  tessera::CompleteCallbacks callbacks{
      .on_progress = goes_on(state),
      .on_completion = [state](tessera::Completion&& made) { push(*state, 0, std::move(made)); },
      .on_notice = on_notice(state),
      .on_error = on_error(state)};
  if (pieces) callbacks.on_text = on_text(state);
  return submitted(core, state, [&](tessera::Runtime& runtime) {
    return runtime.submit({model}, request, std::move(callbacks));
  });
}

Request submit_answer(const CorePointer& core, std::uint64_t model, const std::string& prompt,
                      std::uint64_t seed, const py::list& settings, bool progress) {
  const tessera::AnswerRequest request{
      .prompt = prompt, .seed = seed, .settings = settings_of(settings)};
  const State state = new_state(progress);
  tessera::AnswerCallbacks callbacks{
      .on_progress = goes_on(state),
      .on_text = on_text(state),
      .on_image = [state](tessera::GeneratedImage&& made) { push(*state, 0, std::move(made)); },
      .on_answer = [state](tessera::Answer&& made) { push(*state, 0, std::move(made)); },
      .on_notice = on_notice(state),
      .on_error = on_error(state)};
  return submitted(core, state, [&](tessera::Runtime& runtime) {
    return runtime.submit({model}, request, std::move(callbacks));
  });
}

}  // namespace tessera_python
