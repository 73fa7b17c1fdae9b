#include "apps/studio/film_worker.h"

#include <system_error>

namespace tessera {

FilmWorker::FilmWorker(FilmOptions options, EventQueue& events)
    : options_(std::move(options)), events_(events) {}

FilmWorker::~FilmWorker() { end(); }

std::size_t FilmWorker::leaving() {
  std::erase_if(leaving_, [](const auto& one) { return one->ended(); });
  return leaving_.size();
}

bool FilmWorker::open(const Film& film) {
  if (leaving() >= kMaxLeaving) return false;
  try {
    auto next = std::make_unique<FilmSession>(film, options_, events_);
    close();
    open_ = std::move(next);
  } catch (const std::system_error&) {  // no thread
    return false;
  }
  return true;
}

bool FilmWorker::post(const FilmOrder& order) { return open_ == nullptr || open_->post(order); }

void FilmWorker::close() {
  if (open_ == nullptr) return;
  open_->end();
  leaving_.push_back(std::move(open_));
  leaving();
}

void FilmWorker::end() {
  if (open_ != nullptr) open_->end();
}

}  // namespace tessera
