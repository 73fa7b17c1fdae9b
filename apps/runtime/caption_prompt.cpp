#include "apps/runtime/caption_prompt.h"

#include <algorithm>
#include <map>

#include "apps/runtime/sha256.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

using Place = std::array<std::int64_t, 3>;

Place everywhere(std::int64_t place) { return {place, place, place}; }

// Where every id of the prompt stands before anything is pruned, and the first place after it.
struct WholePlaces {
  std::vector<Place> of_id;
  std::int64_t next = 0;
};

// Ids of three axes: text counts on all three; an image that begins at s has (s + time, s + row,
// s + column) and text goes on after its highest.
WholePlaces whole_places(std::span<const std::int32_t> ids, std::int32_t image_id,
                         std::span<const std::vector<std::array<std::int32_t, 3>>> grids,
                         bool three_axes) {
  WholePlaces out;
  std::size_t image = 0, token = 0;
  std::int64_t next = 0, start = 0, highest = 0;
  for (const std::int32_t id : ids) {
    if (!three_axes || id != image_id) {
      out.of_id.push_back(everywhere(next++));
      continue;
    }
    if (token == 0) start = highest = next;
    const auto& offset = grids[image][token];
    Place place;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      place[axis] = start + offset[axis];
      highest = std::max(highest, place[axis]);
    }
    out.of_id.push_back(place);
    if (++token == grids[image].size()) {
      token = 0;
      ++image;
      next = highest + 1;
    }
  }
  out.next = next;
  return out;
}

// Embeddings of the ids after the last image.
std::vector<float> embedded_text(const TokenModel& model, std::span<const std::int32_t> ids) {
  const Shape shape{std::ssize(ids), model.width()};
  Tensor rows = model.backend().allocate(DType::kF32, shape);
  if (!ids.empty()) model.embed_prompt(ids, rows.view());
  Tensor host = Tensor::host(DType::kF32, shape);
  model.backend().download(rows.view(), host.view());
  model.backend().synchronize();
  return {host.view().f32(), host.view().f32() + shape.elements()};
}

void prune_after_projector(const TokenModel& model, std::span<const std::int32_t> text,
                            std::vector<PromptImage>& images) {
  const Hook hook{HookPoint::kAfterProjector};
  std::vector<float> words;
  for (PromptImage& image : images) {
    if (image.session == nullptr || !image.session->asks(hook)) continue;
    if (words.empty()) words = embedded_text(model, text);
    VisualRows& visual = image.visual;
    const MatrixView rows{visual.rows.data(), visual.block.count(), visual.width};
    std::vector<Signal> signals = {{.kind = SignalKind::kEmbeddings, .values = rows},
                                   {.kind = SignalKind::kTextEmbeddings,
                                    .values = {words.data(), std::ssize(text), visual.width}}};
    if (!image.verifier.empty()) {
      const auto count = std::ssize(image.verifier);
      signals.push_back(
          {.kind = SignalKind::kVerifierScores, .values = {image.verifier.data(), count, 1}});
    }
    const PrunePlan plan = image.session->select(hook, visual.block, signals);
    PrunedBlock pruned = apply(plan, visual.block, rows);
    visual.block = std::move(pruned.block);
    visual.rows = std::move(pruned.features);
  }
}

// The number in its whole image of each token of the block. Tokens of three axes are found by
// their place.
std::vector<std::size_t> numbers_of(const VisualBlock& block,
                                    const std::vector<std::array<std::int32_t, 3>>& grid) {
  std::map<std::array<std::int32_t, 3>, std::size_t> number;
  for (std::size_t i = 0; i < grid.size(); ++i) number[grid[i]] = i;
  std::vector<std::size_t> out;
  for (const VisualToken& token : block.tokens) out.push_back(number.at(token.position));
  return out;
}

}  // namespace

PromptRows build_prompt(const TokenModel& model, std::span<const std::int32_t> given,
                        std::int32_t image_id, std::vector<PromptImage> images,
                        std::int32_t video_id) {
  const bool three_axes = model.transformer().config().rope.three_axes();
  std::vector<std::int32_t> ids(given.begin(), given.end());
  if (video_id >= 0) std::replace(ids.begin(), ids.end(), video_id, image_id);
  // Positions of whole images: blocks carry them through any pruning.
  std::vector<std::vector<std::array<std::int32_t, 3>>> grids, offsets;
  std::int64_t placeholders = 0;
  for (const PromptImage& image : images) {
    grids.push_back(image.visual.positions);
    offsets.push_back(image.visual.offsets.empty() ? image.visual.positions
                                                     : image.visual.offsets);
    placeholders += image.visual.total;
  }
  expects(std::count(ids.begin(), ids.end(), image_id) == placeholders,
          "a placeholder for each visual token");
  const auto after = std::find(ids.rbegin(), ids.rend(), image_id).base();
  const std::span<const std::int32_t> rest =
      std::span<const std::int32_t>(ids).subspan(to_size(after - ids.begin()));
  prune_after_projector(model, rest, images);
  const WholePlaces whole = whole_places(ids, image_id, offsets, three_axes);

  PromptRows out;
  bool renumber = !three_axes && !images.empty();
  for (const PromptImage& image : images) {
    renumber = renumber && (image.session == nullptr ||
                            image.session->positions() == PositionPolicy::kRenumber);
  }
  std::vector<PlacedImage> placed(images.size());
  struct Source {
    std::int64_t image = -1;  // -1: text
    std::size_t row = 0;        // of the image's rows, or of the text
  };
  std::vector<Source> sources;
  std::vector<std::int64_t> text_rows;
  std::size_t image = 0, token = 0;
  std::vector<std::size_t> numbers;
  const auto after_last = to_size(after - ids.begin());
  std::vector<std::vector<std::size_t>> order(images.size());  // rows in the order of the prompt
  for (std::size_t i = 0; i < ids.size();) {
    if (ids[i] != image_id) {
      if (i >= after_last) text_rows.push_back(std::ssize(sources));
      sources.push_back({-1, out.text.size()});
      out.text.push_back(ids[i]);
      out.places.push_back(whole.of_id[i]);
      ++i;
      continue;
    }
    // Placeholders side by side take their rows in the order of the block, which a method may have
    // changed.
    if (token == 0) numbers = numbers_of(images[image].visual.block, grids[image]);
    std::size_t end = token + 1;
    while (end < grids[image].size() && ids[i + end - token] == image_id) ++end;
    for (std::size_t row = 0; row < numbers.size(); ++row) {
      if (numbers[row] < token || numbers[row] >= end) continue;
      placed[image].rows.push_back(std::ssize(sources));
      sources.push_back({to_index(image), row});
      out.places.push_back(whole.of_id[i + numbers[row] - token]);
      order[image].push_back(row);
    }
    i += end - token;
    token = end;
    if (token == grids[image].size()) {
      token = 0;
      ++image;
    }
  }
  out.next_place = whole.next;
  if (renumber) {
    for (std::size_t i = 0; i < out.places.size(); ++i) {
      out.places[i] = everywhere(to_index(i));
    }
    out.next_place = std::ssize(out.places);
  }

  // Rows: text is embedded as a whole and moved to its places.
  const std::int64_t width = model.width();
  const std::vector<float> words = embedded_text(model, out.text);
  Tensor host = Tensor::host(DType::kF32, Shape{std::ssize(sources), width});
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Source& source = sources[i];
    const float* from =
        source.image < 0 ? words.data() : nth(images, source.image).visual.rows.data();
    float* const row = host.view().f32() + to_index(i) * width;
    std::copy_n(from + source.row * to_size(width), width, row);
    out.keys.push_back(source.image < 0 ? key_of_id(out.text[source.row])
                                        : sha256_half({row, to_size(width)}));
  }
  out.rows = model.backend().allocate(DType::kF32, host.shape());
  model.backend().upload(host.view(), out.rows.view());
  model.backend().synchronize();

  for (std::size_t i = 0; i < images.size(); ++i) {
    placed[i].session = images[i].session;
    placed[i].total = images[i].visual.total;
    placed[i].block = images[i].visual.block;
    placed[i].block.tokens.clear();
    for (std::size_t k = 0; k < order[i].size(); ++k) {
      VisualToken moved = images[i].visual.block.tokens[order[i][k]];
      const Place& place = nth(out.places, placed[i].rows[k]);
      for (std::size_t axis = 0; axis < 3; ++axis) {
        moved.position[axis] = narrow<std::int32_t>(place[axis]);
      }
      placed[i].block.tokens.push_back(moved);
    }
  }
  for (const PlacedImage& entry : placed) {
    out.kept.push_back(entry.block);
    out.image_rows.push_back(entry.rows);
  }
  out.text_rows = text_rows;
  auto cuts = std::make_unique<LlmPruning>(model.transformer().config(), model.backend(),
                                           std::move(placed), std::move(text_rows), out.places);
  if (cuts->needed()) out.cuts = std::move(cuts);
  return out;
}

}  // namespace tessera
