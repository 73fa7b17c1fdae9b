// Models that are open, and one queue for all requests to them:
//
//   tessera::Runtime runtime;
//   const tessera::Model model = runtime.open();
//   const tessera::GeneratedImage made = runtime.generate(model, {.prompt = "a red cube"});
//   made.save_png("cube.png");
//
// or, for many requests at once, submit() each and step() until nothing is left. One thread owns a
// runtime; several runtimes are independent. Everything throws Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <tessera/request.h>

namespace tessera_v0 {

// Of the library that runs: "0.1.0".
[[gnu::visibility("default")]] std::string version();

struct RuntimeOptions {
  // Where Tessera is installed: helper programs in bin/, bundled models in share/tessera/. Empty:
  // found from the shared library; of the static one, from the program, else where it was
  // configured to be installed.
  std::filesystem::path prefix = {};
};

// Which model, and for what.
struct ModelRef {
  // A bundled name, a folder, a weight file, org/name[@revision] in the Hugging Face cache; empty =
  // the bundled model of the task, where there is one. Nothing is downloaded.
  std::string name = {};
  Task task = Task::kImage;
};

// What a task does not read is refused where it is given.
struct OpenOptions {
  std::string device = "auto";               // "cpu", "cuda", "cuda:1"
  int threads = 0;                           // 0 = one per core
  std::string dtype = "auto";                // how weights are stored: "auto", "f32", "bf16", "q8", "q4"
  std::int64_t slots = 1;                    // requests written at once, at most; changes no result
  Settings settings = {};                    // SettingPlace::kOpen of the task
  std::uint64_t seed = 0;                    // of descriptions that are sampled
  std::string prune = {};                    // pruner of visual tokens, by name; empty = none
  bool deterministic = false, tf32 = false;  // of CUDA devices
  // Folder of the text encoder, for models that read one's rows; empty = found with the model.
  std::filesystem::path text_encoder = {};
  std::filesystem::path chat_template = {};  // Jinja, of texts; empty = the model's own
  // The .gguf file of a captioner's image encoder; empty = found with the model.
  std::filesystem::path mmproj = {};
  // Bytes that a captioner may keep of encoded images, for when one comes again.
  std::uint64_t image_cache = 0;
};

// A model of a runtime. A value; close() ends it.
struct Model {
  std::uint64_t number = 0;
  friend bool operator==(Model, Model) = default;
};

struct ModelInfo {
  Task task = Task::kImage;
  std::string name = {}, family = {}, title = {}, licence = {};
  std::string device = {}, dtype = {}, method = {};  // as they are used
  std::int64_t width = 0, height = 0;                // pixels of what it generates
  std::int64_t frames = 0, rate = 0;                 // of its videos; frames a second
  std::int64_t max_first_frames = 0;                 // that it takes; 0 = none
  // What its files say that is not followed, a line each.
  std::vector<std::string> notes = {};
};

// Bytes, reckoned before anything is read.
struct MemoryPlan {
  std::uint64_t weights = 0, cache = 0, buffers = 0;
  std::uint64_t pixels = 0;                  // tokenizer or encoder of images, with its buffers
  std::uint64_t drafts = 0;                  // a draft model
  std::uint64_t process = 0;                 // program and libraries: an allowance
  std::uint64_t on_host = 0, on_device = 0;  // all of it, by place
  bool fits = true;
  std::string advice = {};  // where it does not: what would
};

// A request that was submitted.
struct Ticket {
  std::uint64_t number = 0;
  friend bool operator==(Ticket, Ticket) = default;
};

struct RuntimeStats {
  std::int64_t models = 0;               // that are open
  std::int64_t submitted = 0, over = 0;  // requests since the runtime was made
};

class [[gnu::visibility("default")]] Runtime {
 public:
  explicit Runtime(const RuntimeOptions& options = {});
  // Requests that are not over are dropped; their callbacks are not called.
  ~Runtime();
  Runtime(Runtime &&) noexcept;
  Runtime& operator=(Runtime&&) noexcept;

  // Opens and checks a model's files; weights are read when they are first needed. Error kModel;
  // kUsage for options that the model cannot serve.
  Model open(const ModelRef& which = {}, const OpenOptions& options = {});
  // Drops its requests, weights and caches.
  void close(Model model);
  ModelInfo info(Model model) const;

  // What requests such as this one would hold in all of the model's slots. Error kUsage as of submit().
  MemoryPlan plan(Model model, const ImageRequest& request) const;
  MemoryPlan plan(Model model, const VideoRequest& request) const;
  MemoryPlan plan(Model model, const DescribeRequest& request) const;
  MemoryPlan plan(Model model, const CompleteRequest& request) const;
  MemoryPlan plan(Model model, const AnswerRequest& request) const;

  // Checks the request and puts it in the queue. Error kUsage for a request that cannot be, kMemory
  // for one that does not fit. Nothing is written before step().
  Ticket submit(Model model, const ImageRequest& request, ImageCallbacks callbacks);
  Ticket submit(Model model, const VideoRequest& request, VideoCallbacks callbacks);
  Ticket submit(Model model, const DescribeRequest& request, DescribeCallbacks callbacks);
  Ticket submit(Model model, const CompleteRequest& request, CompleteCallbacks callbacks);
  Ticket submit(Model model, const AnswerRequest& request, AnswerCallbacks callbacks);
  // Many as one, with one ticket: one process reads their images ahead of the texts, and small ones
  // are encoded together. Each text is what it is alone.
  Ticket submit(Model model, std::vector<DescribeRequest> requests, DescribeAllCallbacks callbacks);

  // Writes on. False: nothing is left to be done. Throws errors of requests without on_error and what
  // a callback threw: the other requests go on with the next call. Throws errors of models and
  // devices, which end all requests of that model. No callback may call it (E_RUNTIME_CALLBACK).
  bool step();
  bool over(Ticket ticket) const;
  // Steps until it is over, other requests with it.
  void finish(Ticket ticket);
  // Ends a request, also out of a callback; no effect on one that is over.
  void cancel(Ticket ticket);
  RuntimeStats stats() const;

  // One request from beginning to end; others go on with it.
  GeneratedImage generate(Model model, const ImageRequest& request);
  std::vector<Image> generate_video(Model model, const VideoRequest& request);
  std::string describe(Model model, const DescribeRequest& request);
  std::string complete(Model model, const CompleteRequest& request);

 private:
  struct [[gnu::visibility("hidden")]] State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera_v0
