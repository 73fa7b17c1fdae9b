#include "apps/library/tasks.h"

#include "apps/library/task_options.h"
#include "apps/runtime/generation_parts.h"
#include "apps/runtime/output_settings.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr const TaskRow* kTasks[] = {&kImageTask, &kVideoTask, &kDescribeTask, &kCompleteTask,
                                     &kAnswerTask};
constexpr int kMaxThreads = 1024;

}  // namespace

const TaskRow& task_row(api::Task task) {
  for (const TaskRow* row : kTasks) {
    if (row->task == task) return *row;
  }
  refuse_request("E_TASK", "task", "one of Task's names", "another number");
}

void check_options(const TaskRow& task, const api::OpenOptions& options) {
  check_number(setting::kBatchSize, "slots", to_double(options.slots));
  if (options.threads < 0 || options.threads > kMaxThreads) {
    refuse_setting("threads", "an integer from 0 to " + std::to_string(kMaxThreads),
                   std::to_string(options.threads));
  }
  const auto refuse_unread = [&](bool read, const char* name, const std::string& given) {
    if (read || given.empty()) return;
    refuse_setting(name, std::string("nothing, as no model that ") + task.does + " reads it",
                   "'" + given + "'");
  };
  refuse_unread(task.reads.seed, "seed", options.seed == 0 ? "" : std::to_string(options.seed));
  refuse_unread(task.reads.prune, "prune", options.prune);
  refuse_unread(task.reads.text_encoder, "text_encoder", options.text_encoder.string());
  refuse_unread(task.reads.chat_template, "chat_template", options.chat_template.string());
  refuse_unread(task.reads.image_cache, "image_cache",
                options.image_cache == 0 ? "" : std::to_string(options.image_cache));
  refuse_unread(task.reads.mmproj, "mmproj", options.mmproj.string());
}

}  // namespace tessera
