// Items of a captioning job.
#include "apps/jobs/caption_items.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace tessera {

CaptionItems::CaptionItems(CaptionInputs& inputs, CaptionStore& store,
                           const CaptionItemOptions& options, CaptionJobListener& listener)
    : inputs_(inputs), store_(store), options_(options), listener_(listener) {}

std::optional<CaptionItem> CaptionItems::next_given() {
  {
    const std::lock_guard lock(mutex_);
    if (!ready_.empty()) {
      CaptionItem item = std::move(ready_.back());
      ready_.pop_back();
      return item;
    }
  }
  if (ended_) return std::nullopt;
  std::optional<CaptionItem> item = inputs_.next();
  ended_ = !item.has_value();
  return item;
}

bool CaptionItems::more() {
  const std::lock_guard lock(mutex_);
  std::move(later_.begin(), later_.end(), std::back_inserter(ready_));
  later_.clear();
  return !ready_.empty() || !ended_;
}

// Items that want one place belong to one shard.
bool CaptionItems::is_ours(const CaptionItem& item) const {
  const Shard& shard = options_.shard;
  return shard.of == 1 || shard_of(store_.place_of(item), shard.of) == shard.index;
}

std::optional<std::size_t> CaptionItems::next() {
  while (std::optional<CaptionItem> item = next_given()) {
    if (!is_ours(*item)) continue;
    const std::lock_guard lock(mutex_);
    if (!is_wanted(*item)) {
      // Who looks like whom must not depend on when another item ends: this one is waited for.
      if (options_.similar != nullptr && !later_.empty()) return std::nullopt;
      continue;
    }
    const std::size_t number = count_++;
    numbers_.emplace(item->id, number);
    at_work_.emplace(number, std::move(*item));
    return number;
  }
  return std::nullopt;
}

// Whether there is something to do for it now. Under the lock.
bool CaptionItems::is_wanted(CaptionItem& item) {
  if (numbers_.contains(item.id) || failed_now_.contains(item.id)) {  // given twice
    ++skipped_;
    return false;
  }
  const auto failed = [&] { return store_.journal().state(item.id) == ItemState::kFailed; };
  if (item.failure) {
    if (!failed() || options_.retry_failed) return true;
    ++failed_before_;
    return false;
  }
  try {
    check_form(item);
    const Wanted wanted = store_.wants(item);
    if (wanted == Wanted::kLater) later_.push_back(std::move(item));
    if (wanted == Wanted::kNo) ++(failed() ? failed_before_ : skipped_);
    return wanted == Wanted::kYes;
  } catch (const Error& error) {  // the boundary of one item
    if (error.info().kind != ErrorKind::kGeneral) throw;
    item.failure = error.info();
    return true;
  }
}

// What an output has no form for. Error kGeneral.
void CaptionItems::check_form(const CaptionItem& item) const {
  const auto refuse = [&](const char* code, const char* expected, const char* found) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = code,
                 .file = item.path,
                 .expected = expected,
                 .found = found});
  };
  if (item.video && options_.carry) {
    refuse("E_CAPTION_CLIP", "images for a WebDataset", "a video");
  }
  if (!item.video && options_.subtitles) {
    refuse("E_CAPTION_SUBTITLES", "a video, whose scenes have times", "an image");
  }
}

CaptionItem CaptionItems::fetch(std::size_t number) {
  const std::lock_guard lock(mutex_);
  CaptionItem& item = at_work_.at(number);
  CaptionItem out = item;
  if (!options_.carry) item.image.bytes = {};  // only the reader needs them
  return out;
}

const CaptionItem& CaptionItems::look(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  return at_work_.at(number);
}

void CaptionItems::set_image(std::size_t number, const SampleMember& image) {
  const std::lock_guard lock(mutex_);
  at_work_.at(number).image = image;
}

std::size_t CaptionItems::number_of(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = numbers_.find(id);
  expects(found != numbers_.end(), "a caption of an item");
  return found->second;
}

void CaptionItems::add(std::size_t number, const Json& fields, const std::string& caption) {
  const std::lock_guard lock(mutex_);
  store_.add(at_work_.at(number), fields, caption);
}

void CaptionItems::repeat(std::size_t number, const Json& fields) {
  const std::lock_guard lock(mutex_);
  store_.repeat(at_work_.at(number), fields);
}

std::optional<RepeatedImage> CaptionItems::compare(std::size_t number,
                                                   const ImageFingerprint& print) {
  const std::lock_guard lock(mutex_);
  const CaptionItem& item = at_work_.at(number);
  auto found = options_.similar->find(item.place, print);
  if (found) return found;
  if (const auto record = options_.similar->keep(item.place, item.path, print)) {
    store_.note(*record);
  }
  return std::nullopt;
}

void CaptionItems::settle() {
  const std::lock_guard lock(mutex_);
  store_.settle();
}

CaptionItem CaptionItems::forget(std::size_t number) {
  const std::lock_guard lock(mutex_);
  auto item = at_work_.extract(number);
  numbers_.erase(item.mapped().id);
  std::move(later_.begin(), later_.end(), std::back_inserter(ready_));
  later_.clear();
  return std::move(item.mapped());
}

void CaptionItems::fail(std::size_t number, const ErrorInfo& error) {
  const std::lock_guard lock(mutex_);
  CaptionItem& item = at_work_.at(number);
  item.image.bytes = {};
  item.others.clear();
  store_.fail(item, error);
  failed_now_.insert(item.id);
}

void CaptionItems::on_failed(std::size_t number, const ErrorInfo& error) {
  listener_.on_failed(forget(number), error);
}

}  // namespace tessera
