# Joins the page's parts into one file and writes it as a source: cmake -DFOLDER= -DOUT= -P embed.cmake
file(READ ${FOLDER}/page.html page)
file(READ ${FOLDER}/page.css styles)
set(scripts "")
set(parts dom server settings queue gallery describe start)
foreach(part ${parts})
  file(READ ${FOLDER}/${part}.js script)
  string(APPEND scripts "${script}")
endforeach()
string(REPLACE "<!-- styles -->" "<style>\n${styles}</style>" page "${page}")
string(REPLACE "<!-- scripts -->" "<script type=\"module\">\n${scripts}</script>" page "${page}")
string(FIND "${page}" ")PAGE\"" inside)
if(NOT inside EQUAL -1)
  message(FATAL_ERROR "the page holds what ends its text in the source")
endif()
file(WRITE ${OUT} "#include \"apps/serve/page.h\"

namespace tessera {

std::string_view page_text() {
  static constexpr std::string_view kPage = R\"PAGE(${page})PAGE\";
  return kPage;
}

}  // namespace tessera
")
