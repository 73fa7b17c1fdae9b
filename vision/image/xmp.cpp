// The XMP packet that says a picture was made by a model (IPTC, "Digital Source Type" NewsCodes).
#include <string>

#include "vision/image/png.h"

namespace tessera {

namespace {

constexpr std::string_view kSourceTypes = "http://cv.iptc.org/newscodes/digitalsourcetype/";

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
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

std::string digital_source_type(std::string_view xmp) {
  const std::size_t begin = xmp.find(kSourceTypes);
  if (begin == std::string_view::npos) return "";
  const std::string_view rest = xmp.substr(begin + kSourceTypes.size());
  return std::string(rest.substr(0, rest.find_first_of("\"'<> \t\r\n")));
}

}  // namespace tessera
