// The prompt of an image in tiles at LLaVA-NeXT-7B's dimensions, as one pass and as the loop of
// texts takes it in, and the encoder of its tiles, next to the rate that cuBLASLt reaches.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/lab/bench/device_model.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/model_pass.h"
#include "engine/decoding/stream_loop.h"
#include "engine/families/language.h"
#include "vision/encoder/vision_encoder.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

struct PrefillPrompt {
  std::int64_t visual = 2340, text = 60;  // the Vicuna template and a question
  std::int64_t rows() const { return visual + text; }
};

ModelSpec llava_spec(bool quick, const PrefillPrompt& prompt) {
  ModelSpec spec;
  spec.layouts = {{"model.", "lm_head.weight"}};
  ModelConfig& model = spec.model.transformer;
  model.layers = quick ? 2 : 32;
  model.width = quick ? 64 : 4096;
  model.heads = model.kv_heads = quick ? 4 : 32;
  model.head_dim = model.width / model.heads;
  model.ffn_width = quick ? 128 : 11008;
  model.norm_eps = 1e-5f;
  model.rope.positions = prompt.rows() + 8;
  spec.model.vocab = quick ? 128 : 32064;
  spec.model.max_positions = model.rope.positions;
  spec.names = text_names(spec.model, spec.layouts.front());
  return spec;
}

// CLIP-L/14 at 336 pixels; the feature is what stands after its last layer but one.
VitSpec video_spec(bool quick) {
  VitSpec spec;
  spec.patch = quick ? 4 : 14;
  spec.width = quick ? 64 : 1024;
  spec.layers = quick ? 3 : 24;
  spec.run_layers = spec.layers - 1;
  spec.heads = quick ? 2 : 16;
  spec.mlp_width = quick ? 128 : 4096;
  spec.grid = quick ? 3 : 24;
  spec.class_token = true;
  spec.first_norm = true;
  spec.final_norm = VitFinalNorm::kUnused;
  return spec;
}

// Multiplications and additions of a prompt: layers, causal attention, the head of the last row.
double prompt_flops(const StreamModelConfig& config, std::int64_t rows) {
  const ModelConfig& lm = config.transformer;
  const double layer = to_double(lm.width) * to_double(lm.q_width() + 2 * lm.kv_width()) +
                       to_double(lm.q_width() * lm.width) +
                       3.0 * to_double(lm.ffn_width * lm.width);
  const double seen = to_double(rows) * to_double(rows + 1) / 2;
  return to_double(lm.layers) * (2 * layer * to_double(rows) + 4 * seen * to_double(lm.q_width())) +
         2 * to_double(lm.width) * to_double(config.vocab);
}

// Of one tile: patches, layers, attention of all rows to all.
double tile_flops(const VitSpec& spec) {
  const double rows = to_double(spec.places()), width = to_double(spec.width);
  const double layer = 4 * width * width + 2 * width * to_double(spec.mlp_width);
  return 2 * to_double(spec.grid * spec.grid * spec.patch_inputs()) * width +
         to_double(spec.run_layers) * (2 * layer * rows + 4 * rows * rows * width);
}

class Prefill {
 public:
  explicit Prefill(DeviceBench& bench)
      : bench_(bench), quick_(bench.options().quick), peak_(bench.product_rate()) {
    if (quick_) prompt_ = {20, 4};
  }

  void run() {
    texts();
    tiles();
  }

 private:
  void texts() {
    const ModelSpec spec = llava_spec(quick_, prompt_);
    NoiseSource source(text_tensors(spec.model, spec.layouts.front()));
    const StreamModel model =
        load_stream_model(spec.model, spec.names, source, bench_.backend(), DType::kBF16);
    const Tensor rows = bench_.random({prompt_.rows(), model.width()}, 3, 1.0f);
    std::vector<std::array<std::int64_t, 3>> places;
    for (std::int64_t i = 0; i < prompt_.rows(); ++i) places.push_back({i, i, i});
    one_pass(model, rows, places);
    loop(model, rows, places);
  }

  using Places = std::vector<std::array<std::int64_t, 3>>;

  // All rows at once, to the logits of the last one.
  void one_pass(const StreamModel& model, const Tensor& rows, const Places& places) {
    ModelPass pass(
        model, {.capacity = prompt_.rows() + 1, .prompt_rows = prompt_.rows(), .kv = DType::kBF16});
    const auto once = [&] {
      pass.cache().truncate(0, 0);
      pass.begin();
      pass.add_prompt_rows(0, std::as_const(rows).view(), places);
      pass.run_layers();
      pass.run_head(prompt_.rows() - 1, 1, 0);
      bench_.backend().synchronize();
    };
    emit("prefill.llava", model, once, "one pass");
  }

  // As captions are written: parts of 256 rows next to what others write, the first token drawn.
  void loop(const StreamModel& model, const Tensor& rows, const Places& places) {
    struct Keep final : StreamListener {
      void on_done(std::size_t, StreamResult&& result) override {
        if (result.status == StreamStatus::kFailed) throw Error(result.error);
      }
    } keep;
    const OwnedParts<float, KeyedRandom> parts(DecodeMethod{}, DecodeAids{});
    StreamLoop texts(model,
                     {.prompt_rows = prompt_.rows(),
                      .grammar = VocabularyGrammar::line(to_size(model.config().vocab), 1),
                      .kv = DType::kBF16},
                     parts.parts());
    const auto once = [&] {
      Tensor own = bench_.backend().allocate(DType::kF32, rows.shape());
      bench_.backend().copy(rows.view(), own.view());
      Stream item{.prompt = {.ids = {},
                             .rows = std::make_shared<const Tensor>(std::move(own)),
                             .positions = places,
                             .next_position = prompt_.rows()},
                  .kind = StreamKind::kText};
      item.dist.temperature = 0;
      texts.add(std::move(item));
      while (!texts.idle()) texts.step(keep);
    };
    emit("prefill.ttft", model, once, "the loop of texts, first token");
  }

  void emit(const std::string& name, const StreamModel& model, FunctionRef<void()> once,
            const std::string& how) {
    ProbePair probe;
    probe.before = bench_.read_rate();
    const Timing timing = bench_.time_waited(once);
    probe.after = bench_.read_rate();
    const ModelConfig& lm = model.config().transformer;
    Json object = bench_.start(name, bench_.backend().name());
    object["model"] = {{"family", "llava-next"},
                       {"dims", std::to_string(lm.layers) + "x" + std::to_string(lm.width)},
                       {"dtype", "bf16"},
                       {"kv_dtype", "bf16"},
                       {"weights", "noise:21"}};
    object["shape"] = {
        {"M", prompt_.rows()}, {"visual", prompt_.visual}, {"V", model.config().vocab}};
    finish(object, timing, to_double(to_index(model.weight_bytes())),
           prompt_flops(model.config(), prompt_.rows()), probe,
           name + ", " + std::to_string(prompt_.visual) + " visual tokens, " + how);
  }

  void finish(Json& object, const Timing& timing, double bytes, double flops,
              const ProbePair& probe, const std::string& what) {
    bench_.finish(object, timing, bytes, flops, probe);
    object["quality"] = nullptr;
    std::string text = what + ": " + fixed_digits(timing.median() * 1e3, 2) + " ms, " +
                       fixed_digits(object["tflops"].get<double>(), 0) + " Tflop/s";
    if (peak_) {
      const double share = object["tflops"].get<double>() / *peak_;
      object["peak_tflops"] = *peak_;
      object["share_of_peak"] = share;
      text += ", " + fixed_digits(100 * share, 0) + " % of gemm.peak";
    }
    bench_.emit(object, text);
  }

  void tiles() {
    const VitSpec spec = video_spec(quick_);
    NoiseSource source(vit_tensors(spec));
    std::map<std::string, Tensor> tensors;
    for (const TensorSpec& tensor : vit_tensors(spec)) {
      const ConstTensorView view = source.get(tensor.name);
      Tensor own = Tensor::host(DType::kF32, tensor.shape);
      std::copy_n(view.f32(), tensor.shape.elements(), own.f32());
      tensors.emplace(tensor.name, std::move(own));
    }
    const Checkpoint checkpoint = Checkpoint::from_tensors("noise", std::move(tensors));
    const VisionEncoder encoder(bench_.backend(), spec, checkpoint, DType::kBF16);
    const std::int64_t side = spec.grid * spec.patch, count = quick_ ? 2 : 5;
    const Tensor pixels = DeviceBench::noise({3, side, side}, 6, 1.0f);
    const std::vector<EncoderInput> images(to_size(count), EncoderInput{.pixels = pixels.view()});
    Arena arena = make_arena(
        bench_.backend(), VisionEncoder::scratch_bytes(spec, count * spec.grid * spec.grid, count));
    ProbePair probe;
    probe.before = bench_.read_rate();
    const Timing timing = bench_.time_waited([&] {
      encoder.encode(images, arena);
      bench_.backend().synchronize();
    });
    probe.after = bench_.read_rate();
    Json object = bench_.start("vit.encode", bench_.backend().name());
    object["model"] = {{"family", "clip"},
                       {"dims", std::to_string(spec.run_layers) + "x" + std::to_string(spec.width)},
                       {"dtype", "bf16"},
                       {"weights", "noise:21"}};
    object["shape"] = {{"tiles", count}, {"M", count * spec.places()}, {"pixels", side}};
    finish(
        object, timing, to_double(to_index(encoder.weight_bytes())),
        to_double(count) * tile_flops(spec), probe,
        "vit.encode, " + std::to_string(count) + " tiles of " + std::to_string(side) + " pixels");
  }

  DeviceBench& bench_;
  bool quick_;
  std::optional<double> peak_;
  PrefillPrompt prompt_;
};

}  // namespace

void run_device_prefill(DeviceBench& bench) { Prefill(bench).run(); }

}  // namespace tessera
