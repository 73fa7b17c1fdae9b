// Text (or a class number) to images: opens a model, checks requests against it before any weight
// is read, loads once, then generates what is submitted, batch_size images at once: a request
// begins when a slot is free, its image is emitted when it is finished. It depends on its own
// prompt, settings and seed alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/generate_request.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/runtime.h"

namespace tessera {

class CodePatches;

class GenerateTask {
 public:
  // Opens and checks the model's files; reads no weights. The runtime is borrowed. Error kModel;
  // kUsage (E_GEOMETRY) when the model cannot do options.width x options.height, (E_DECODE_...)
  // when the method cannot run.
  GenerateTask(Runtime& runtime, const GenerateOptions& options);
  // The same for a model that is already open; `shown_name` is recorded in images.
  GenerateTask(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
               std::string shown_name);
  // What is still submitted ends without another call.
  ~GenerateTask();
  GenerateTask(GenerateTask&&) noexcept;
  GenerateTask& operator=(GenerateTask&&) = delete;

  const ModelSpec& spec() const;
  const std::string& model_name() const;
  const DecodeMethod& method() const;  // settled
  // Which window an adaptive method settled on and why; empty otherwise.
  std::string window_report() const;
  DType storage() const;
  const Backend& backend() const;
  // Rough colours of the codes: the model's own, else learned from every image that is generated
  // while a listener wants traces.
  const CodePatches& code_patches() const;

  // Encodes prompts and settles settings. Error kUsage: prompt too long (E_PROMPT_LENGTH), empty,
  // not UTF-8, no class of the model (E_CLASS), a negative prompt where there is none.
  PreparedRequest prepare(const GenerateRequest& request) const;

  // What is held while these requests are written; `others`: bytes that a second model takes.
  MemoryPlan plan(std::span<const PreparedRequest> requests, std::size_t others = 0) const;

  // Reads the weights (once; a submission does so if need be). Error kModel, kMemory.
  void load();

  // Writes these requests; they begin in order. Returns at once: Runtime::step() does the work. The
  // listener is borrowed until on_over(), or until what it threw is thrown. Missing memory for the
  // loop ends the submission with Error kMemory, thrown by step().
  Ticket submit(std::vector<PreparedRequest> requests, GenerateListener& listener);
  Ticket submit(std::unique_ptr<GenerateSource> source, GenerateListener& listener);
  // submit() and Runtime::finish(): false when the listener stopped it.
  bool run(std::vector<PreparedRequest> requests, GenerateListener& listener);
  bool run(std::unique_ptr<GenerateSource> source, GenerateListener& listener);

  // Slots and passes of its loops.
  LaneStats stats() const;
  // Releases what is held besides weights: cache and buffers. Only where nothing is at work; the
  // next submission makes its own.
  void release();

  // Code rows and columns to pixels, for instance of an image decoded elsewhere. Needs load().
  Image decode_codes(std::span<const std::int32_t> codes) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
