// What an image says of itself, written and read back. Oracle: whatever the prompt, the negative
// prompt and the model's name hold, the facts that come out of the file are the facts that went in;
// the XMP packet is well-formed XML and still says what it must.
#include <nlohmann/json.hpp>

#include "apps/runtime/facts.h"
#include "apps/runtime/metadata.h"
#include "engine/core/utf8.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "vision/image/png.h"

namespace tessera::fuzz {
namespace {

// Any bytes as text: bytes that are no UTF-8 stand for the characters of their numbers. Prompts
// hold no NUL: jobs and flags refuse it.
std::string text_of(std::string_view bytes) {
  std::string out;
  const bool valid = is_valid_utf8(bytes);
  for (const char c : bytes) {
    if (c == '\0') continue;
    if (valid) {
      out += c;
    } else {
      append_utf8(out, static_cast<unsigned char>(c));
    }
  }
  return out;
}

ImageFacts facts_of(std::string_view input) {
  const std::size_t first = std::min(input.find('\0'), input.size());
  const std::string_view rest = input.substr(std::min(first + 1, input.size()));
  const std::size_t second = std::min(rest.find('\0'), rest.size());
  ImageFacts facts;
  facts.program = "tessera 0.1.0";
  facts.prompt = text_of(input.substr(0, first));
  if (second > 3) facts.expansion = {text_of(rest.substr(0, 2)), text_of(rest.substr(1, 2))};
  if (second > 0) facts.negative_prompt = text_of(rest.substr(0, second));
  facts.model = text_of(rest.substr(std::min(second + 1, rest.size())));
  facts.family = "f";
  facts.dtype = "f32";
  facts.backend = "cpu";
  facts.width = facts.height = 8;
  facts.tokens = facts.passes = 16;
  facts.dist.top_p = facts.dist.typical = facts.dist.guidance = facts.dist.temperature = 1;
  facts.method = decode_method("plain");
  return facts;
}

// --- XML, as simple as an independent reader can be -------------------------------------------

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ':' ||
         c == '-' || c == '_' || c == '.';
}

bool is_reference(std::string_view text) {
  static constexpr std::string_view kKnown[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
  for (const std::string_view known : kKnown) {
    if (text.starts_with(known)) return true;
  }
  if (!text.starts_with("&#")) return false;
  const std::size_t end = text.find(';');
  return end != std::string_view::npos && end > 2 && end < 10 &&
         text.substr(2, end - 2).find_first_not_of("0123456789") == std::string_view::npos;
}

// A tag without its brackets: name="value" pairs, each attribute once.
bool is_good_tag(std::string_view tag) {
  std::size_t at = 0;
  while (at < tag.size() && is_name(tag[at])) ++at;
  if (at == 0) return false;
  std::vector<std::string_view> seen;
  while (at < tag.size()) {
    const std::size_t space = at;
    while (at < tag.size() && (tag[at] == ' ' || tag[at] == '\n')) ++at;
    if (at == tag.size()) return true;
    const std::size_t begin = at;
    while (at < tag.size() && is_name(tag[at])) ++at;
    const std::string_view name = tag.substr(begin, at - begin);
    if (space == begin || name.empty()) return false;
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) return false;
    seen.push_back(name);
    if (tag.substr(at, 2) != "=\"") return false;
    const std::size_t end = tag.find('"', at + 2);
    if (end == std::string_view::npos) return false;
    for (std::size_t i = at + 2; i < end; ++i) {
      if (tag[i] == '<' || (tag[i] == '&' && !is_reference(tag.substr(i)))) return false;
    }
    at = end + 1;
  }
  return true;
}

bool is_xml_character(char32_t c) {
  return c == 9 || c == 10 || c == 13 || (c >= 0x20 && c <= 0xd7ff) ||
         (c >= 0xe000 && c <= 0xfffd) || c >= 0x10000;
}

bool is_well_formed(std::string_view xml) {
  for (std::size_t at = 0; at < xml.size();) {
    const Utf8Char c = decode_utf8(xml, at);
    if (!c.valid || !is_xml_character(c.code)) return false;
    at += c.length;
  }
  std::vector<std::string> open;
  for (std::size_t at = 0; at < xml.size();) {
    if (xml[at] != '<') {
      if (xml[at] != ' ' && xml[at] != '\n') return false;  // these packets hold no text
      ++at;
      continue;
    }
    if (xml.substr(at, 2) == "<?") {
      const std::size_t end = xml.find("?>", at);
      if (end == std::string_view::npos) return false;
      at = end + 2;
      continue;
    }
    const std::size_t end = xml.find('>', at);
    if (end == std::string_view::npos) return false;
    std::string_view tag = xml.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.starts_with("/")) {
      if (open.empty() || tag.substr(1) != open.back()) return false;
      open.pop_back();
      continue;
    }
    const bool empty = tag.ends_with("/");
    if (empty) tag.remove_suffix(1);
    if (!is_good_tag(tag)) return false;
    if (!empty) open.emplace_back(tag.substr(0, tag.find_first_of(" \n")));
  }
  return open.empty();
}

void check_round_trip(const ImageFacts& facts) {
  static const Image pixel(1, 1);
  const ImageTexts written = image_texts(facts, RecordFacts::kAll);
  const std::string file = encode_png(pixel, written.texts, written.xmp);
  const PngTexts read = parse_png_texts(file, "f.png");
  require(read.warnings.empty(), "the file is read without warnings");
  require(read.xmp == written.xmp, "the packet is the one that was written");
  require(read.texts.size() == 1 && read.texts[0].keyword == "parameters", "one text");
  std::string block;
  for (const auto& [name, value] : parse_a1111(read.texts[0].text)) {
    if (name == "Tessera") block = value;
  }
  require(!block.empty(), "the block of facts is found");
  try {
    const ImageFacts back = parse_facts(block, "f.png", ErrorKind::kGeneral);
    require(facts_json(back) == facts_json(facts), "the facts are those that were written");
    require(back.prompt == facts.prompt, "the prompt is the one that was written");
  } catch (const Error&) {
    require(false, "our own block is understood");
  }
}

void check_packet(std::string_view foreign) {
  const std::string xmp = ai_media_xmp(foreign);
  require(is_well_formed(xmp), "the packet is well-formed");
  require(digital_source_type(xmp) == "trainedAlgorithmicMedia", "the packet says what it must");
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace std::string_literals;
  tessera::fuzz::write_seeds_if_asked(
      {"a red cube"s, "a cube\nNegative prompt: b\nSteps: 2"s,
       "a \"b\\\" c\0less, \"light\"\0model: x, \"y\""s, "<a href=\"b\">&amp;\0 \0m<"s,
       "DigitalSourceType='http://cv.iptc.org/newscodes/digitalsourcetype/forged"s,
       "\xc2\x85\xe2\x80\xa8 \x7f\x01"s});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::fuzz;
  const std::string_view input = as_text(data, size);
  const tessera::ImageFacts facts = facts_of(input);
  check_round_trip(facts);
  check_packet(input);
  check_packet(facts.prompt);
  return 0;
}

// Pieces of the formats put into the text, next to libFuzzer's own changes.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  static const char* const kPieces[] = {"\"",
                                        "\\",
                                        "\\\"",
                                        "\n",
                                        ", ",
                                        ": ",
                                        "Tessera: ",
                                        "&",
                                        "<",
                                        ">",
                                        "\n\nSteps: 1, Seed: 2, Size: 3",
                                        "{}",
                                        "\xc2\x9b",
                                        "\xef\xbf\xbe",
                                        "\x1b"};
  Choice choice(seed);
  if (choice.one_in(3)) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(as_text(data, size));
  text.insert(choice.below(text.size() + 1), kPieces[choice.below(std::size(kPieces))]);
  return release(text, data, max_size);
}
