// Reads the part of YAML that the manifests here are written in: block mappings and sequences of
// plain or double-quoted scalars, whole-line comments. All else is an error, so that what is read
// is what any YAML reader reads.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera {

class BlockYaml {
 public:
  // Plain integers become numbers, other scalars texts. Throws std::runtime_error with the line.
  static nlohmann::ordered_json parse(const std::string& text) {
    BlockYaml yaml(text);
    const nlohmann::ordered_json value = yaml.block(0);
    if (yaml.at_ < yaml.lines_.size()) yaml.fail("less indentation");
    return value;
  }

 private:
  using Json = nlohmann::ordered_json;
  struct Line {
    std::size_t number, indent;
    std::string text;  // without indentation
  };

  explicit BlockYaml(const std::string& text) {
    std::size_t number = 0;
    for (std::size_t begin = 0; begin < text.size(); ++number) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      const std::size_t indent = line.find_first_not_of(' ');
      if (indent == std::string::npos || line[indent] == '#') continue;
      lines_.push_back({number + 1, indent, line.substr(indent)});
    }
  }

  [[noreturn]] void fail(const std::string& expected) const {
    const std::size_t line = at_ < lines_.size() ? lines_[at_].number : 0;
    throw std::runtime_error("line " + std::to_string(line) + ": expected " + expected);
  }

  bool inside(std::size_t indent) const {
    return at_ < lines_.size() && lines_[at_].indent == indent;
  }
  bool is_item() const { return lines_[at_].text.starts_with("- "); }

  Json block(std::size_t indent) {
    if (!inside(indent)) fail("a block at column " + std::to_string(indent + 1));
    return is_item() ? sequence(indent) : mapping(indent);
  }

  Json sequence(std::size_t indent) {
    Json out = Json::array();
    while (inside(indent) && is_item()) {
      Line& line = lines_[at_];
      line.text = line.text.substr(2);
      line.indent += 2;  // what follows the dash begins a block of its own
      if (is_pair(line.text)) {
        out.push_back(mapping(indent + 2));
      } else {
        out.push_back(scalar(line.text));
        ++at_;
      }
    }
    return out;
  }

  Json mapping(std::size_t indent) {
    Json out = Json::object();
    while (inside(indent) && !is_item()) {
      const std::string& text = lines_[at_].text;
      if (!is_pair(text)) fail("a key and a colon");
      const std::size_t colon = text.find(':');
      const std::string key = text.substr(0, colon);
      if (out.contains(key)) fail("each key once, not " + key + " twice");
      const std::string rest = colon + 1 < text.size() ? text.substr(colon + 2) : "";
      const Json value = rest.empty() ? Json() : scalar(rest);
      ++at_;
      if (!rest.empty()) {
        out[key] = value;
      } else {
        if (at_ == lines_.size() || lines_[at_].indent <= indent) fail("a deeper block");
        out[key] = block(lines_[at_].indent);
      }
    }
    if (at_ < lines_.size() && lines_[at_].indent > indent) fail("the indentation of its block");
    return out;
  }

  // "key:" or "key: value" with a plain key.
  static bool is_pair(const std::string& text) {
    const std::size_t end =
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return end != 0 && end != std::string::npos && text[end] == ':' &&
           (end + 1 == text.size() || (text[end + 1] == ' ' && end + 2 < text.size()));
  }

  Json scalar(const std::string& text) const {
    if (text.front() == '"') {
      if (text.size() < 2 || text.back() != '"' ||
          text.substr(1, text.size() - 2).find_first_of("\"\\") != std::string::npos) {
        fail("a text in double quotes, without escapes");
      }
      return text.substr(1, text.size() - 2);
    }
    if (text.find_first_not_of("0123456789") == std::string::npos && text.size() < 10 &&
        (text.size() == 1 || text[0] != '0')) {
      return std::stoi(text);
    }
    static const std::vector<std::string> kOtherTypes = {"true", "false", "null", "yes", "no",
                                                         "on",   "off",   "y",    "n",   "~"};
    std::string low;
    for (const char c : text) low += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    for (const std::string& word : kOtherTypes) {
      if (low == word) fail("quotes around " + text);
    }
    const bool letter = (low[0] >= 'a' && low[0] <= 'z') ||
                        (low.size() > 2 && low[0] >= '0' && low[0] <= '9' && low.ends_with("gi"));
    if (!letter ||
        low.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-./") != std::string::npos) {
      fail("quotes around " + text);
    }
    return text;
  }

  std::vector<Line> lines_;
  std::size_t at_ = 0;
};

}  // namespace tessera
