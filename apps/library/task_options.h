// What the tasks share of options, plans and errors.
#pragma once

#include <tessera/runtime.h>

#include "apps/library/guard.h"
#include "apps/library/installation.h"
#include "apps/library/named_settings.h"
#include "apps/runtime/caption_memory.h"
#include "apps/runtime/chat_question.h"
#include "apps/runtime/generate_request.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/written_text.h"
#include "engine/families/folder_files.h"

namespace tessera {

// "auto" or a name of storage_named(). Error kUsage (E_SETTING_VALUE).
std::optional<DType> storage_of(const std::string& dtype);
// Error kUsage (E_SETTING_VALUE).
[[noreturn]] void refuse_setting(std::string where, std::string expected, std::string found);
void check_seed(std::uint64_t seed);

// Device, threads, storage and slots, which all tasks have. Requests come one by one. Error kUsage
// for a dtype that there is not.
template <typename Options>
Options open_with(const Installation& place, const std::string& model,
                  const api::OpenOptions& options) {
  Options out;
  out.model = place.model(model);
  out.device = options.device;
  out.cuda = {.deterministic = options.deterministic, .tf32 = options.tf32};
  out.threads = options.threads;
  out.storage = storage_of(options.dtype);
  out.batch_size = options.slots;
  out.all_slots = true;
  return out;
}

// The same with method and draft model. Error kUsage.
GenerateOptions generating_options(const Installation& place, const std::string& model,
                                   const api::OpenOptions& options, const SettingValues& settings);

// Rows of Task tables: methods, and the groups "Size", "Video" and "Output".
std::vector<GroupRows> method_rows(Door door);
const SettingGroup& output_group(std::string_view title);

// What is known of every model; sizes and lengths are not.
api::ModelInfo model_info(api::Task task, const ModelSpec& spec, const std::string& name,
                          const Backend& backend, DType storage, const DecodeMethod& method);
// ModelInfo::notes: keys that nobody knows or follows, then `more` of the model's. Null = no files.
std::vector<std::string> model_notes(const FolderAccount* account,
                                     const std::vector<std::string>& more = {});

api::MemoryPlan public_plan(const MemoryPlan& plan);
api::MemoryPlan public_plan(const CaptionMemoryPlan& plan, const Backend& backend);

// How texts are decoded, and by which draft model; `settings` keeps what is neither. Error kUsage.
struct TextDecoding {
  DecodeMethod method;
  std::string draft;  // a model; empty = none
};
TextDecoding take_text_decoding(SettingValues& settings, std::int64_t max_tokens);
// The rows that it takes, for Task tables.
std::vector<GroupRows> text_decoding_rows();

// Error kUsage (E_CHAT_ROLE) for a role that there is not.
std::vector<ChatTurn> internal_turns(const std::vector<api::ChatTurn>& turns);

std::vector<api::TextToken> public_tokens(std::span<const TextToken> tokens);

// To whom a request belongs, or thrown where nobody listens.
void report_error(const api::OnError& listener, const ErrorInfo& error);

}  // namespace tessera
