// Sampling and acceptance, a block a row. The first kernel makes every row's law and tests its
// draft; the second one finds each item's first refused draft, draws the token behind windows that
// were right as a whole and redrafts the rows behind refused ones. Compiled without contracted
// products, so that its numbers are the host's.
#include <algorithm>
#include <bit>
#include <vector>

#include "engine/backend/cuda/judge_rules.cuh"
#include "engine/backend/cuda/launch.cuh"

namespace tessera::cuda {

namespace {

// Of one pass, all on the device.
struct PassArrays {
  const float* logits;
  const JudgedItem* items;
  const JudgedRow* rows;
  const std::int64_t* sides;  // where in `laws` this pass writes, and where the last one wrote
  float *processed, *laws;    // [rows, codes], [sides, rows, codes]
  RowRecord* records;
  JudgedCount* item_records;
  int codes;
};

__device__ BlockRow row_of(const PassArrays& pass, int row) {
  const std::int64_t begin = static_cast<std::int64_t>(row) * pass.codes;
  return {pass.processed + begin, pass.laws + pass.sides[0] + begin, pass.codes};
}

__device__ BlockTest test_of(const PassArrays& pass, int number) {
  const JudgedRow& row = pass.rows[number];
  const JudgedItem& item = pass.items[row.item];
  BlockTest out;
  out.row = row_of(pass, number);
  out.draft.kind = row.kind;
  out.draft.token = out.token = row.draft;
  out.draft.row = pass.laws + pass.sides[1] + static_cast<std::int64_t>(row.law_row) * pass.codes;
  out.draft.uniform = 1.0f / static_cast<float>(pass.codes);
  out.depth = static_cast<std::uint32_t>(number - item.first);
  out.position = item.position + out.depth;
  return out;
}

// The record of a token that stands by a row.
__device__ void put_figures(const BlockRow& row, int token, RowRecord& record, JudgeScratch& s) {
  const float own = row.probs[token];
  const double total = static_cast<double>(row.logits[token]) - log_of_probability(own);
  double sums[3] = {0, 0, 0};
  for (int id = judge_thread(); id < row.codes; id += judge_threads()) {
    const float p = row.probs[id];
    if (!(p > 0)) continue;
    if (comes_before(p, id, own, token)) sums[0] += static_cast<double>(p);
    const double log_p = static_cast<double>(row.logits[id]) - total;
    const double share = static_cast<double>(p) * log_p;
    sums[1] += share;
    sums[2] += share * log_p;
  }
  fold_lanes(sums, s);
  record.token = token;
  record.probability = static_cast<double>(own);
  record.above = sums[0];
  record.mean = sums[1];
  record.spread = sums[2];
}

__device__ void put_forced(int forced, RowRecord& record) {
  record.token = record.redraft = forced;
  record.probability = 1;
  record.above = record.mean = record.spread = 0;
}

__global__ __launch_bounds__(kJudgeLanes, 1) void judge_rows(PassArrays pass,
                                                             JudgeNumbers numbers) {
  __shared__ JudgeScratch s;
  const int number = static_cast<int>(blockIdx.x);
  const JudgedRow& row = pass.rows[number];
  const JudgedItem& item = pass.items[row.item];
  const float* cond = pass.logits + static_cast<std::int64_t>(row.cond) * pass.codes;
  const float* uncond =
      row.uncond < 0 ? nullptr : pass.logits + static_cast<std::int64_t>(row.uncond) * pass.codes;
  RowRecord record;
  const int broken = first_unsound_id(cond, uncond, pass.codes, s);
  if (broken >= 0) {
    record.unsound = broken % pass.codes;
    record.unsound_logit = broken < pass.codes ? cond[broken] : uncond[broken - pass.codes];
  } else if (row.forced >= 0) {
    put_forced(row.forced, record);
    record.accepted = row.draft == row.forced ? 1 : 0;
    record.strict = record.chance = row.draft == row.forced ? 1.0f : 0.0f;
  } else {
    make_law(item.law, cond, uncond, row_of(pass, number), s);
    if (row.draft >= 0) {
      const BlockTest test = test_of(pass, number);
      const BlockVerdict verdict = judge_draft(numbers, test, item, s);
      record.accepted = verdict.accepted ? 1 : 0;
      record.strict = verdict.strict;
      record.chance = verdict.chance;
      put_figures(test.row, verdict.token, record, s);
    }
  }
  if (judge_thread() == 0) pass.records[number] = record;
}

// Lowest place of the block at which something holds, `none` where it holds nowhere.
__device__ int first_place(bool holds, int place, int none, JudgeScratch& s) {
  const Word found = largest_word(holds ? ranked(1, place) : 0, s);
  return found == 0 ? none : id_of(found);
}

__global__ __launch_bounds__(kJudgeLanes, 1) void settle_rows(PassArrays pass,
                                                              JudgeNumbers numbers) {
  __shared__ JudgeScratch s;
  const int number = static_cast<int>(blockIdx.x);
  const JudgedRow& row = pass.rows[number];
  const JudgedItem& item = pass.items[row.item];
  const int place = number - item.first;
  int sound = item.rows, refused = item.rows;
  for (int begin = 0; begin < item.rows; begin += judge_threads()) {
    const int j = begin + judge_thread();
    const RowRecord* other = j < item.rows ? &pass.records[item.first + j] : nullptr;
    const int broken = first_place(other != nullptr && other->unsound >= 0, j, item.rows, s);
    const bool fails = other != nullptr && other->unsound < 0 && other->accepted == 0;
    const int fail = first_place(fails, j, item.rows, s);
    sound = broken < sound ? broken : sound;
    refused = fail < refused ? fail : refused;
  }
  // The last sound row has no draft behind it that counts.
  const int drafts = sound - 1;
  const bool right = refused >= drafts;
  if (place == 0 && judge_thread() == 0) {
    JudgedCount out;
    out.sound = sound;
    out.right = sound == 0 ? 0 : (right ? drafts : refused);
    out.tested = sound == 0 ? 0 : (right ? drafts : refused + 1);
    pass.item_records[row.item] = out;
  }
  if (place > drafts) return;
  RowRecord record = pass.records[number];
  if (right) {
    if (place < drafts) return;
    if (row.forced >= 0) {
      put_forced(row.forced, record);
    } else {
      const BlockTest test = test_of(pass, number);
      const int token = race(test.row, noise_at(item, test.position), numbers.fewest, s);
      put_figures(test.row, token, record, s);
    }
  } else {
    if (place <= refused || numbers.tail == JudgeTail::kDrop) return;
    record.redraft = row.forced;
    if (row.forced < 0) {
      BlockTest old = test_of(pass, number);
      if (place == drafts) old.draft.kind = DraftKind::kNone;
      record.redraft = redraft(numbers, old, item, s);
    }
  }
  // Others may read what this row's test came to: that is not written again.
  if (judge_thread() != 0) return;
  RowRecord& to = pass.records[number];
  to.token = record.token;
  to.redraft = record.redraft;
  to.probability = record.probability;
  to.above = record.above;
  to.mean = record.mean;
  to.spread = record.spread;
}

std::size_t bytes_of_records(const JudgeLimits& limits) {
  return static_cast<std::size_t>(limits.rows) * sizeof(RowRecord) +
         static_cast<std::size_t>(limits.items) * sizeof(JudgedCount);
}

class CudaRowJudge final : public RowJudge {
 public:
  CudaRowJudge(CudaBackend& backend, const JudgeMethod& method, const JudgeLimits& limits)
      : backend_(backend),
        stream_(backend.stream()),  // chooses the device of what follows
        limits_(limits),
        sides_(method.laws ? 2 : 1),
        side_(limits.rows * limits.codes),
        processed_(allocate_device(static_cast<std::size_t>(side_) * sizeof(float))),
        laws_(allocate_device(static_cast<std::size_t>(side_ * sides_) * sizeof(float))),
        records_(allocate_device(bytes_of_records(limits))),
        host_records_(allocate_pinned(bytes_of_records(limits))) {
    expects(limits.codes >= 1 && limits.codes <= kMostJudgedCodes && limits.rows >= 1 &&
                limits.items >= 1,
            "rows that a device judges");
    numbers_ = {.rule = method.rule,
                .tail = method.tail,
                .group_size = static_cast<int>(std::min(method.group_size, 2 * limits.codes + 1)),
                .width = static_cast<int>(method.width),
                .listed = static_cast<int>(method.listed),
                .neighbours = static_cast<int>(method.neighbours),
                .max_gap = method.max_gap,
                .max_distance = method.max_distance,
                .delta = method.delta,
                .lambda = method.lambda,
                .peak = method.peak,
                .decay = method.decay};
    const auto fewest = fewest_gumbel_bits();
    numbers_.vectors = keep(method.vectors);
    numbers_.group_of = keep(method.group_of);
    numbers_.members = keep(method.members);
    numbers_.first = keep(method.first);
    numbers_.nearest = keep(method.nearest);
    numbers_.fewest = keep(std::span<const std::uint32_t>(fewest));
    // The tables are the caller's, and the one above goes with this call.
    check(cudaStreamSynchronize(stream_), "sending tables of a rule to the device");
  }

  void judge(const JudgedPass& pass) override {
    row_count_ = pass.rows.size();
    item_count_ = pass.items.size();
    expects(static_cast<std::int64_t>(row_count_) <= limits_.rows &&
                static_cast<std::int64_t>(item_count_) <= limits_.items,
            "a pass fits its judge");
    expects(pass.logits.dtype == DType::kF32 && pass.logits.shape[1] == limits_.codes,
            "rows of logits have one number a code");
    const std::int64_t begins[2] = {side_ * (passes_ % sides_), side_ * ((passes_ + 1) % sides_)};
    ++passes_;
    auto* const records = static_cast<RowRecord*>(records_.get());
    const PassArrays arrays = {
        .logits = pass.logits.f32(),
        .items = backend_.stage(pass.items),
        .rows = backend_.stage(pass.rows),
        .sides = backend_.stage(std::span<const std::int64_t>(begins)),
        .processed = static_cast<float*>(processed_.get()),
        .laws = static_cast<float*>(laws_.get()),
        .records = records,
        .item_records = reinterpret_cast<JudgedCount*>(records + limits_.rows),
        .codes = static_cast<int>(limits_.codes)};
    const auto lanes = std::bit_ceil(static_cast<std::uint64_t>(limits_.codes));
    const Launch shape{
        .blocks = static_cast<std::int64_t>(row_count_),
        .threads = std::clamp(static_cast<int>(std::min<std::uint64_t>(lanes, kJudgeLanes)), kWarp,
                              kJudgeLanes)};
    launch(backend_, "judging rows", shape, judge_rows, arrays, numbers_);
    launch(backend_, "settling judged rows", shape, settle_rows, arrays, numbers_);
    check(cudaMemcpyAsync(host_records_.get(), records, bytes_of_records(limits_),
                          cudaMemcpyDeviceToHost, backend_.stream()),
          "fetching the records of a pass");
    waited_ = false;
  }

  std::span<const RowRecord> rows() override {
    wait();
    return {host_rows(), row_count_};
  }
  std::span<const JudgedCount> items() override {
    wait();
    return {reinterpret_cast<const JudgedCount*>(host_rows() + limits_.rows), item_count_};
  }

 private:
  const RowRecord* host_rows() const { return static_cast<const RowRecord*>(host_records_.get()); }
  void wait() {
    if (!waited_) backend_.synchronize();
    waited_ = true;
  }
  // A copy of a table on the device; null for none.
  template <typename T>
  const T* keep(std::span<const T> table) {
    if (table.empty()) return nullptr;
    tables_.push_back(allocate_device(table.size_bytes()));
    check(cudaMemcpyAsync(tables_.back().get(), table.data(), table.size_bytes(),
                          cudaMemcpyHostToDevice, backend_.stream()),
          "sending tables of a rule to the device");
    return static_cast<const T*>(tables_.back().get());
  }

  CudaBackend& backend_;
  cudaStream_t stream_;
  JudgeLimits limits_;
  std::int64_t sides_, side_;  // laws of a pass and of the one before; numbers of one side
  Buffer processed_, laws_, records_, host_records_;
  std::vector<Buffer> tables_;
  JudgeNumbers numbers_ = {};
  std::int64_t passes_ = 0;
  std::size_t row_count_ = 0, item_count_ = 0;
  bool waited_ = true;
};

class CudaRowJudgeMaker final : public RowJudgeMaker {
 public:
  explicit CudaRowJudgeMaker(CudaBackend& backend) : backend_(backend) {}
  std::unique_ptr<RowJudge> make(const JudgeMethod& method, const JudgeLimits& limits) override {
    return std::make_unique<CudaRowJudge>(backend_, method, limits);
  }

 private:
  CudaBackend& backend_;
};

}  // namespace

std::shared_ptr<RowJudgeMaker> make_row_judges(CudaBackend& backend) {
  return std::make_shared<CudaRowJudgeMaker>(backend);
}

}  // namespace tessera::cuda
