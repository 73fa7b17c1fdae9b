// What a page of docs/ adds, as apply_page.sh left it.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace tessera::testing {

// The files that the page's blocks change; one that is there twice is a failure.
inline std::set<std::string> files_of(const std::string& page) {
  std::ifstream list(std::string(TESSERA_ADDED_TREE) + "/" + page + ".txt");
  std::set<std::string> files;
  for (std::string file; std::getline(list, file);) EXPECT_TRUE(files.insert(file).second) << file;
  return files;
}

// Lines that the page adds to files whose names end so, or takes from them.
inline std::vector<std::string> lines_of(const std::string& page, char sign,
                                         const std::string& ending = "") {
  std::ifstream diff(std::string(TESSERA_ADDED_TREE) + "/" + page + ".diff");
  EXPECT_TRUE(diff.is_open()) << page;
  std::vector<std::string> out;
  std::string file;
  for (std::string line; std::getline(diff, line);) {
    if (line.starts_with("+++ ")) {
      file = line;
    } else if (line.starts_with(sign) && !line.starts_with("---") && file.ends_with(ending)) {
      out.push_back(line.substr(1));
    }
  }
  return out;
}

}  // namespace tessera::testing
