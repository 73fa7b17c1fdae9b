// Requests of one listener on their way to texts: a thread reads and prepares images ahead, the
// lane's thread encodes, prunes and gives streams. Between two passes images of four views in all
// are encoded, or one image, so that texts at work wait for no more.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "apps/runtime/describe_model.h"
#include "apps/runtime/image_queue.h"
#include "apps/runtime/submission.h"

namespace tessera {

// Error kUsage (E_CHAT_IMAGES, E_STOP_TEXT) for a request about so many images that cannot be.
void check_describe_request(const DescribeRequest& request, std::size_t images);

class DescribeSubmission final : public Submission {
 public:
  // All are borrowed but the pruning. `slots`: texts that there could be at once.
  DescribeSubmission(DescribeModel& model, const StreamLane& lane,
                     std::shared_ptr<const DescribePruning> pruning, DescribeSource source,
                     std::int64_t slots, DescribeListener& listener);
  ~DescribeSubmission() override;

  LoopNeeds needs() const override { return {.slots = slots_}; }
  std::optional<NextStream> next(Wait wait) override;
  bool more() const override;
  Flow on_pass(const SubmissionPass& pass) override;
  bool drops(std::size_t number) const override;
  void on_logprobs(std::size_t number, std::span<const TokenLogprobs> of_tokens) override;
  void on_tokens(std::size_t number, std::span<const std::int32_t> tokens) override;
  std::optional<SlidingStream> on_done(std::size_t number, StreamResult&& result) override;
  void on_stopped(std::size_t number, StreamResult&& result) override;
  bool takes_fewer_slots() const override { return true; }
  void on_fewer_slots(std::int64_t had, std::int64_t have) override;
  void on_no_room(std::size_t number, const ErrorInfo& error) override;
  void on_over(const ErrorInfo* error) override;

 private:
  struct Work;
  struct Arrival;

  void begin();
  bool stop_asked();
  void arrive(Wait wait);
  void encode_together();
  bool goes_together(const Arrival& arrival) const;
  std::optional<NextStream> admit();
  std::unique_ptr<Work> prepare(Arrival& arrival) const;
  void make_stream(const DescribeRequest& request, std::uint64_t number, Work& work) const;
  void prepare_draft(const PreparedImages& prepared, Work& work) const;
  void show(Work& work, const std::string& more);
  void fail(Caption caption, const ErrorInfo& error);
  std::uint64_t seed_of(const DescribeRequest& request) const;

  DescribeModel& model_;
  const StreamLane& lane_;
  std::shared_ptr<const DescribePruning> pruning_;
  DescribeSource source_;
  std::int64_t slots_;
  DescribeListener& listener_;
  bool stopped_ = false, walls_known_ = false;
  std::size_t arrivals_ = 0;  // so far
  std::deque<Arrival> arrived_;
  std::map<std::size_t, std::unique_ptr<Work>> at_work_;  // by number of the stream
  std::unique_ptr<ImageQueue> queue_;                   // once the first stream is asked for
};

}  // namespace tessera
