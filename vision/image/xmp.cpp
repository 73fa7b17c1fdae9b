// The XMP packet that says a picture was made by a model (IPTC, "Digital Source Type" NewsCodes).
#include <algorithm>
#include <string>

#include "engine/core/fault.h"
#include "engine/core/utf8.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

constexpr std::string_view kSourceTypes = "http://cv.iptc.org/newscodes/digitalsourcetype/";

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
    } else if (piece == "\"" && !plant("xmp_quote_kept")) {
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

}  // namespace

std::string ai_media_xmp(std::string_view creator_tool) {
  std::string out =
      "<?xpacket begin=\"\xef\xbb\xbf\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>\n"
      "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\">\n"
      " <rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\n"
      "  <rdf:Description rdf:about=\"\"\n"
      "    xmlns:xmp=\"http://ns.adobe.com/xap/1.0/\"\n"
      "    xmlns:Iptc4xmpExt=\"http://iptc.org/std/Iptc4xmpExt/2008-02-29/\"\n"
      "    xmp:CreatorTool=\"";
  out += escape_xml(creator_tool);
  out += "\"\n    Iptc4xmpExt:DigitalSourceType=\"";
  out += kSourceTypes;
  out += "trainedAlgorithmicMedia\"/>\n </rdf:RDF>\n</x:xmpmeta>\n<?xpacket end=\"w\"?>";
  return out;
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
