// The page at "/": one file with its styles and scripts, built from apps/serve/page.
#pragma once

#include <string>
#include <string_view>

#include <tessera/settings.h>

#include "engine/core/function_ref.h"
#include "engine/core/json.h"

namespace tessera {

namespace api = tessera_v0;

// As a browser gets it.
std::string_view page_text();
// Its Content-Security-Policy: what the page holds may run, by its hash, and nothing from elsewhere.
std::string page_policy(std::string_view page);

// GET /v1/settings: "task=image" to the settings that the task takes, with what this server does
// without them where that is its own choice. Error kUsage (E_FIELD) for another query.
using UsualSettings = FunctionRef<api::Settings(api::Task task)>;
Json settings_json(std::string_view query, UsualSettings usual);

}  // namespace tessera
