#include "apps/lab/bench/video_bench.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/lab/eval/eval_statistics.h"
#include "apps/lab/scene/video_set.h"
#include "apps/runtime/facts.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/video_source.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/decoding/decode_settings.h"
#include "video/frame_writer.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

SceneSetRequest held_out(std::uint64_t scene_seed, ScenePixels pixels) {
  return {.seed = scene_seed, .split = SceneSplit::kVal, .size = 64, .pixels = pixels};
}

std::vector<std::string> held_out_captions(std::uint64_t scene_seed, std::int64_t count) {
  std::vector<std::string> captions;
  for (std::int64_t i = 0; i < count; ++i) {
    captions.push_back(
        make_video_record(held_out(scene_seed, ScenePixels::kNone), 16, narrow<std::uint64_t>(i))
            .caption);
  }
  return captions;
}

// A sum over the frames' pixels, to tell videos apart.
class VideoCollector final : public VideoListener {
 public:
  void on_frame(std::int64_t, const Image& frame) override {
    for (const std::uint8_t byte : frame.rgb) sum_ = (sum_ ^ byte) * 0x100000001b3u;
  }
  void add(GeneratedVideo&& whole_video) {
    if (whole_video.status == ImageStatus::kFailed) throw Error(whole_video.error);
    seconds.push_back(whole_video.seconds);
    frames += whole_video.frames;
    rates.push_back(whole_video.facts.tokens_per_pass());
    meters.add(whole_video.meters);
    sums.push_back(sum_);
    sum_ = 0xcbf29ce484222325u;
  }

  std::vector<double> seconds, rates;
  std::int64_t frames = 0;
  DecodeMeters meters;
  std::vector<std::uint64_t> sums;

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325u;
};

struct VideoDuel {
  const VideoBenchOptions& options;
  std::vector<std::string> captions;

  void generate(VideoTask& task, std::size_t prompt, VideoCollector& collector) const {
    VideoRequest request;
    request.prompt = captions[prompt];
    request.sampling = options.sampling;
    request.seed = options.seed + prompt;
    request.frames = options.frames;
    const PreparedVideo whole_video = task.prepare(std::move(request));
    if (prompt == 0) check_memory(task.plan(whole_video), task.model_name());
    collector.add(generate_video(task, whole_video, collector));
  }

  // Both writers in turn, the first of each pair alternating.
  void run(VideoTask& plain, VideoTask& method, VideoCollector& by_plain,
           VideoCollector& by_method) const {
    for (std::size_t i = 0; i < captions.size(); ++i) {
      for (int k = 0; k < 2; ++k) {
        const bool is_plain = (k == 0) == (i % 2 == 0);
        generate(is_plain ? plain : method, i, is_plain ? by_plain : by_method);
      }
    }
  }
};

// One of several videos at work.
class Summed final : public VideoListener {
 public:
  void on_frame(std::int64_t, const Image& frame) override {
    for (const std::uint8_t byte : frame.rgb) sum = (sum ^ byte) * 0x100000001b3u;
  }
  void on_over(GeneratedVideo&& video) override { made = std::move(video); }

  std::uint64_t sum = 0xcbf29ce484222325u;
  GeneratedVideo made;
};

// All prompts through one submission.
struct Throughput {
  const VideoBatchBenchOptions& options;
  const std::vector<std::string>& captions;

  std::vector<Summed> run(VideoTask& task, std::size_t prompts) const {
    std::vector<Summed> heard(prompts);
    std::vector<VideoOrder> orders;
    for (std::size_t i = 0; i < prompts; ++i) {
      VideoRequest request;
      request.prompt = captions[i];
      request.sampling = options.sampling;
      request.seed = options.seed + i;
      request.frames = options.frames;
      orders.push_back({task.prepare(std::move(request)), &heard[i]});
    }
    task.runtime().finish(task.submit(std::move(orders)));
    for (const Summed& each : heard) {
      if (each.made.status == ImageStatus::kFailed) throw Error(each.made.error);
    }
    return heard;
  }
};

struct BatchRun {
  std::int64_t batch_size = 1;
  double seconds = 0, first_rate = 0;  // videos a second at the first size
  double at_work = 0;                  // share of slots
  std::vector<Summed> videos;
};

void report_batch(const VideoTask& task, const BatchRun& run, std::int64_t same,
                  BenchReport& report) {
  const DecodeMethod& method = task.method();
  const auto count = to_double(run.videos.size());
  std::int64_t frames = 0, tokens = 0, passes = 0;
  for (const Summed& each : run.videos) {
    frames += each.made.frames;
    tokens += each.made.facts.tokens;
    passes += each.made.facts.passes;
  }
  const double rate = count / run.seconds;
  Json object = report.start("video.batch." + std::to_string(run.batch_size));
  object["model"] = task.model_name();
  object["method"] = method_report(method);
  object["batch_size"] = run.batch_size;
  object["clips"] = run.videos.size();
  object["same_clips"] = same;
  object["videos_per_second"] = rate;
  object["frames_per_second"] = to_double(frames) / run.seconds;
  object["tokens_per_pass"] = to_double(tokens) / to_double(std::max<std::int64_t>(passes, 1));
  object["slots_at_work"] = run.at_work;
  object["speedup"] = rate / run.first_rate;
  report.emit(object);
  report.add_row(method.name + ", " + std::to_string(run.batch_size) + " at once",
                 std::to_string(run.videos.size()) + " videos, " + std::to_string(same) +
                     " equal to the first size's",
                 fixed_digits(rate, 3) + " videos a second",
                 fixed_digits(rate / run.first_rate, 2) + " times the first size's",
                 fixed_digits(to_double(frames) / run.seconds, 1) + " frames a second, " +
                     fixed_digits(100 * run.at_work, 0) + " % of the slots at work");
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

void report_video_duel(const VideoTask& task, const VideoCollector& by_plain,
                       const VideoCollector& by_method, BenchReport& report) {
  const DecodeMethod& method = task.method();
  std::vector<double> ratios;
  std::int64_t same = 0;
  for (std::size_t i = 0; i < by_plain.seconds.size(); ++i) {
    ratios.push_back(by_method.seconds[i] / by_plain.seconds[i]);
    same += by_plain.sums[i] == by_method.sums[i] ? 1 : 0;
  }
  const Interval rate = bootstrap_all(by_method.rates), ratio = bootstrap_median(ratios);
  const double fps = to_double(by_method.frames) / sum_of(by_method.seconds);
  Json object = report.start("video." + method.name);
  object["model"] = task.model_name();
  object["method"] = method_report(method);
  object["promise"] = guarantee_name(guarantee_of(method));
  object["clips"] = by_method.seconds.size();
  object["same_clips"] = same;
  object["tokens_per_pass"] = interval_json(rate);
  object["latency_ratio"] = interval_json(ratio);
  object["frames_per_second"] = fps;
  object["frames_per_second_plain"] = to_double(by_plain.frames) / sum_of(by_plain.seconds);
  object["meters"] = meters_json(by_method.meters);
  if (method.adaptive) object["why"] = task.window_report();
  report.emit(object);
  report.add_row(method.name + ", " + method.drafter + ", window " +
                     (method.adaptive ? "auto" : std::to_string(method.window)),
                 std::to_string(by_method.seconds.size()) + " videos, " + std::to_string(same) +
                     " equal to plain's",
                 text_of(rate, 2) + " tokens a pass", text_of(ratio, 2) + " of plain's time",
                 fixed_digits(fps, 1) + " frames a second, " +
                     fixed_digits(by_method.meters.mean_entropy(), 3) + " nats, z " +
                     fixed_digits(by_method.meters.z_score(), 1) + ", PIT " +
                     fixed_digits(by_method.meters.pit_statistic(), 2));
}

// A folder of its own below the system's, gone at the end.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("tessera-bench-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_video(const std::filesystem::path& file, const VideoRecord& record, std::int64_t frames) {
  FrameWriter writer(file, {.container = VideoContainer::kMatroska,
                            .codec = VideoCodec::kFfv1,
                            .width = record.size,
                            .height = record.size,
                            .tick = {1, kVideoRate}});
  for (std::int64_t i = 0; i < frames; ++i) {
    const std::size_t shown = to_size(i) % record.images.size();
    writer.put(record.images[shown].rgb, i);
  }
  writer.finish(frames);
}

// Starts the kernel's count of the largest resident set anew (proc(5), clear_refs); false where it
// does not let us.
bool restart_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

std::uint64_t peak_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) << 10;
  }
  return 0;
}

class OneCaption final : public DescribeListener {
 public:
  void on_caption(Caption&& caption) override {
    if (caption.failed) throw Error(caption.error);
    shown = caption.frames.size();
  }
  std::size_t shown = 0;
};

}  // namespace

void run_video_bench(const VideoBenchOptions& options, BenchReport& report) {
  const VideoDuel duel{options, held_out_captions(options.scene_seed, options.prompts)};
  GenerateOptions plain_options = options.pipeline;
  plain_options.method = {};
  plain_options.draft_model.clear();
  Runtime runtime;
  VideoTask plain(runtime, plain_options);
  for (const DecodeMethod& wanted : options.methods) {
    GenerateOptions method_options = plain_options;
    method_options.method = wanted;
    if (needs_of(wanted).draft_model) method_options.draft_model = options.pipeline.draft_model;
    VideoTask task(runtime, method_options);
    VideoCollector by_plain, by_method;
    duel.run(plain, task, by_plain, by_method);
    report_video_duel(task, by_plain, by_method, report);
  }
}

void run_video_batch_bench(const VideoBatchBenchOptions& options, BenchReport& report) {
  const std::vector<std::string> captions = held_out_captions(options.scene_seed, options.prompts);
  const Throughput throughput{options, captions};
  for (const DecodeMethod& wanted : options.methods) {
    GenerateOptions own = options.pipeline;
    own.method = wanted;
    if (!needs_of(wanted).draft_model) own.draft_model.clear();
    own.batch_size = *std::ranges::max_element(options.batch_sizes);
    Runtime runtime;
    VideoTask task(runtime, own);
    LoopNeeds needs = task.needs_of(task.prepare({.prompt = captions[0]}));
    needs.slots = own.batch_size;
    check_memory(task.plan(needs, /*encodes=*/false), task.model_name());
    throughput.run(task, 1);  // reads the weights
    double first_rate = 0;
    std::vector<std::uint64_t> first;
    for (const std::int64_t size : options.batch_sizes) {
      task.set_batch_size(size);
      const RuntimeStats before = runtime.stats();
      const double began = monotonic_seconds();
      BatchRun run{.batch_size = size, .videos = throughput.run(task, captions.size())};
      run.seconds = monotonic_seconds() - began;
      const RuntimeStats after = runtime.stats();
      run.at_work = to_double(after.slots_at_work - before.slots_at_work) /
                    to_double(std::max<std::uint64_t>(after.slot_passes - before.slot_passes, 1));
      if (first_rate == 0) first_rate = to_double(captions.size()) / run.seconds;
      run.first_rate = first_rate;
      std::int64_t same = 0;
      for (std::size_t i = 0; i < run.videos.size(); ++i) {
        if (first.size() <= i) first.push_back(run.videos[i].sum);
        same += run.videos[i].sum == first[i] ? 1 : 0;
      }
      report_batch(task, run, same, report);
    }
  }
}

void run_video_input_bench(const VideoInputBenchOptions& options, BenchReport& report) {
  const TemporaryFolder folder;
  const VideoRecord record =
      make_video_record(held_out(options.scene_seed, ScenePixels::kRender), 16, 0);
  Runtime runtime;
  DescribeTask task(runtime, options.captioner);
  task.load();
  double first_peak = 0;
  for (const std::int64_t seconds : options.seconds) {
    const std::int64_t frames = seconds * kVideoRate;
    const auto file = folder.path() / (std::to_string(seconds) + ".mkv");
    write_video(file, record, frames);
    task.release();  // every length begins alike
    const bool restarted = restart_peak();
    const double begin = monotonic_seconds();
    const std::vector<VideoScene> scenes = find_scenes(file, {.distance = 1}, [] { return false; });
    const double read = monotonic_seconds() - begin;
    DescribeRequest request;
    request.id = file.filename().string();
    request.prompt = "Describe the video.";
    request.images.resize(1);
    request.images[0].scene = scenes.at(0);
    request.images[0].frames.frames = options.frames;
    OneCaption listener;
    runtime.finish(task.submit({request}, listener));
    const auto peak = to_double(peak_bytes());
    if (first_peak == 0) first_peak = peak;
    rusage reader{};
    ::getrusage(RUSAGE_CHILDREN, &reader);
    Json object = report.start("video.input." + std::to_string(seconds) + "s");
    object["model"] = task.model_name();
    object["frames"] = frames;
    object["frames_shown"] = listener.shown;
    object["peak_bytes"] = peak;
    object["peak_restarted"] = restarted;
    object["peak_ratio"] = peak / first_peak;
    object["reader_peak_bytes"] = narrow<std::uint64_t>(reader.ru_maxrss) << 10;
    object["read_frames_per_second"] = to_double(frames) / read;
    object["seconds"] = monotonic_seconds() - begin;
    report.emit(object);
    report.add_row("input of " + std::to_string(seconds) + " s",
                   std::to_string(frames) + " frames, " + std::to_string(listener.shown) + " shown",
                   format_bytes(truncate<std::uint64_t>(peak)) + " at most",
                   fixed_digits(peak / first_peak, 3) + " times the first",
                   fixed_digits(to_double(frames) / read, 0) + " frames read a second");
  }
}

}  // namespace tessera
