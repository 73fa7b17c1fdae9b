// Captions of a job's images.
#include "apps/cli/batch_captions.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>

#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/prune_flags.h"
#include "apps/jobs/item_files.h"
#include "apps/runtime/caption_settings.h"
#include "apps/runtime/model_catalog.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_captions(const char* where, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_VALUE",
               .where = where,
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::vector<CaptionDescriber::Method> caption_methods_of(const BatchCaptionFlags& flags) {
  std::vector<CaptionDescriber::Method> methods;
  std::set<std::string> names;
  for (const std::string& name : flags.methods) {
    if (!names.insert(name).second)
      refuse_captions("--captions", "each method once", name + " twice");
    PruneFlags prune;
    if (name != kNoMethod) prune.method = name;
    methods.push_back({name, prune_choice(prune)});
  }
  return methods;
}

}  // namespace

void add_batch_caption_flags(CLI::App& app, BatchCaptionFlags& flags) {
  const std::string group = "Captions";
  app.add_option_function<std::vector<std::string>>(
         "--captions",
         [&flags](const std::vector<std::string>& methods) {
           flags.on = true;
           flags.methods = methods;
           // What stands for "given without a method".
           std::erase_if(flags.methods, [](const std::string& name) { return name.empty(); });
         },
         "also describe each image in a .txt next to it; with METHODs of --prune (or none) a text "
         "by each")
      ->expected(0, 64)
      ->type_name("METHOD")
      ->group(group);
  text_flag(
      app, "--captioner", flags.captioner,
      "who describes: bundled name, folder or org/name; default " + std::string(kDefaultCaptioner))
      ->group(group);
}

std::unique_ptr<CaptionDescriber> make_describer(const Session& session,
                                                 const BatchCaptionFlags& flags,
                                                 const DeviceFlags& device,
                                                 std::int64_t batch_size) {
  if (!flags.on) {
    if (flags.captioner) refuse_captions("--captioner", "--captions with it", "--captioner alone");
    return nullptr;
  }
  DescribeOptions options;
  options.model = flags.captioner.value_or("");
  options.device = device.device;
  options.cuda = cuda_choice(device);
  options.threads = narrow<int>(device.threads);
  options.batch_size = batch_size;
  options.max_tokens = truncate<std::int64_t>(*setting::kMaxTokens.fallback);
  options.method = text_method(setting::kTextDecode.text_fallback);
  return std::make_unique<CaptionDescriber>(
      options, caption_methods_of(flags),
      [&session](std::string_view text) { warn(session, text); });
}

void check_text_names(std::span<const SettledItem> items, const std::vector<std::string>& endings,
                      const std::string& file) {
  std::map<std::string, std::uint64_t> lines;
  for (const SettledItem& item : items) {
    for (const std::string& ending : endings) {
      const std::string name = name_next_to(item.name, ending);
      const auto [taken, is_new] = lines.emplace(name, item.item.line);
      if (is_new) continue;
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_NAME_COLLISION",
                   .file = file,
                   .where = "line " + std::to_string(item.item.line) + ", column 1",
                   .expected = "a name for each text",
                   .found = "\"" + name + "\", also of line " + std::to_string(taken->second),
                   .hint = "--name without dots, or other ids"});
    }
  }
}

}  // namespace tessera
