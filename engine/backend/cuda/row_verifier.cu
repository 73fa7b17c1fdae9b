// Sampling and acceptance, a block a row. The first kernel makes every row's distribution and tests its
// draft; the second one finds each item's first refused draft, draws the token after windows that
// were right as a whole and redrafts the rows after refused ones. Trees have kernels of their own
// in place of the second one (verify_tree_pass.cuh). Compiled without contracted products, so that
// its numbers are the host's.
#include <algorithm>
#include <bit>
#include <vector>

#include "engine/backend/cuda/verify_memory.cuh"
#include "engine/backend/cuda/verify_tree_pass.cuh"
#include "engine/backend/cuda/launch.cuh"

namespace tessera::cuda {

namespace {

__global__ __launch_bounds__(kVerifyLanes, 1) void verify_rows(PassArrays pass,
                                                             VerifyNumbers numbers) {
  __shared__ VerifyScratch s;
  const int number = static_cast<int>(blockIdx.x);
  const VerifiedRow& row = pass.rows[number];
  const VerifiedItem& item = pass.items[row.item];
  const float* cond = pass.logits + std::int64_t{row.cond} * pass.codes;
  const float* uncond =
      row.uncond < 0 ? nullptr : pass.logits + std::int64_t{row.uncond} * pass.codes;
  RowRecord record;
  BoundedTest bounded;
  const int broken = first_unsound_id(cond, uncond, pass.codes, s);
  if (broken >= 0) {
    record.unsound = broken % pass.codes;
    record.unsound_logit = broken < pass.codes ? cond[broken] : uncond[broken - pass.codes];
  } else if (row.forced >= 0) {
    put_forced(row.forced, record);
    record.accepted = row.draft == row.forced ? 1 : 0;  // of a line
    record.strict = record.chance = row.draft == row.forced ? 1.0f : 0.0f;
  } else {
    const BlockRow own = row_of(pass, number);
    make_logits(item.dist, cond, uncond, edits_of(pass, row), own);
    const bool tested = row.draft >= 0 && pass.nodes == nullptr;
    BlockTest test;
    if (tested) {
      test = test_of(pass, number);
      test.warm = item.dist.temperature == 0 && DeviceRules::reads_warm(numbers);
      if (test.warm) test.wins = DeviceRules::wins(numbers, test, make_warm(own, s), s);
    }
    cut_dist(item.dist, own, s);
    if (tested) {
      const BlockVerdict verdict = DeviceRules::verify(numbers, test, item, s);
      record.accepted = verdict.accepted ? 1 : 0;
      record.strict = verdict.strict;
      record.chance = verdict.chance;
      if (verdict.bounded) bounded = {1, verdict.p, verdict.q, verdict.mass};
      // What stands at temperature 0 by the row without it counts as the likeliest.
      put_figures(test.row, test.warm ? likeliest_of(test.row, s) : verdict.token, record, s);
      record.token = verdict.token;
      if (numbers.likeliest) record.likeliest = likeliest_of(test.row, s);
    }
  }
  if (verify_thread() != 0) return;
  pass.records[number] = record;
  if (pass.tests != nullptr) pass.tests[number] = bounded;
}

// The tests of an item's drafts under its budget, one after another.
struct Spent {
  int refused;         // drafts where none is
  float chance = 0;    // of the draft `place`
  bool right = false;  // it
};
__device__ Spent spend(const PassArrays& pass, const VerifiedItem& item, int drafts, int place) {
  Spent out;
  out.refused = drafts;
  double spent = item.spent;
  for (int j = 0; j < drafts; ++j) {
    const BoundedTest& test = pass.tests[item.first + j];
    const RowRecord& record = pass.records[item.first + j];
    const std::uint32_t position = item.position + static_cast<std::uint32_t>(j);
    float chance;
    bool right;
    if (test.bounded != 0) {
      const float left = excess_left<float>(item.budget, std::size_t{position} + 1,
                                            static_cast<std::size_t>(item.total), spent);
      float mass = test.mass;
      if (left < 1) mass = bounded_mass(mass, test.p, test.q, record.strict, left);
      chance = chance_of(mass, test.q);
      right = passes(chance_at(item, position, Purpose::kAccept).uniform(), mass, test.q);
    } else {  // nobody writes it again
      chance = record.chance;
      right = record.accepted != 0;
    }
    if (j == place) {
      out.chance = chance;
      out.right = right;
    }
    if (chance > record.strict) spent += chance - record.strict;
    if (right) continue;
    out.refused = j;
    break;
  }
  return out;
}

// A row whose test the budget decided: a draft that it refused after all is replaced.
__device__ void settle_bounded(const PassArrays& pass, int number, const Spent& spent,
                               VerifyScratch& s) {
  if (pass.tests[number].bounded == 0) return;
  RowRecord record = pass.records[number];
  if (record.accepted != 0 && !spent.right) {
    const BlockTest test = test_of(pass, number);
    const VerifiedItem& item = pass.items[pass.rows[number].item];
    const int token = draw_residual(test.row, test.draft, kNoFactor,
                                    chance_at(item, test.position, Purpose::kResidual), s);
    put_figures(test.row, token, record, s);
  }
  record.accepted = spent.right ? 1 : 0;
  record.chance = spent.chance;
  if (verify_thread() == 0) pass.records[number] = record;
}

__global__ __launch_bounds__(kVerifyLanes, 1) void settle_rows(PassArrays pass,
                                                              VerifyNumbers numbers) {
  __shared__ VerifyScratch s;
  const int number = static_cast<int>(blockIdx.x);
  const VerifiedRow& row = pass.rows[number];
  const VerifiedItem& item = pass.items[row.item];
  const int place = number - item.first;
  int sound = item.rows, refused = item.rows;
  for (int begin = 0; begin < item.rows; begin += verify_threads()) {
    const int j = begin + verify_thread();
    const RowRecord* other = j < item.rows ? &pass.records[item.first + j] : nullptr;
    const int broken = first_place(other != nullptr && other->unsound >= 0, j, item.rows, s);
    const bool fails = other != nullptr && other->unsound < 0 && other->accepted == 0;
    const int fail = first_place(fails, j, item.rows, s);
    sound = broken < sound ? broken : sound;
    refused = fail < refused ? fail : refused;
  }
  // The last sound row has no draft after it that counts.
  const int drafts = sound - 1;
  Spent spent;
  if (item.budget > 0) {
    spent = spend(pass, item, drafts, place);
    refused = spent.refused;
  }
  const bool apart = item.apart != 0, right = apart || refused >= drafts;
  if (place == 0 && verify_thread() == 0) {
    VerifiedCount out;
    out.sound = sound;
    if (sound > 0 && !apart) {
      out.right = right ? drafts : refused;
      out.tested = right ? drafts : refused + 1;
    }
    pass.item_records[row.item] = out;
  }
  if (place > drafts) return;
  if (item.budget > 0 && place < drafts && place <= refused) {
    return settle_bounded(pass, number, spent, s);
  }
  RowRecord record = pass.records[number];
  if (right) {
    if (place < drafts && !apart) return;
    if (row.forced >= 0) {
      put_forced(row.forced, record);
    } else {
      const BlockTest test = test_of(pass, number);
      const int token = race(test.row, noise_at(item, test.position), numbers.fewest, s);
      put_figures(test.row, token, record, s);
      if (numbers.likeliest) record.likeliest = likeliest_of(test.row, s);
    }
  } else {
    if (place <= refused || numbers.redraft_policy == VerifyRedraft::kDrop) return;
    record.redraft = row.forced;
    if (row.forced < 0) {
      BlockTest old = test_of(pass, number);
      if (place == drafts) old.draft.kind = DraftKind::kNone;
      record.redraft = redraft(numbers, old, item, s);
    }
  }
  // Others may read what this row's test came to: that is not written again, unless a budget
  // decides and nobody reads it.
  if (verify_thread() != 0) return;
  RowRecord& to = pass.records[number];
  to.token = record.token;
  to.redraft = record.redraft;
  to.likeliest = record.likeliest;
  to.probability = record.probability;
  to.above = record.above;
  to.mean = record.mean;
  to.spread = record.spread;
}

// Of items, then of rows: what a pass does not have is not fetched.
static_assert(sizeof(VerifiedCount) % alignof(RowRecord) == 0);
std::size_t bytes_of_records(std::int64_t items, std::int64_t rows) {
  return static_cast<std::size_t>(items) * sizeof(VerifiedCount) +
         static_cast<std::size_t>(rows) * sizeof(RowRecord);
}

// Nothing where drafts stand in a line.
std::size_t bytes_of_masses(const VerifyLimits& limits) {
  return limits.width == 0 ? 0
                           : static_cast<std::size_t>(limits.items * limits.codes) * sizeof(float);
}
std::size_t bytes_of_drawn(const VerifyLimits& limits) {
  if (limits.remembered > 0) return static_cast<std::size_t>(limits.rows) * sizeof(DrawnId);
  return limits.width == 0
             ? 0
             : static_cast<std::size_t>(limits.rows * (limits.width + 1)) * sizeof(DrawnId);
}

class CudaRowVerifier final : public RowVerifier, public DistributionMemory {
 public:
  CudaRowVerifier(CudaBackend& backend, const VerifyMethod& method, const VerifyLimits& limits)
      : backend_(backend),
        stream_(backend.stream()),  // chooses the device of what follows
        limits_(limits),
        sides_(method.dists ? 2 : 1),
        side_(limits.dist_rows() * limits.codes),
        processed_(
            allocate_device(static_cast<std::size_t>(limits.rows * limits.codes) * sizeof(float))),
        dists_(allocate_device(static_cast<std::size_t>(side_ * sides_) * sizeof(float))),
        records_(allocate_device(bytes_of_records(limits.items, limits.rows))),
        host_records_(allocate_pinned(bytes_of_records(limits.items, limits.rows))),
        tests_(method.budget
                   ? allocate_device(static_cast<std::size_t>(limits.rows) * sizeof(BoundedTest))
                   : Buffer(nullptr, [](void*) {})),
        masses_(allocate_device(bytes_of_masses(limits))),
        memory_(allocate_device(static_cast<std::size_t>(limits.remembered * limits.codes) *
                                sizeof(float))),
        drawn_(allocate_device(bytes_of_drawn(limits))),
        host_drawn_(allocate_pinned(bytes_of_drawn(limits))) {
    expects((method.siblings == VerifySiblings::kNone) == (limits.width == 0) &&
                limits.width <= kMaxSiblings,
            "candidates that a device verifies");
    expects(limits.width == 0 || limits.remembered == 0, "a memory of lines");
    expects(limits.codes >= 1 && limits.codes <= kMaxVerifiedCodes && limits.rows >= 1 &&
                limits.items >= 1,
            "rows that a device verifies");
    numbers_ = {.rule = DeviceRules::place_of(method.rule.name),
                .redraft_policy = method.redraft_policy,
                .siblings = method.siblings,
                .likeliest = method.likeliest};
    const auto fewest = fewest_gumbel_bits();
    std::ranges::copy(method.rule.numbers, numbers_.numbers);
    numbers_.reals = keep_table(method.rule.reals);
    for (std::size_t i = 0; i < method.rule.ids.size(); ++i) {
      numbers_.ids[i] = keep_table(method.rule.ids[i]);
    }
    numbers_.fewest = keep_table(std::span<const std::uint32_t>(fewest));
    // The tables are the caller's, and the one above goes with this call.
    check(cudaStreamSynchronize(stream_), "sending tables of a rule to the device");
  }

  void verify(const VerifiedPass& pass) override {
    row_count_ = pass.rows.size();
    item_count_ = pass.items.size();
    expects(static_cast<std::int64_t>(row_count_) <= limits_.rows &&
                static_cast<std::int64_t>(item_count_) <= limits_.items,
            "a pass fits its verifier");
    expects(pass.nodes.size() == (limits_.width > 0 ? row_count_ : 0), "trees have nodes");
    expects(pass.logits.dtype == DType::kF32 && pass.logits.shape[1] == limits_.codes,
            "rows of logits have one number a code");
    const std::int64_t begins[2] = {side_ * (passes_ % sides_), side_ * ((passes_ + 1) % sides_)};
    ++passes_;
    auto* const counts = static_cast<VerifiedCount*>(records_.get());
    const PassArrays arrays = {.logits = pass.logits.f32(),
                               .items = backend_.stage(pass.items),
                               .rows = backend_.stage(pass.rows),
                               .nodes = pass.nodes.empty() ? nullptr : backend_.stage(pass.nodes),
                               .sides = backend_.stage(std::span<const std::int64_t>(begins)),
                               .processed = static_cast<float*>(processed_.get()),
                               .dists = static_cast<float*>(dists_.get()),
                               .guest = pass.guest,
                               .masses = static_cast<float*>(masses_.get()),
                               .tests = static_cast<BoundedTest*>(tests_.get()),
                               .records = reinterpret_cast<RowRecord*>(counts + limits_.items),
                               .item_records = counts,
                               .edits = pass.edits.empty() ? nullptr : backend_.stage(pass.edits),
                               .codes = static_cast<int>(limits_.codes)};
    launch(backend_, "judging rows", shape_of(row_count_), verify_rows, arrays, numbers_);
    if (limits_.width == 0) {
      launch(backend_, "settling verified rows", shape_of(row_count_), settle_rows, arrays, numbers_);
    } else {
      launch(backend_, "walking trees", shape_of(item_count_), walk_tree, arrays, numbers_);
      launch(backend_, "redrafting trees", shape_of(row_count_), redraft_tree, arrays, numbers_);
    }
    check(cudaMemcpyAsync(host_records_.get(), counts,
                          bytes_of_records(limits_.items, static_cast<std::int64_t>(row_count_)),
                          cudaMemcpyDeviceToHost, backend_.stream()),
          "fetching the records of a pass");
    waited_ = false;
  }

  std::span<const RowRecord> rows() override {
    wait();
    return {host_rows(), row_count_};
  }
  std::span<const VerifiedCount> items() override {
    wait();
    return {host_counts(), item_count_};
  }
  std::span<const DrawnId> draw(std::span<const VerifiedDraw> draws, const float* guest) override {
    expects(limits_.width > 0 && std::ssize(draws) <= limits_.rows, "draws fit their verifier");
    const DrawArrays arrays = {.draws = backend_.stage(draws),
                               .dists = guest != nullptr ? guest : last_dists(),
                               .drawn = static_cast<DrawnId*>(drawn_.get()),
                               .codes = static_cast<int>(limits_.codes),
                               .width = static_cast<int>(limits_.width)};
    const std::size_t count = draws.size() * static_cast<std::size_t>(limits_.width + 1);
    launch(backend_, "drawing candidates", shape_of(draws.size()), draw_candidates, arrays,
           numbers_);
    return fetch_drawn(count);
  }
  const float* dists() const override { return static_cast<const float*>(dists_.get()); }

  DistributionMemory* memory() override { return limits_.remembered > 0 ? this : nullptr; }
  void keep(std::span<const KeptDistribution> dists) override {
    MemoryArrays arrays = memory_arrays();
    arrays.kept = backend_.stage(dists);
    launch(backend_, "keeping distributions", shape_of(dists.size()), keep_dists, arrays);
  }
  std::span<const DrawnId> race(std::span<const VerifiedDraw> draws) override {
    expects(std::ssize(draws) <= limits_.rows, "draws fit their verifier");
    MemoryArrays arrays = memory_arrays();
    arrays.draws = backend_.stage(draws);
    launch(backend_, "drawing by kept distributions", shape_of(draws.size()), race_dists, arrays,
           numbers_.fewest);
    return fetch_drawn(draws.size());
  }
  const float* kept() const override { return static_cast<const float*>(memory_.get()); }

 private:
  // Of the side that the last pass wrote.
  const float* last_dists() const {
    return static_cast<const float*>(dists_.get()) + side_ * ((passes_ + 1) % sides_);
  }
  // A pass's rows are over when distributions of the past are read: their place serves as scratch.
  MemoryArrays memory_arrays() const {
    return {.dists = last_dists(),
            .memory = static_cast<float*>(memory_.get()),
            .logits = static_cast<float*>(processed_.get()),
            .drawn = static_cast<DrawnId*>(drawn_.get()),
            .codes = static_cast<int>(limits_.codes)};
  }
  std::span<const DrawnId> fetch_drawn(std::size_t count) {
    check(cudaMemcpyAsync(host_drawn_.get(), drawn_.get(), count * sizeof(DrawnId),
                          cudaMemcpyDeviceToHost, backend_.stream()),
          "fetching candidates");
    backend_.synchronize();
    return {static_cast<const DrawnId*>(host_drawn_.get()), count};
  }
  Launch shape_of(std::size_t blocks) const {
    const auto lanes = std::bit_ceil(static_cast<std::uint64_t>(limits_.codes));
    return {.blocks = static_cast<std::int64_t>(blocks),
            .threads = std::clamp(static_cast<int>(std::min<std::uint64_t>(lanes, kVerifyLanes)),
                                  kWarp, kVerifyLanes)};
  }
  const VerifiedCount* host_counts() const {
    return static_cast<const VerifiedCount*>(host_records_.get());
  }
  const RowRecord* host_rows() const {
    return reinterpret_cast<const RowRecord*>(host_counts() + limits_.items);
  }
  void wait() {
    if (!waited_) backend_.synchronize();
    waited_ = true;
  }
  // A copy of a table on the device; null for none.
  template <typename T>
  const T* keep_table(std::span<const T> table) {
    if (table.empty()) return nullptr;
    tables_.push_back(allocate_device(table.size_bytes()));
    check(cudaMemcpyAsync(tables_.back().get(), table.data(), table.size_bytes(),
                          cudaMemcpyHostToDevice, backend_.stream()),
          "sending tables of a rule to the device");
    return static_cast<const T*>(tables_.back().get());
  }

  CudaBackend& backend_;
  cudaStream_t stream_;
  VerifyLimits limits_;
  std::int64_t sides_, side_;  // distributions of a pass and of the one before; numbers of one side
  Buffer processed_, dists_, records_, host_records_;
  Buffer tests_;   // of budgets
  Buffer masses_;  // of trees
  Buffer memory_;  // distributions that outlive passes
  Buffer drawn_, host_drawn_;
  std::vector<Buffer> tables_;
  VerifyNumbers numbers_ = {};
  std::int64_t passes_ = 0;
  std::size_t row_count_ = 0, item_count_ = 0;
  bool waited_ = true;
};

class CudaRowVerifierMaker final : public RowVerifierMaker {
 public:
  explicit CudaRowVerifierMaker(CudaBackend& backend) : backend_(backend) {}
  std::unique_ptr<RowVerifier> make(const VerifyMethod& method, const VerifyLimits& limits) override {
    if (DeviceRules::place_of(method.rule.name) < 0) return nullptr;
    return std::make_unique<CudaRowVerifier>(backend_, method, limits);
  }

 private:
  CudaBackend& backend_;
};

}  // namespace

std::shared_ptr<RowVerifierMaker> make_row_verifiers(CudaBackend& backend) {
  return std::make_shared<CudaRowVerifierMaker>(backend);
}

}  // namespace tessera::cuda
