// One run of the captioner for the images of a batch and each method.
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

class Listener final : public DescribeListener {
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

DescribeRequest request_of(const ToDescribe& image) {
  DescribeRequest request;
  request.id = image.id;
  request.prompt = kQuestion;
  request.number = std::stoull(content_hash(image.id), nullptr, 16);
  request.images.push_back({.image = image.image, .name = image.id});
  return request;
}

Json prune_json(const PruneChoice& prune) {
  Json options = Json::object();
  for (const PruneOption& option : prune.options) options[option.name] = option.value;
  return {{"keep", prune.budget.tokens ? Json(*prune.budget.tokens) : Json(prune.budget.ratio)},
          {"options", options}};
}

}  // namespace

CaptionDescriber::CaptionDescriber(const DescribeOptions& options, std::vector<Method> methods,
                                   std::function<void(std::string_view)> notice)
    : options_(options),
      methods_(std::move(methods)),
      notice_(std::move(notice)),
      task_(runtime_, options),
      at_once_(options.batch_size) {
  if (methods_.empty()) methods_.push_back({std::string(kNoMethod), {}});
  for (const Method& method : methods_) {
    endings_.push_back(endings_.empty() ? ".txt" : "." + method.name + ".txt");
    task_.set_pruning(method.prune);  // refuses what the model cannot serve
  }
}

std::vector<Described> CaptionDescriber::describe(std::span<const ToDescribe> images) {
  std::vector<Described> out(images.size());
  at_once_ = std::clamp<std::int64_t>(std::ssize(images), 1, options_.batch_size);
  for (const Method& method : methods_) {
    task_.set_pruning(method.prune);
    task_.set_texts_at_once(at_once_);
    Listener listener(notice_, at_once_);
    std::vector<DescribeRequest> requests;
    for (const ToDescribe& image : images) requests.push_back(request_of(image));
    runtime_.finish(task_.submit(std::move(requests), listener));
    for (std::size_t i = 0; i < images.size(); ++i) {
      const Caption& caption = listener.captions.at(images[i].id);
      if (caption.failed && !out[i].error) out[i].error = caption.error;
      out[i].texts.push_back(clean_caption(caption.text));
    }
  }
  return out;
}

Json CaptionDescriber::identity() const {
  Json methods = Json::object();
  for (const Method& method : methods_) methods[method.name] = prune_json(method.prune);
  return {{"model", task_.model_name()},
          {"model_files", model_digest(task_.model())},
          {"dtype", std::string(dtype_name(task_.storage()))},
          {"prompt", kQuestion},
          {"max_tokens", options_.max_tokens},
          {"methods", methods}};
}

CaptionMemoryPlan CaptionDescriber::plan(std::int64_t width, std::int64_t height) const {
  const PreprocessPlan image = plan_preprocess(task_.model().describe().policy, width, height);
  return task_.plan(kQuestion, {&image, 1});
}

}  // namespace tessera
