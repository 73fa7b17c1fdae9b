#include "apps/studio/local_describer.h"

#include "apps/runtime/caption_settings.h"
#include "engine/core/index.h"
#include "engine/decoding/decode_settings.h"

namespace tessera {

void LocalDescriber::open(const CaptionSetup& setup) {
  if (task_ && opened_ == setup) return;
  task_.reset();  // before the new one: both together may not fit
  DescribeOptions options;
  options.model = setup.model;
  options.device = options_.device;
  options.cuda = options_.cuda;
  options.threads = options_.threads;
  options.max_tokens = truncate<std::int64_t>(*setting::kMaxTokens.fallback);
  options.method = text_method(setting::kTextDecode.text_fallback);
  options.prune.method = setup.prune_method;
  options.prune.budget.ratio = 1 - setup.prune_rate;
  options.helper = options_.helper;
  task_ = std::make_unique<DescribeTask>(runtime_, options);
  opened_ = setup;
}

void LocalDescriber::describe(const CaptionSetup& setup, const DescribeSource& next,
                              TextListener& listener, const std::function<bool()>& ends) {
  try {
    open(setup);
    task_->load();
    const Ticket ticket = task_->submit(next, listener);
    while (!runtime_.over(ticket)) {
      if (ends()) runtime_.cancel(ticket);
      runtime_.step();
    }
  } catch (...) {
    task_.reset();
    throw;
  }
}

}  // namespace tessera
