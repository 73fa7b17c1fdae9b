#include "apps/serve/page.h"

#include <nettle/sha2.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/serve/answers.h"

namespace tessera {

namespace {

std::string sha256_base64(std::string_view text) {
  sha256_ctx state;
  sha256_init(&state);
  sha256_update(&state, text.size(), reinterpret_cast<const std::uint8_t*>(text.data()));
  std::string digest(SHA256_DIGEST_SIZE, '\0');
  sha256_digest(&state, digest.size(), reinterpret_cast<std::uint8_t*>(digest.data()));
  return to_base64(digest);
}

// The hash of each element that begins like this; 'none' where there is none.
std::string hashes_of(std::string_view page, std::string_view open, std::string_view close) {
  std::string out;
  for (std::size_t at = page.find(open); at != std::string_view::npos; at = page.find(open, at)) {
    at += open.size();
    const std::size_t end = std::min(page.find(close, at), page.size());
    out += " 'sha256-" + sha256_base64(page.substr(at, end - at)) + "'";
  }
  return out.empty() ? " 'none'" : out;
}

Json row_json(const api::SettingInfo& info) {
  Json out = {{"name", info.name},
              {"group", info.group},
              {"kind", info.kind},
              {"help", info.help},
              {"without", info.without},
              {"place", info.place == api::SettingPlace::kOpen ? "open" : "request"},
              {"changes_bytes", info.changes_bytes}};
  if (!info.of.empty()) out["of"] = info.of;
  if (!info.unit.empty()) out["unit"] = info.unit;
  if (!info.choices.empty()) out["choices"] = info.choices;
  if (info.kind == "number" || info.kind == "integer") {
    out["low"] = info.low;
    out["high"] = info.high;
    out["zero_is_off"] = info.zero_is_off;
  }
  return out;
}

}  // namespace

std::string page_policy(std::string_view page) {
  return "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; "
         "form-action 'none'; frame-ancestors 'none'; style-src" +
         hashes_of(page, "<style>", "</style>") + "; script-src" +
         hashes_of(page, "<script type=\"module\">", "</script>");
}

Json settings_json(std::string_view query, UsualSettings usual) {
  constexpr std::string_view kTask = "task=";
  const std::string_view name = query.starts_with(kTask) ? query.substr(kTask.size()) : "";
  std::string names;
  for (const auto& [each, task] : task_names()) {
    names += (names.empty() ? "task=" : ", ") + std::string(each);
    if (each != name) continue;
    Json list = Json::array();
    const api::Settings own = usual(task);
    for (const api::SettingInfo& info : api::setting_table(task)) {
      list.push_back(row_json(info));
      for (const api::Setting& one : own) {
        if (one.name == info.name) list.back()["without"] = one.value.text();
      }
    }
    return {{"object", "list"}, {"task", name}, {"data", list}};
  }
  refuse_field("query", "one of " + names,
               query.empty() ? "none" : "'" + escape_for_terminal(std::string(query), 64) + "'");
}

}  // namespace tessera
