// XMP packets; the one that says an image was made by a model has IPTC's "Digital Source Type"
// (NewsCodes).
#include "vision/image/xmp.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/core/utf8.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

constexpr std::string_view kSourceTypes = "http://cv.iptc.org/newscodes/digitalsourcetype/";
constexpr std::string_view kDescriptionBegin =
    "<dc:description><rdf:Alt><rdf:li xml:lang=\"x-default\">";
constexpr std::string_view kDescriptionEnd = "</rdf:li></rdf:Alt></dc:description>";

// XML 1.0, section 2.2: other characters may stand nowhere, not even as references.
bool is_xml_character(char32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c != 0xfffe && c != 0xffff);
}

// Text as the value of an attribute. Characters that XML does not have are left out; white space
// that a reader would turn into a space is written as a reference.
std::string escape_xml(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const std::string_view piece = text.substr(at, c.length);
    at += c.length;
    if (!c.valid || !is_xml_character(c.code)) continue;
    if (piece == "&") {
      out += "&amp;";
    } else if (piece == "<") {
      out += "&lt;";
    } else if (piece == ">") {
      out += "&gt;";
    } else if (piece == "\"") {
      out += "&quot;";
    } else if (piece == "'") {
      out += "&apos;";
    } else if (c.code < 0x20) {
      out += "&#" + std::to_string(static_cast<unsigned>(c.code)) + ";";
    } else {
      out += piece;
    }
  }
  return out;
}

// The other way round, for what escape_xml() writes.
std::string unescape_xml(std::string_view text) {
  static constexpr std::pair<std::string_view, char> kNames[] = {
      {"&amp;", '&'},   {"&lt;", '<'},  {"&gt;", '>'},   {"&quot;", '"'},
      {"&apos;", '\''}, {"&#9;", '\t'}, {"&#10;", '\n'}, {"&#13;", '\r'}};
  std::string out;
  while (!text.empty()) {
    const auto* const known =
        std::find_if(std::begin(kNames), std::end(kNames),
                     [&](const auto& name) { return text.starts_with(name.first); });
    out += known != std::end(kNames) ? known->second : text.front();
    text.remove_prefix(known != std::end(kNames) ? known->first.size() : 1);
  }
  return out;
}

}  // namespace

std::string xmp_packet(const XmpFacts& facts) {
  std::string out =
      "<?xpacket begin=\"\xef\xbb\xbf\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>\n"
      "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\">\n"
      " <rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\n"
      "  <rdf:Description rdf:about=\"\"\n"
      "    xmlns:xmp=\"http://ns.adobe.com/xap/1.0/\"\n"
      "    xmlns:Iptc4xmpExt=\"http://iptc.org/std/Iptc4xmpExt/2008-02-29/\"";
  if (!facts.description.empty()) {
    out += "\n    xmlns:dc=\"http://purl.org/dc/elements/1.1/\"";
  }
  if (!facts.creator_tool.empty()) {
    out += "\n    xmp:CreatorTool=\"" + escape_xml(facts.creator_tool) + "\"";
  }
  if (facts.made_by_model) {
    out += "\n    Iptc4xmpExt:DigitalSourceType=\"";
    out += kSourceTypes;
    out += "trainedAlgorithmicMedia\"";
  }
  if (facts.description.empty()) {
    out += "/>\n";
  } else {
    out += ">\n   ";
    out += kDescriptionBegin;
    out += escape_xml(facts.description);
    out += kDescriptionEnd;
    out += "\n  </rdf:Description>\n";
  }
  out += " </rdf:RDF>\n</x:xmpmeta>\n<?xpacket end=\"w\"?>";
  return out;
}

std::string ai_media_xmp(std::string_view creator_tool) {
  return xmp_packet({.creator_tool = std::string(creator_tool), .made_by_model = true});
}

std::string description_of(std::string_view packet) {
  const std::size_t begin = packet.find(kDescriptionBegin);
  if (begin == std::string_view::npos) return "";
  packet.remove_prefix(begin + kDescriptionBegin.size());
  return unescape_xml(packet.substr(0, packet.find(kDescriptionEnd)));
}

std::filesystem::path xmp_sidecar(const std::filesystem::path& file) {
  std::filesystem::path out = file.has_filename() ? file : file.parent_path();
  return out.replace_extension(".xmp");
}

bool save_xmp_sidecar(const std::filesystem::path& file, std::string_view packet, Publish publish) {
  return publish_file(xmp_sidecar(file), std::string(packet) + "\n", publish);
}

// Only where it is the property's value: other text may hold such an address too.
std::string digital_source_type(std::string_view xmp) {
  static constexpr std::string_view kBefore[] = {
      "DigitalSourceType=\"", "DigitalSourceType='", "DigitalSourceType>",
      "DigitalSourceType rdf:resource=\"", "DigitalSourceType rdf:resource='"};
  for (std::size_t at = xmp.find(kSourceTypes); at != std::string_view::npos;
       at = xmp.find(kSourceTypes, at + 1)) {
    const std::string_view before = xmp.substr(0, at);
    const auto ends = [&](std::string_view property) { return before.ends_with(property); };
    if (std::none_of(std::begin(kBefore), std::end(kBefore), ends)) continue;
    const std::string_view rest = xmp.substr(at + kSourceTypes.size());
    return std::string(rest.substr(0, rest.find_first_of("\"'<> \t\r\n")));
  }
  return "";
}

}  // namespace tessera
