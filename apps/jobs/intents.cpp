// Intents by item.
#include "apps/jobs/intents.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/jobs/records.h"

namespace tessera {

Json intent_fields(const std::string& id, std::span<const IntendedFile> files) {
  Json list = Json::array();
  for (const IntendedFile& file : files) {
    list.push_back({{"p", file.name}, {"new", file.now}, {"old", nullptr}});
    if (!file.old.empty()) list.back()["old"] = file.old;
  }
  return {{"intent", id}, {"files", std::move(list)}};
}

void Intents::take(const Json& fields) {
  if (fields.value("st", std::string()) == "done") items_.erase(fields.value("id", std::string()));
  if (!fields.contains("intent")) return;
  OfItem read;
  for (const Json& file : fields.at("files")) {
    IntendedFile intended{file.at("p").get<std::string>(), file.at("new").get<std::string>(), ""};
    if (!file.at("old").is_null()) intended.old = file.at("old").get<std::string>();
    if (!is_plain_name(intended.name)) return;
    read.last.push_back(std::move(intended));
  }
  if (read.last.empty()) return;
  OfItem& item = items_[fields.at("intent").get<std::string>()];
  item.last = std::move(read.last);
  for (const IntendedFile& file : item.last) item.ours.emplace(file.name, file.now);
}

Intents::Known Intents::known(const std::string& id, const std::string& name,
                              const std::string& sum) const {
  const auto item = items_.find(id);
  if (item == items_.end()) return Known::kNothing;
  if (item->second.ours.contains({name, sum})) return Known::kOurs;
  for (const IntendedFile& file : item->second.last) {
    if (file.name == name) return file.old == sum ? Known::kBefore : Known::kChanged;
  }
  return Known::kNothing;
}

std::vector<IntendedFile> Intents::last(const std::string& id) const {
  const auto item = items_.find(id);
  return item == items_.end() ? std::vector<IntendedFile>() : item->second.last;
}

}  // namespace tessera
