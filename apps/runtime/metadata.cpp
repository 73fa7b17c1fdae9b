// Readers of image metadata.
#include "apps/runtime/metadata.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/json.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

constexpr JsonLimits kStrangerLimits{std::size_t{4} << 20, 128, ErrorKind::kGeneral};
constexpr std::size_t kMaxFields = 256;
constexpr int kMaxGraphHops = 32;

std::string_view trim(std::string_view text) {
  while (!text.empty() && byte_of(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && byte_of(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

// Length of a JSON string at the start of `text`, quotes included; 0 if it does not end.
std::size_t quoted_length(std::string_view text) {
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return 0;
}

std::string unquote(std::string_view text) {
  const Json value = Json::parse(text.begin(), text.end(), nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string(text);
}

bool name_character(unsigned char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ' ' ||
         c == '_' || c == '-' || c == '/';
}

// "Steps: 20, Sampler: Euler a, Model: \"a, b\"" to fields; stops at what is no such list.
Fields parse_field_line(std::string_view line) {
  Fields fields;
  while (!line.empty() && fields.size() < kMaxFields) {
    line = trim(line);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) break;
    const std::string_view name = trim(line.substr(0, colon));
    if (name.empty() || !std::all_of(name.begin(), name.end(), name_character)) break;
    line = trim(line.substr(colon + 1));
    std::string value;
    std::size_t used = !line.empty() && line.front() == '"' ? quoted_length(line) : 0;
    if (used > 0) {
      value = unquote(line.substr(0, used));
    } else {
      used = std::min(line.find(','), line.size());
      value = trim(line.substr(0, used));
    }
    fields.emplace_back(name, std::move(value));
    line.remove_prefix(used);
    if (const std::size_t comma = line.find(','); comma != std::string_view::npos) {
      line.remove_prefix(comma + 1);
    } else {
      break;
    }
  }
  return fields;
}

const std::string* find_field(const Fields& fields, std::string_view name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

const std::string* find_text(const PngTexts& texts, std::string_view keyword) {
  for (const PngText& text : texts.texts) {
    if (text.keyword == keyword) return &text.text;
  }
  return nullptr;
}

std::string scalar_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  return "";
}

// A graph node by the link [id, slot] that points at it.
const Json* linked_node(const Json& graph, const Json& link) {
  if (!link.is_array() || link.empty() || !link[0].is_string()) return nullptr;
  const auto node = graph.find(link[0].get<std::string>());
  return node != graph.end() && node->is_object() ? &*node : nullptr;
}

const Json* input_of(const Json& node, const char* name) {
  const auto inputs = node.find("inputs");
  if (inputs == node.end() || !inputs->is_object()) return nullptr;
  const auto value = inputs->find(name);
  return value != inputs->end() ? &*value : nullptr;
}

// Follows conditioning links down to the node that holds the text; cycles end after some hops.
std::string conditioning_text(const Json& graph, const Json& link) {
  const Json* node = linked_node(graph, link);
  for (int hop = 0; node != nullptr && hop < kMaxGraphHops; ++hop) {
    const Json* text = input_of(*node, "text");
    if (text != nullptr && text->is_string()) return text->get<std::string>();
    const Json* next = text;
    for (const char* name : {"conditioning", "conditioning_1", "positive"}) {
      if (next == nullptr) next = input_of(*node, name);
    }
    node = next != nullptr ? linked_node(graph, *next) : nullptr;
  }
  return "";
}

void read_tessera(ImageMetadata& out, const std::string& block, const std::string& file) {
  try {
    out.facts = parse_facts(block, file, ErrorKind::kGeneral);
    out.origin = MetadataOrigin::kTessera;
  } catch (const Error& error) {
    // A block that looks like ours and is not: the image is still readable, the block is left
    // out.
    out.warnings.push_back(error.what());
  }
}

}  // namespace

std::string_view metadata_origin_name(MetadataOrigin origin) {
  switch (origin) {
    case MetadataOrigin::kNone:
      return "none";
    case MetadataOrigin::kTessera:
      return "tessera";
    case MetadataOrigin::kA1111:
      return "a1111";
    case MetadataOrigin::kStableDiffusionCpp:
      return "stable-diffusion.cpp";
    case MetadataOrigin::kComfyUi:
      return "comfyui";
  }
  return "";
}

Fields parse_a1111(std::string_view text) {
  const std::size_t last_break = text.rfind('\n');
  std::string_view line = last_break == std::string_view::npos ? text : text.substr(last_break + 1);
  Fields fields = parse_field_line(line);
  std::string_view before = last_break == std::string_view::npos ? "" : text.substr(0, last_break);
  if (fields.size() < 3) {  // no list of fields: all of it is the prompt
    fields.clear();
    before = text;
  }
  static constexpr std::string_view kNegative = "Negative prompt: ";
  std::string_view prompt = before, negative;
  const std::size_t inside = before.rfind("\nNegative prompt: ");
  if (before.starts_with(kNegative)) {
    prompt = "";
    negative = before.substr(kNegative.size());
  } else if (inside != std::string_view::npos) {
    prompt = before.substr(0, inside);
    negative = before.substr(inside + 1 + kNegative.size());
  }
  Fields out;
  out.emplace_back("Prompt", prompt);
  if (!negative.empty()) out.emplace_back("Negative prompt", negative);
  out.insert(out.end(), fields.begin(), fields.end());
  return out;
}

Fields parse_comfy_graph(std::string_view json, const std::string& file) {
  const Json graph = parse_json(json, file, kStrangerLimits);
  Fields fields;
  const auto add = [&fields](const char* name, const std::string& value) {
    if (!value.empty() && fields.size() < kMaxFields) fields.emplace_back(name, value);
  };
  const auto add_input = [&](const char* name, const Json& node, const char* input) {
    if (const Json* value = input_of(node, input)) add(name, scalar_text(*value));
  };
  bool any_node = false;
  if (graph.is_object()) {
    for (const auto& [id, node] : graph.items()) {
      if (!node.is_object() || !node.contains("class_type")) continue;
      any_node = true;
      const std::string type = scalar_text(node["class_type"]);
      if (type.find("KSampler") != std::string::npos) {
        if (const Json* link = input_of(node, "positive")) {
          add("Prompt", conditioning_text(graph, *link));
        }
        if (const Json* link = input_of(node, "negative")) {
          add("Negative prompt", conditioning_text(graph, *link));
        }
        for (const auto& [name, input] : {std::pair{"Seed", "seed"},
                                          {"Seed", "noise_seed"},
                                          {"Steps", "steps"},
                                          {"CFG scale", "cfg"},
                                          {"Sampler", "sampler_name"},
                                          {"Schedule type", "scheduler"},
                                          {"Denoising strength", "denoise"}}) {
          add_input(name, node, input);
        }
      }
      add_input("Model", node, "ckpt_name");
      if (type.find("Latent") != std::string::npos) {
        add_input("Width", node, "width");
        add_input("Height", node, "height");
      }
    }
  }
  if (!any_node) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_META_COMFY",
                 .file = file,
                 .where = "prompt",
                 .expected = "a graph of nodes with class_type",
                 .found = "other JSON"});
  }
  return fields;
}

ImageMetadata read_metadata(const std::filesystem::path& path, ErrorKind kind) {
  const PngTexts texts = read_png_texts(path, kind);
  ImageMetadata out;
  out.warnings = texts.warnings;
  out.digital_source_type = digital_source_type(texts.xmp);
  if (const std::string* parameters = find_text(texts, "parameters")) {
    out.fields = parse_a1111(*parameters);
    const std::string* version = find_field(out.fields, "Version");
    const bool sd_cpp = version != nullptr && version->starts_with("stable-diffusion.cpp");
    out.origin = sd_cpp ? MetadataOrigin::kStableDiffusionCpp : MetadataOrigin::kA1111;
    const std::string* block = find_field(out.fields, "Tessera");
    if (block != nullptr) read_tessera(out, *block, path.string());
    if (out.facts) {
      std::erase_if(out.fields, [](const auto& field) { return field.first == "Tessera"; });
    }
    return out;
  }
  if (const std::string* graph = find_text(texts, "prompt")) {
    try {
      out.fields = parse_comfy_graph(*graph, path.string());
      out.origin = MetadataOrigin::kComfyUi;
    } catch (const Error& error) {
      // Any program may have written a chunk of this name.
      out.warnings.push_back(error.what());
    }
  }
  return out;
}

}  // namespace tessera
