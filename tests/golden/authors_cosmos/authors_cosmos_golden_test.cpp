// Cosmos' autoregressive models drawn at random: codes of the given frames, the codes that follow
// greedily and their frames are those of the authors' code
// (assets/recipes/fixtures_authors_cosmos.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/core/io.h"
#include "engine/core/json.h"
#include "engine/decoding/method_parts.h"
#include "engine/families/folder_files.h"
#include "tests/golden/llamagen/text_folder.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/hashed_weights.h"
#include "tests/support/model_runner.h"
#include "tests/support/source_folder.h"
#include "tests/support/stream_run.h"
#include "tokenizers/visual/fsq_video_tokenizer.h"

namespace tessera::authors_cosmos_golden_test {
namespace {

constexpr std::int64_t kContextRows = 512;

const Json& rows() {
  static const Json rows = [] {
    const auto file = source_folder() / "tests/golden/authors_cosmos/models.json";
    return parse_json(read_file(file, std::size_t{1} << 20), file.string());
  }();
  return rows;
}

class Row {
 public:
  explicit Row(const Json& row)
      : row_(row),
        backend_(make_backend("cpu", {.threads = 2})),
        spec_(parse_family_config(config_of(row).dump(), "c")),
        grid_(row["keys"]["video_latent_shape"].get<std::vector<std::int64_t>>()),
        given_(row["given"].get<std::int64_t>()),
        codes_(row["codes"].get<std::vector<std::int32_t>>()),
        weights_(Checkpoint::from_tensors("hashed", hashed_weights(spec_.tensors))),
        tokenizer_(*backend_, *spec_.fsq, weights_, DType::kF32, TokenizerHalves::kBoth) {}

  // Codes of the frames that are given.
  std::vector<std::int32_t> encoded() const {
    const std::int64_t height = grid_[1] * 16, width = grid_[2] * 16;
    const std::vector<float> noise = hashed_values("clip", given_ * height * width * 3);
    const auto encoder = tokenizer_.video_encoder(narrow<int>(height), narrow<int>(width));
    std::vector<std::int32_t> out;
    for (std::int64_t i = 0; i < given_; ++i) {
      std::vector<float> frame(to_size(height * width * 3));
      for (std::size_t j = 0; j < frame.size(); ++j) {
        const float level = std::trunc((noise[to_size(i) * frame.size() + j] + 1.0f) * 128.0f);
        frame[j] = level / 255.0f * 2.0f - 1.0f;
      }
      const auto codes =
          encoder->push({DType::kF32, Shape{height, width, 3}, frame.data(), Device{}});
      if (codes) out.insert(out.end(), codes->begin(), codes->end());
    }
    return out;
  }
  std::vector<std::int32_t> begin() const {
    return {codes_.begin(), codes_.begin() + grids_given() * grid_[1] * grid_[2]};
  }

  std::vector<std::int32_t> written(const TensorEdit& edit = [](auto&) {}) const {
    const StreamModel model = loaded(edit);
    DecodeAids aids;
    aids.grammar = model.config().grammar();
    const DecodeMethod method = settle_method(decode_method("plain"), aids, std::ssize(codes_));
    const OwnedParts<float, KeyedRandom> parts(method, aids);
    const std::vector<std::int32_t> first = begin();
    StreamLoop loop(model,
                    image_limits(model, {.prompt_rows = 1,
                                         .window = method.window,
                                         .guided = false,
                                         .dists = true,
                                         .given_tokens = std::ssize(first)}),
                    parts.parts());
    const std::optional<CrossContext> seen = context(model);
    Stream item;
    item.prompt.ids.assign(to_size(spec_.model.max_prompt), 0);
    item.given = first;
    item.dist.guidance = 1.0;
    item.dist.temperature = 0;
    item.context = seen ? &*seen : nullptr;
    const auto results = run_streams(loop, {&item, 1});
    EXPECT_EQ(results[0].status, StreamStatus::kDone);
    return results[0].tokens;
  }
  const std::vector<std::int32_t>& codes() const { return codes_; }

  // Of the last code's logits, relative to the largest.
  double logits_off() const {
    const StreamModel model = loaded([](auto&) {});
    const std::optional<CrossContext> seen = context(model);
    ModelRunner runner(model, 1, 64);
    if (seen) runner.contexts = {&*seen};
    std::vector<float> rows;
    if (spec_.model.max_prompt > 0) rows = runner.prompt_rows({0});
    rows = joined(std::move(rows), runner.token_rows({codes_.begin(), codes_.end() - 1}));
    const std::vector<float> hidden = runner.forward({{0, rows}});
    const std::int64_t width = model.width(), count = std::ssize(hidden) / width;
    return relative_difference(runner.logits(row_of(hidden, count - 1, width)),
                               row_["logits"].get<std::vector<float>>());
  }

  // The largest difference of the levels that are recorded.
  int levels_off() const {
    const std::size_t grid = to_size(grid_[1] * grid_[2]);
    const auto decoder = tokenizer_.video_decoder(narrow<int>(grid_[1]), narrow<int>(grid_[2]));
    std::vector<int> levels;
    for (std::size_t at = 0; at < codes_.size(); at += grid) {
      for (const Tensor& frame :
           decoder->next(std::span(codes_).subspan(at, grid), at == 0 ? 1 : 8)) {
        for (const std::uint8_t level : tokenizer_.to_pixels(frame.view())) {
          levels.push_back(level);
        }
      }
    }
    const auto want = row_["levels"].get<std::vector<int>>();
    const auto step = row_["step"].get<std::size_t>();
    EXPECT_EQ(levels.size(), grid * 256 * 3 * (1 + 8 * to_size(grid_[0] - 1)));
    int out = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      out = std::max(out, std::abs(levels.at(i * step) - want[i]));
    }
    return out;
  }

 private:
  static Json config_of(const Json& row) {
    Json config = row["keys"];
    config["video_tokenizer"] = row["tokenizer"];
    return config;
  }
  StreamModel loaded(const TensorEdit& edit) const {
    ModelSpec spec = spec_;
    std::erase_if(spec.tensors,
                  [](const TensorSpec& one) { return one.name.starts_with("tokenizer."); });
    return load_edited(spec, Checkpoint::from_tensors("hashed", hashed_weights(spec.tensors)),
                       *backend_, edit);
  }
  std::int64_t grids_given() const { return 1 + (given_ - 1) / 8; }

  // Rows of the text and zeros after them.
  std::optional<CrossContext> context(const StreamModel& model) const {
    const auto count = row_["text"].get<std::int64_t>();
    if (count == 0) return std::nullopt;
    const std::int64_t width = spec_.model.transformer.context_width;
    std::vector<float> text = hashed_values("context", count * width);
    text.resize(to_size(kContextRows * width));
    return model.transformer().make_context(
        on_device(*backend_, text, {kContextRows, width}).view(), DType::kF32);
  }

  const Json& row_;
  std::unique_ptr<Backend> backend_;
  ModelSpec spec_;
  std::vector<std::int64_t> grid_;
  std::int64_t given_;
  std::vector<std::int32_t> codes_;
  Checkpoint weights_;
  FsqVideoTokenizer tokenizer_;
};

TEST(AuthorsCosmos, CodesAndFramesAreTheAuthors) {
  int texts = 0, stretched = 0, own_eps = 0, exact = 0;
  for (const Json& json : rows()) {
    SCOPED_TRACE(json["number"].dump());
    const Row row(json);
    EXPECT_EQ(row.encoded(), row.begin());
    EXPECT_EQ(row.written(), row.codes());
    EXPECT_LE(row.logits_off(), 1e-5);
    EXPECT_LE(row.levels_off(), 1);
    texts += json["text"].get<int>() > 0 ? 1 : 0;
    stretched += json["keys"]["apply_yarn"].get<bool>() ? 1 : 0;
    own_eps += json["keys"].contains("norm_eps") ? 1 : 0;
    exact += json["keys"].contains("precision") ? 1 : 0;
  }
  EXPECT_GE(texts, 4);
  EXPECT_GE(stretched, 3);
  EXPECT_GE(own_eps, 3);
  EXPECT_GE(exact, 1);
}

// Every key of their ModelConfig is read or known to change nothing.
TEST(AuthorsCosmos, KeysOfTheirConfigurationAreKnown) {
  for (const Json& row : rows()) {
    const TempFolder root;
    Json config = row["keys"];
    config["video_tokenizer"] = row["tokenizer"];
    write_hashed(root / "model.safetensors", parse_family_config(config.dump(), "c").tensors);
    for (const char* key : {"max_batch_size", "max_seq_len", "tensor_model_parallel_size"}) {
      config[key] = 1;
    }
    config["fuse_qkv"] = false;
    for (const char* key :
         {"tokenizer", "ckpt_dir", "ckpt_path", "original_seq_len", "vision_encoder",
          "mm_projector", "vision_encoder_in_channels", "num_video_frames", "video_height",
          "video_width", "yarn_scale", "yarn_beta_fast", "yarn_beta_slow", "original_latent_shape",
          "context_dim", "insert_cross_attn_every_k_layers", "pytorch_rope_version", "causal_mask",
          "norm_type"}) {
      if (!config.contains(key)) config[key] = nullptr;
    }
    put_file(root / "config.json", config.dump());
    const ModelSpec spec = load_model_spec(root.path(), {});
    ASSERT_NE(spec.account, nullptr);
    for (const std::string& line : spec.account->warnings()) ADD_FAILURE() << line;
  }
}

TEST(AuthorsCosmos, SwappedMatricesAreNoticed) {
  for (const Json& json : rows()) {
    const Row row(json);
    const auto swapped = row.written([](auto& tensors) {
      std::swap(tensors.at("layers.0.feed_forward.w1.weight"),
                tensors.at("layers.0.feed_forward.w3.weight"));
    });
    if (swapped != row.codes()) return;
  }
  ADD_FAILURE() << "all codes are the same";
}

}  // namespace
}  // namespace tessera::authors_cosmos_golden_test
