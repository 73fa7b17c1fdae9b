// The page at "/": one file with its styles and scripts, built from apps/serve/page.
#pragma once

#include <string>
#include <string_view>

#include "engine/core/json.h"

namespace tessera {

// As a browser gets it.
std::string_view page_text();
// Its Content-Security-Policy: what the page holds may run, by its hash, and nothing from elsewhere.
std::string page_policy(std::string_view page);

// GET /v1/settings: "task=image" to the settings that the task takes. Error kUsage (E_FIELD) for
// another query.
Json settings_json(std::string_view query);

}  // namespace tessera
