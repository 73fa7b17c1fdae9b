// tessera._core: a runtime, requests and their events. The package's Python files make of it what
// programs use.
#include <pybind11/stl.h>

#include "python/src/requests.h"

namespace tessera_python {

namespace {

using namespace py::literals;

tessera::OpenOptions options_of(const py::dict& given) {
  tessera::OpenOptions out;
  const auto text = [&](const char* name) { return py::cast<std::string>(given[name]); };
  out.device = text("device");
  out.threads = py::cast<int>(given["threads"]);
  out.dtype = text("dtype");
  out.slots = py::cast<std::int64_t>(given["slots"]);
  out.seed = py::cast<std::uint64_t>(given["seed"]);
  out.prune = text("prune");
  out.deterministic = py::cast<bool>(given["deterministic"]);
  out.tf32 = py::cast<bool>(given["tf32"]);
  out.text_encoder = text("text_encoder");
  out.chat_template = text("chat_template");
  out.mmproj = text("mmproj");
  out.image_cache = py::cast<std::uint64_t>(given["image_cache"]);
  out.settings = settings_of(given["settings"]);
  return out;
}

std::uint64_t open_model(Core& core, const std::string& name, const std::string& task,
                         const py::dict& options) {
  const tessera::ModelRef which{name, task_of(task)};
  const tessera::OpenOptions read = options_of(options);
  tessera::Runtime& runtime = core.runtime();
  const py::gil_scoped_release released;
  return runtime.open(which, read).number;
}

py::list strings(const std::vector<std::string>& texts) {
  py::list out;
  for (const std::string& text : texts) out.append(text_of(text));
  return out;
}

py::dict info_of(Core& core, std::uint64_t model) {
  const tessera::ModelInfo info = core.runtime().info({model});
  return py::dict("task"_a = task_name(info.task), "name"_a = text_of(info.name),
                  "family"_a = text_of(info.family), "title"_a = text_of(info.title),
                  "licence"_a = text_of(info.licence), "device"_a = info.device,
                  "dtype"_a = info.dtype, "method"_a = info.method, "width"_a = info.width,
                  "height"_a = info.height, "frames"_a = info.frames, "rate"_a = info.rate,
                  "max_first_frames"_a = info.max_first_frames, "notes"_a = strings(info.notes));
}

py::list setting_rows(const std::string& task) {
  py::list out;
  for (const tessera::SettingInfo& row : tessera::setting_table(task_of(task))) {
    out.append(py::dict("flag"_a = row.name, "group"_a = row.group, "of"_a = row.of,
                        "kind"_a = row.kind, "low"_a = row.low, "high"_a = row.high,
                        "zero_is_off"_a = row.zero_is_off,
                        "choices"_a = py::tuple(strings(row.choices)), "unit"_a = row.unit,
                        "help"_a = row.help, "without"_a = row.without,
                        "place"_a = row.place == tessera::SettingPlace::kOpen ? "open" : "request",
                        "changes_bytes"_a = row.changes_bytes));
  }
  return out;
}

void close(Core& core) {
  const py::gil_scoped_release released;
  core.close();
}

void close_model(Core& core, std::uint64_t model) {
  tessera::Runtime& runtime = core.runtime();
  const py::gil_scoped_release released;
  runtime.close({model});
}

void run(Core& core, const py::list& awaited, double seconds) {
  std::vector<std::shared_ptr<RequestState>> requests;
  for (const py::handle& request : awaited) {
    requests.push_back(py::cast<const Request&>(request).state());
  }
  const py::gil_scoped_release released;
  core.run(requests, seconds);
}

void add_runtime(py::module_& module) {
  py::class_<Core, std::shared_ptr<Core>>(module, "Core")
      .def(py::init<const std::string&>(), "prefix"_a)
      .def("check", [](Core& core) { static_cast<void>(core.runtime()); })
      .def("open", &open_model, "name"_a, "task"_a, "options"_a)
      .def("close_model", &close_model, "model"_a)
      .def("close", &close)
      .def_property_readonly("closed", [](const Core& core) { return !core.open(); })
      .def("info", &info_of, "model"_a)
      .def("stats",
           [](Core& core) {
             const tessera::RuntimeStats stats = core.runtime().stats();
             return py::make_tuple(stats.models, stats.submitted, stats.over);
           })
      .def("run", &run, "awaited"_a, "seconds"_a)
      .def("submit_image", &submit_image)
      .def("submit_video", &submit_video)
      .def("submit_describe", &submit_describe)
      .def("submit_complete", &submit_complete)
      .def("submit_answer", &submit_answer);
  py::class_<Request>(module, "Request")
      .def("take", [](const Request& request) { return take(*request.state()); })
      .def_property_readonly("over", [](const Request& request) { return request.state()->over; })
      .def("stop", &Request::stop)
      .def("cancel", &Request::cancel);
}

void save(const tessera::GeneratedImage& made, const std::string& path) {
  const py::gil_scoped_release released;
  made.save_png(path);
}

template <typename Image>
py::bytes png(const Image& made) {
  std::string bytes;
  {
    const py::gil_scoped_release released;
    bytes = made.png();
  }
  return py::bytes(bytes);
}

void add_images(py::module_& module) {
  py::class_<tessera::GeneratedImage>(module, "Generated")
      .def_property_readonly("array",
                             [](const py::object& self) {
                               auto& made = py::cast<tessera::GeneratedImage&>(self);
                               return view_of(made.image, self);
                             })
      .def_property_readonly("address",
                             [](const tessera::GeneratedImage& made) {
                               return reinterpret_cast<std::uintptr_t>(made.image.rgb.data());
                             })
      .def_readonly("tokens", &tessera::GeneratedImage::tokens)
      .def_readonly("passes", &tessera::GeneratedImage::passes)
      .def_readonly("seconds", &tessera::GeneratedImage::seconds)
      .def_property_readonly(
          "record", [](const tessera::GeneratedImage& made) { return text_of(made.record); })
      .def("save", &save, "path"_a)
      .def("png", &png<tessera::GeneratedImage>);
  module.def("checked_array", &checked_array, "image"_a);
  module.def(
      "save_png",
      [](const py::object& given, const std::string& path) {
        const tessera::Image image = image_of(given);
        const py::gil_scoped_release released;
        image.save_png(path);
      },
      "image"_a, "path"_a);
  module.def(
      "png", [](const py::object& given) { return png(image_of(given)); }, "image"_a);
}

// Arrays of NumPy 2 lie otherwise than a pybind11 before 2.12 reads them.
void check_numpy() {
  if (PYBIND11_VERSION_HEX >= 0x020C0000) return;
  std::string version;
  try {
    version = py::str(py::module_::import("numpy").attr("__version__"));
  } catch (const py::error_already_set&) {
    return;  // whoever hands arrays over has it
  }
  if (version.starts_with("0.") || version.starts_with("1.")) return;
  throw py::import_error("this build of tessera reads arrays of NumPy 1, found NumPy " + version +
                         ": pip install . builds one for NumPy 2");
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  check_numpy();
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const tessera::Error& error) {
      const py::object made = error_of(error);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    }
  });
  module.def("version", &tessera::version);
  module.def("settings", &setting_rows, "task"_a);
  add_runtime(module);
  add_images(module);
}

}  // namespace tessera_python
