#include "python/src/values.h"

#include <cstring>

namespace tessera_python {

namespace {

constexpr const char* kTasks[] = {"image", "video", "describe", "complete", "answer"};

const char* kind_name(tessera::ErrorKind kind) {
  switch (kind) {
    case tessera::ErrorKind::kUsage:
      return "usage";
    case tessera::ErrorKind::kModel:
      return "model";
    case tessera::ErrorKind::kMemory:
      return "memory";
    case tessera::ErrorKind::kStorage:
      return "storage";
    case tessera::ErrorKind::kGeneral:
      break;
  }
  return "general";
}

std::vector<py::ssize_t> shape_of(const tessera::Image& image) {
  return {static_cast<py::ssize_t>(image.height), static_cast<py::ssize_t>(image.width), 3};
}

py::list texts_of(const std::vector<std::string>& texts) {
  py::list out;
  for (const std::string& text : texts) out.append(text_of(text));
  return out;
}

py::dict value_of(const tessera::Progress& progress) {
  using namespace py::literals;
  return py::dict("tokens_done"_a = progress.tokens_done, "tokens"_a = progress.tokens,
                  "frames_done"_a = progress.frames_done, "frames"_a = progress.frames,
                  "passes"_a = progress.passes, "seconds"_a = progress.seconds);
}

py::dict value_of(const tessera::GeneratedVideo& made) {
  using namespace py::literals;
  return py::dict("stopped"_a = made.stopped, "count"_a = made.frames,
                  "first_frames"_a = made.first_frames, "rate"_a = made.rate,
                  "tokens"_a = made.tokens, "passes"_a = made.passes, "seconds"_a = made.seconds,
                  "record"_a = text_of(made.record));
}

py::dict value_of(const tessera::Description& made) {
  using namespace py::literals;
  return py::dict("text"_a = text_of(made.text), "cut_short"_a = made.cut_short,
                  "stopped_by_text"_a = made.stopped_by_text, "tokens"_a = made.tokens,
                  "passes"_a = made.passes, "prompt_tokens"_a = made.prompt_tokens,
                  "reused_tokens"_a = made.reused_tokens, "known_images"_a = made.known_images,
                  "visual_tokens"_a = made.visual_tokens, "kept_tokens"_a = made.kept_tokens,
                  "seconds"_a = made.seconds, "notes"_a = texts_of(made.notes));
}

py::dict value_of(const tessera::Completion& made) {
  using namespace py::literals;
  return py::dict("text"_a = text_of(made.text), "cut_short"_a = made.cut_short,
                  "stopped_by_text"_a = made.stopped_by_text, "tokens"_a = made.tokens,
                  "passes"_a = made.passes, "prompt_tokens"_a = made.prompt_tokens,
                  "reused_tokens"_a = made.reused_tokens,
                  "first_seconds"_a = made.first_seconds, "seconds"_a = made.seconds);
}

py::dict value_of(const tessera::Answer& made) {
  using namespace py::literals;
  return py::dict("text"_a = text_of(made.text), "cut_short"_a = made.cut_short,
                  "tokens"_a = made.tokens, "passes"_a = made.passes);
}

struct Taken {
  const char* kind;
  py::object value;
};

struct Take {
  Taken operator()(Text& text) const { return {"text", text_of(text.utf8)}; }
  Taken operator()(Notice& notice) const { return {"notice", text_of(notice.utf8)}; }
  Taken operator()(Failure& failure) const { return {"failed", error_of(failure.error)}; }
  Taken operator()(Frame& frame) const {
    return {"frame", py::make_tuple(frame.index, array_of(std::move(frame.image)))};
  }
  Taken operator()(Partial& made) const { return {"partial", array_of(std::move(made.image))}; }
  Taken operator()(tessera::Progress& made) const { return {"progress", value_of(made)}; }
  Taken operator()(tessera::Error& error) const { return {"error", error_of(error)}; }
  Taken operator()(tessera::GeneratedImage& made) const {
    return {"image", py::cast(std::make_unique<tessera::GeneratedImage>(std::move(made)))};
  }
  Taken operator()(tessera::GeneratedVideo& made) const { return {"video", value_of(made)}; }
  Taken operator()(tessera::Description& made) const { return {"description", value_of(made)}; }
  Taken operator()(tessera::Completion& made) const { return {"completion", value_of(made)}; }
  Taken operator()(tessera::Answer& made) const { return {"answer", value_of(made)}; }
};

}  // namespace

py::array checked_array(const py::handle& given) {
  const auto array = py::array::ensure(given);
  const bool bytes = array && array.dtype().kind() == 'u' && array.itemsize() == 1;
  if (bytes && array.ndim() == 3 && array.shape(2) == 3) return array;
  const std::string found = array ? "an array of " + std::string(py::str(array.dtype())) + " " +
                                        std::string(py::str(py::tuple(array.attr("shape"))))
                                  : "no array";
  PyErr_Clear();
  refuse("E_IMAGE_ARRAY", "an image", "an array of uint8 [height, width, 3]", found,
         bytes ? "PIL: image.convert('RGB')" : "");
}

tessera::Image image_of(const py::handle& given) {
  const py::array array = checked_array(given);
  const auto rows = py::array_t<std::uint8_t, py::array::c_style>::ensure(array);
  if (!rows) throw py::error_already_set();
  tessera::Image out{.width = array.shape(1), .height = array.shape(0)};
  const std::uint8_t* const begin = rows.data();
  out.rgb.assign(begin, begin + rows.size());
  return out;
}

py::array array_of(tessera::Image&& image) {
  auto kept = std::make_unique<tessera::Image>(std::move(image));
  tessera::Image* const pixels = kept.get();
  const py::capsule owner(pixels, [](void* held) { delete static_cast<tessera::Image*>(held); });
  static_cast<void>(kept.release());
  return view_of(*pixels, owner);
}

py::array view_of(tessera::Image& image, const py::handle& owner) {
  return py::array_t<std::uint8_t>(shape_of(image), image.rgb.data(), owner);
}

// Broken characters of a model become U+FFFD, as in the program's JSON.
py::str text_of(const std::string& utf8) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "replace"));
}

tessera::Settings settings_of(const py::list& given) {
  tessera::Settings out;
  for (const py::handle& pair : given) {
    const auto both = py::cast<py::tuple>(pair);
    out.push_back({py::cast<std::string>(both[0]), py::cast<std::string>(both[1])});
  }
  return out;
}

const char* task_name(tessera::Task task) { return kTasks[static_cast<int>(task)]; }

tessera::Task task_of(const std::string& name) {
  std::string names;
  for (int i = 0; i < 5; ++i) {
    if (name == kTasks[i]) return static_cast<tessera::Task>(i);
    names += (i == 0 ? "" : ", ") + std::string(kTasks[i]);
  }
  refuse("E_TASK", "task", "one of " + names, "'" + name + "'");
}

py::object error_of(const tessera::Error& error) {
  return py::module_::import("tessera._error")
      .attr("Error")(text_of(error.what()), kind_name(error.kind()), text_of(error.code()),
                     text_of(error.file()), text_of(error.where()), text_of(error.expected()),
                     text_of(error.found()), text_of(error.hint()));
}

py::object take(RequestState& request) {
  if (request.events.empty() && request.progress) {
    const auto progress = value_of(*request.progress);
    request.progress.reset();
    return py::make_tuple(0, "progress", progress);
  }
  if (request.events.empty()) return py::none();
  Event event = std::move(request.events.front());
  request.events.pop_front();
  const Taken taken = std::visit(Take{}, event.payload);
  return py::make_tuple(event.place, taken.kind, taken.value);
}

}  // namespace tessera_python
