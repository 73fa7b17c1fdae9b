#include "apps/runtime/logprobs_json.h"

#include <nlohmann/json.hpp>

#include "engine/core/index.h"

namespace tessera {

namespace {

Json choice_json(const TokenChoice& choice) {
  Json bytes = Json::array();
  for (const char byte : choice.bytes) bytes.push_back(byte_of(byte));
  return {{"token", choice.bytes}, {"logprob", choice.logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace

Json logprobs_json(std::span<const TextToken> tokens) {
  Json out = Json::array();
  for (const TextToken& each : tokens) {
    Json top = Json::array();
    for (const TokenChoice& one : each.top) top.push_back(choice_json(one));
    out.push_back(choice_json(each.token));
    out.back()["top_logprobs"] = std::move(top);
  }
  return out;
}

}  // namespace tessera
