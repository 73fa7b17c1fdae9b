// The items of a captioning job between inputs, store and run: which of them are wanted, which are
// at work, and who hears how they end. Reading thread and working thread both come here: whatever
// they touch is under one lock, and nothing is printed while it is held.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "apps/captions/inputs.h"
#include "apps/jobs/caption_store.h"
#include "apps/jobs/runner.h"
#include "apps/jobs/shard.h"
#include "apps/jobs/similar_images.h"
#include "engine/core/json.h"

namespace tessera {

struct VideoCaption;

class CaptionJobListener {
 public:
  virtual ~CaptionJobListener() = default;
  virtual bool stop_requested() { return false; }
  // The item is done. `fields` as JSON lines have them, `video` null for an image.
  virtual void on_done(const CaptionItem&, const Json& /*fields*/, const std::string& /*caption*/,
                       const VideoCaption* /*video*/) {}
  virtual void on_failed(const CaptionItem&, const ErrorInfo&) {}
  // The item looks like an earlier one: "path", "repeats", "distance".
  virtual void on_repeat(const CaptionItem&, const Json& /*fields*/) {}
  virtual void on_notice(std::string_view /*text*/) {}
};

struct CaptionItemOptions {
  bool carry = false;         // images go into the output
  bool subtitles = false;     // text files hold captions of videos with their times
  bool retry_failed = false;  // what failed in earlier runs is wanted again
  Shard shard = {};           // items of other shards are not seen
  // Images that look like an earlier one have no caption; borrowed, null for none. Knows what
  // earlier runs saw.
  SimilarImages* similar = nullptr;
};

class CaptionItems final : public JobSource, public JobRecords, public JobListener {
 public:
  // All are borrowed.
  CaptionItems(CaptionInputs& inputs, CaptionStore& store, const CaptionItemOptions& options,
               CaptionJobListener& listener);

  // --- JobSource; next() is called on the reading thread ---
  std::optional<std::size_t> next() override;
  bool more() override;

  // The item, which may have a failure. Its bytes leave the list unless they go into the output.
  CaptionItem fetch(std::size_t number);
  const CaptionItem& look(std::size_t number) const;  // until forget()
  void set_image(std::size_t number, const SampleMember& image);
  // The item at work of that id.
  std::size_t number_of(const std::string& id) const;
  // Stores the caption. Errors as CaptionStore::add().
  void add(std::size_t number, const Json& fields, const std::string& caption);
  // Stores that the item repeats an earlier one. Errors as CaptionStore::add().
  void repeat(std::size_t number, const Json& fields);
  // The image that the item's repeats; of one that repeats none the journal hears.
  std::optional<RepeatedImage> compare(std::size_t number, const ImageFingerprint& print);
  // Makes durable what has waited for long.
  void settle();
  // The item is over; those that wanted its place are asked about again.
  CaptionItem forget(std::size_t number);

  void fail(std::size_t number, const ErrorInfo& error) override;
  bool stop_requested() override { return listener_.stop_requested(); }
  void on_failed(std::size_t number, const ErrorInfo& error) override;

  // Items that need no work: done before, or given twice; failed in an earlier run.
  std::uint64_t skipped() const { return skipped_; }
  std::uint64_t failed_before() const { return failed_before_; }

 private:
  std::optional<CaptionItem> next_given();
  bool is_ours(const CaptionItem& item) const;
  bool is_wanted(CaptionItem& item);
  void check_form(const CaptionItem& item) const;

  CaptionInputs& inputs_;
  CaptionStore& store_;
  CaptionItemOptions options_;
  CaptionJobListener& listener_;
  mutable std::mutex mutex_;
  // At work, and until everybody knows what became of them: an item is never in neither.
  std::map<std::size_t, CaptionItem> at_work_;
  std::map<std::string, std::size_t> numbers_;  // of those, by id
  std::set<std::string> failed_now_;            // in this run
  std::vector<CaptionItem> later_;              // another at work has their place
  std::vector<CaptionItem> ready_;              // to be asked about again
  std::size_t count_ = 0;
  bool ended_ = false;  // the inputs gave their last item
  std::uint64_t skipped_ = 0, failed_before_ = 0;
};

}  // namespace tessera
