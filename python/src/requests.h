// What is submitted: one function a task. Each gives the request's state and its ticket.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "python/src/values.h"

namespace tessera_python {

using CorePointer = std::shared_ptr<Core>;

Request submit_image(const CorePointer& core, std::uint64_t model, const std::string& prompt,
                     const std::optional<std::string>& negative, std::uint64_t seed,
                     const py::list& settings, std::int64_t partial_images, bool progress);
Request submit_video(const CorePointer& core, std::uint64_t model, const std::string& prompt,
                     const std::optional<std::string>& negative, std::uint64_t seed,
                     const py::list& first_frames, const std::string& text_features, bool endless,
                     const py::list& settings, bool progress);
// `requests`: tuples (arrays, paths, encoded files, number). `how`: what all of them have.
Request submit_describe(const CorePointer& core, std::uint64_t model, const py::list& requests,
                        const py::dict& how, bool pieces, bool progress);
Request submit_complete(const CorePointer& core, std::uint64_t model, const std::string& prompt,
                        const py::list& turns, std::uint64_t seed, std::uint64_t number,
                        const py::dict& how, bool pieces, bool progress);
Request submit_answer(const CorePointer& core, std::uint64_t model, const std::string& prompt,
                      std::uint64_t seed, const py::list& settings, bool progress);

}  // namespace tessera_python
