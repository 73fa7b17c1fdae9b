// One run of the captioner for the pictures of a batch and each method.
#include "apps/jobs/describing.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/runtime/caption_model.h"
#include "apps/runtime/model_digest.h"

namespace tessera {

namespace {

constexpr const char* kQuestion = "Describe the picture.";

class Listener final : public CaptionListener {
 public:
  Listener(const std::function<void(std::string_view)>& notice, std::int64_t& at_once)
      : notice_(notice), at_once_(at_once) {}
  void on_caption(Caption&& caption) override {
    const std::string id = caption.id;
    captions.insert_or_assign(id, std::move(caption));
  }
  void on_notice(std::string_view text) override {
    if (notice_) notice_(text);
  }
  void on_fewer(std::int64_t /*had*/, std::int64_t have) override { at_once_ = have; }
  std::map<std::string, Caption> captions;

 private:
  const std::function<void(std::string_view)>& notice_;
  std::int64_t& at_once_;
};

CaptionRequest request_of(const ToDescribe& picture) {
  CaptionRequest request;
  request.id = picture.id;
  request.prompt = kQuestion;
  request.number = std::stoull(content_hash(picture.id), nullptr, 16);
  request.pictures.push_back({.image = picture.image, .name = picture.id});
  return request;
}

Json prune_json(const PruneChoice& prune) {
  Json options = Json::object();
  for (const PruneOption& option : prune.options) options[option.name] = option.value;
  return {{"keep", prune.budget.tokens ? Json(*prune.budget.tokens) : Json(prune.budget.ratio)},
          {"options", options}};
}

}  // namespace

CaptionDescriber::CaptionDescriber(const CaptionOptions& options, std::vector<Method> methods,
                                   std::function<void(std::string_view)> notice)
    : options_(options),
      methods_(std::move(methods)),
      notice_(std::move(notice)),
      pipeline_(options),
      at_once_(options.batch_size) {
  if (methods_.empty()) methods_.push_back({std::string(kNoMethod), {}});
  for (const Method& method : methods_) {
    endings_.push_back(endings_.empty() ? ".txt" : "." + method.name + ".txt");
    pipeline_.set_pruning(method.prune);  // refuses what the model cannot serve
  }
}

std::vector<Described> CaptionDescriber::describe(std::span<const ToDescribe> pictures) {
  std::vector<Described> out(pictures.size());
  at_once_ = std::clamp<std::int64_t>(std::ssize(pictures), 1, options_.batch_size);
  for (const Method& method : methods_) {
    pipeline_.set_pruning(method.prune);
    pipeline_.set_texts_at_once(at_once_);
    Listener listener(notice_, at_once_);
    std::size_t next = 0;
    pipeline_.run(
        [&]() -> std::optional<CaptionRequest> {
          if (next == pictures.size()) return std::nullopt;
          return request_of(pictures[next++]);
        },
        listener);
    for (std::size_t i = 0; i < pictures.size(); ++i) {
      const Caption& caption = listener.captions.at(pictures[i].id);
      if (caption.failed && !out[i].error) out[i].error = caption.error;
      out[i].texts.push_back(clean_caption(caption.text));
    }
  }
  return out;
}

Json CaptionDescriber::identity() const {
  Json methods = Json::object();
  for (const Method& method : methods_) methods[method.name] = prune_json(method.prune);
  return {{"model", pipeline_.model_name()},
          {"model_files", model_digest(pipeline_.model())},
          {"dtype", std::string(dtype_name(pipeline_.storage()))},
          {"prompt", kQuestion},
          {"max_tokens", options_.most_tokens},
          {"methods", methods}};
}

CaptionMemoryPlan CaptionDescriber::plan(std::int64_t width, std::int64_t height) const {
  const PreprocessPlan picture =
      plan_preprocess(pipeline_.model().describe().policy, width, height);
  const auto rows = pipeline_.model().prompt_ids(kQuestion, {&picture, 1}).size();
  return plan_captioning(pipeline_.model().spec(), pipeline_.backend(), pipeline_.storage(),
                         {.items = options_.batch_size,
                          .prompt_rows = static_cast<std::int64_t>(rows),
                          .grammar = VocabularyGrammar::line(
                              static_cast<std::size_t>(pipeline_.model().spec().model.vocab),
                              static_cast<std::size_t>(options_.most_tokens)),
                          .window = pipeline_.method().window,
                          .kv = pipeline_.storage(),
                          .laws = keeps_laws(pipeline_.method()),
                          .shape = pipeline_.method().shape()},
                         picture);
}

}  // namespace tessera
