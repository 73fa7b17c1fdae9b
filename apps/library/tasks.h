// The tasks that models are opened for. Each has a file open_*.cpp with its row, its requests and
// its callbacks; tasks.cpp lists the rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tessera/runtime.h>

#include "apps/library/installation.h"
#include "apps/library/named_settings.h"
#include "apps/library/open_task.h"

namespace tessera {

// Members of OpenOptions that not every task reads.
struct ReadOptions {
  bool seed = false, prune = false, text_encoder = false, chat_template = false, mmproj = false;
  bool image_cache = false;
};

struct TaskRow {
  api::Task task;
  const char* does;  // "generates images"
  ReadOptions reads;
  // What the task takes at a place.
  std::vector<GroupRows> (*settings)(api::SettingPlace place);
  // The runtime outlives what is opened. Errors of opening.
  std::unique_ptr<OpenTask> (*open)(Runtime& runtime, const Installation& place,
                                    const std::string& model, const api::OpenOptions& options);
};

extern constinit const TaskRow kImageTask, kVideoTask, kDescribeTask, kCompleteTask, kAnswerTask;

// Error kUsage (E_TASK) for a number that is no task's.
const TaskRow& task_row(api::Task task);

// Error kUsage (E_SETTING_VALUE) for options out of range, or that the task does not read.
void check_options(const TaskRow& task, const api::OpenOptions& options);

}  // namespace tessera
