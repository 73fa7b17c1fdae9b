// Python's values to the library's and back. All of it needs the interpreter's lock.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "python/src/core.h"

namespace tessera_python {

namespace py = pybind11;

// [height, width, 3] of uint8. Error kUsage (E_IMAGE_ARRAY).
py::array checked_array(const py::handle& given);
// The same, copied.
tessera::Image image_of(const py::handle& given);
// An array [height, width, 3] that owns the pixels.
py::array array_of(tessera::Image&& image);
// The same, over the pixels of `owner`, which lives as long as the array.
py::array view_of(tessera::Image& image, const py::handle& owner);

py::str text_of(const std::string& utf8);
tessera::Settings settings_of(const py::list& given);
tessera::Task task_of(const std::string& name);
const char* task_name(tessera::Task task);
// An instance of tessera.Error.
py::object error_of(const tessera::Error& error);
// Place, kind and value; None where nothing is new.
py::object take(RequestState& request);

}  // namespace tessera_python
