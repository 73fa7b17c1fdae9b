// Lines of a job's items and what happens to them.
#include "apps/cli/batch_reporter.h"

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/cli/commands.h"

namespace tessera {

BatchReporter::BatchReporter(const Session& session, Job job)
    : session_(session), job_(std::move(job)), progress_(session, job_.wanted) {}

void BatchReporter::on_progress(const GenerateProgress& progress) {
  progress_.show(progress, JobCounts{.done = done_,
                                     .failed = failed_,
                                     .skipped = job_.total - job_.wanted,
                                     .pending = job_.wanted - done_ - failed_,
                                     .total = job_.total});
}

void BatchReporter::on_done(const SettledItem& item, const ItemRecord& record,
                            const GeneratedImage& image, const Described& described) {
  ++done_;
  progress_.clear();
  const ImageFacts& facts = image.facts;
  const std::string path = (job_.folder / item.name).string();
  if (!session_.json) {
    char rest[120];
    std::snprintf(rest, sizeof rest,
                  "  seed %" PRIu64 "  %.2f s, %" PRId64 " passes, %.2f tokens a pass", facts.seed,
                  image.seconds, facts.passes, facts.tokens_per_pass());
    print_line(escape_for_terminal(path) + rest);
    if (!described.texts.empty()) print_line("  " + escape_for_terminal(described.texts.front()));
    return;
  }
  Json line = image_line(path, record.files.back().sha256, item.item.id, facts, image.seconds);
  for (std::size_t i = 0; i < job_.endings.size(); ++i) {
    put_caption(line, job_.endings[i], described.texts[i]);
  }
  print_json_line(line);
}

void BatchReporter::on_failed(const SettledItem& item, const ErrorInfo& error) {
  ++failed_;
  progress_.clear();
  if (session_.json) print_json_line(failure_json(item.item.id, "", error));
  warn(session_, "item " + item.item.id + ": " + format_error(error));
}

void BatchReporter::on_retry(const SettledItem& item, const ErrorInfo& error) {
  progress_.clear();
  warn(session_, "item " + item.item.id + " is tried again: " + format_error(error));
}

void BatchReporter::warn_of_memory(const std::string& what) {
  progress_.clear();
  warn(session_, "memory did not last: " + what + " from here on");
}

void BatchReporter::on_fewer(std::int64_t images) {
  warn_of_memory(std::to_string(images) + " images at once");
}

void BatchReporter::on_fewer_texts(std::int64_t texts) {
  warn_of_memory(std::to_string(texts) + " texts at once");
}

void BatchReporter::on_turns() {
  warn_of_memory("painter and captioner hold theirs one after the other");
}

}  // namespace tessera
