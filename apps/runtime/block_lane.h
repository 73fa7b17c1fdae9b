// The lane of models that write a block a pass: one stream at a time, a stream a step.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "apps/runtime/lane.h"
#include "engine/decoding/block_loop.h"

namespace tessera {

// What a lane of blocks asks of its model.
class BlockLaneModel {
 public:
  virtual ~BlockLaneModel() = default;
  // Reads the weights; once. Error kModel, kMemory.
  virtual void load() = 0;
  virtual const BlockModel& blocks() const = 0;
  virtual const VocabularyGrammar& grammar() const = 0;
  virtual BlockLimits block_limits(const LoopNeeds& needs) const = 0;
};

class BlockLane final : public Lane {
 public:
  explicit BlockLane(BlockLaneModel& model) : model_(model) {}  // borrowed

  void submit(Ticket ticket, std::unique_ptr<Submission> submission);

  bool step(Wait wait) override;
  bool idle() const override { return submissions_.empty(); }
  bool has(Ticket ticket) const override;
  void cancel(Ticket ticket) override;
  void release() override;
  LaneStats stats() const override;

 private:
  struct Entry {
    Ticket ticket;
    std::unique_ptr<Submission> submission;
    bool ending = false;  // stopped, cancelled or failed
  };

  bool write_stream(Entry& entry, Wait wait);
  StreamResult run(Entry& entry, const NextStream& next);

  BlockLaneModel& model_;
  std::unique_ptr<BlockLoop> loop_;
  std::int64_t prompt_rows_ = 0;  // that the loop has room for
  std::vector<std::unique_ptr<Entry>> submissions_;
  std::size_t turn_ = 0;  // whose is asked first
  LaneStats stats_;
};

}  // namespace tessera
