// What videos say of their making, and the file next to them.
#include "apps/runtime/video_facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/io.h"
#include "vision/image/xmp.h"

namespace tessera::video_facts_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

ImageFacts some_facts() {
  ImageFacts facts;
  facts.program = "tessera 0.1.0";
  facts.prompt = "a \"red\" <sphere> & a\nblue \xc3\xa9toile";
  facts.negative_prompt = "fog";
  facts.model = "model";
  facts.family = "emu3";
  facts.seed = 18446744073709551615u;
  facts.width = 64;
  facts.height = 48;
  facts.tokens = 100;
  facts.passes = 50;
  return facts;
}

TEST(VideoFacts, TheCommentIsTheBlockOfImages) {
  const ImageFacts facts = some_facts();
  const VideoTexts texts = video_texts(facts, {{"fps", 8}}, RecordFacts::kAll);
  Json comment = Json::parse(texts.comment);
  EXPECT_EQ(texts.comment.find('\n'), std::string::npos);
  EXPECT_EQ(comment.at("digital_source_type"), "trainedAlgorithmicMedia");
  EXPECT_EQ(comment.at("fps"), 8);
  comment.erase("digital_source_type");
  comment.erase("fps");
  const Json block = facts_json(facts);
  for (const auto& [name, value] : block.items()) {
    const bool later = name == "tokens" || name == "passes" || name == "tokens_per_pass";
    EXPECT_EQ(comment.contains(name), !later) << name;
    if (!later) {
      EXPECT_EQ(comment.at(name), value) << name;
    }
    comment.erase(name);
  }
  EXPECT_TRUE(comment.empty()) << comment;
  EXPECT_EQ(description_of(texts.xmp), texts.comment);
  EXPECT_EQ(digital_source_type(texts.xmp), "trainedAlgorithmicMedia");
}

TEST(VideoFacts, WithoutARecordTheMarkStays) {
  const VideoTexts texts = video_texts(some_facts(), {{"fps", 8}}, RecordFacts::kOnlyAiMark);
  EXPECT_EQ(Json::parse(texts.comment), (Json{{"digital_source_type", "trainedAlgorithmicMedia"}}));
  EXPECT_EQ(texts.xmp.find("sphere"), std::string::npos);
  EXPECT_EQ(digital_source_type(texts.xmp), "trainedAlgorithmicMedia");
}

TEST(XmpSidecar, StandsNextToTheFile) {
  EXPECT_EQ(xmp_sidecar("a/b.c.mp4"), "a/b.c.xmp");
  EXPECT_EQ(xmp_sidecar("a/name-%04d.png"), "a/name-%04d.xmp");
  EXPECT_EQ(xmp_sidecar("a/frames/"), "a/frames.xmp");
  const fs::path folder =
      fs::temp_directory_path() / ("tessera-sidecar-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  const VideoTexts texts = video_texts(some_facts(), Json::object(), RecordFacts::kAll);
  EXPECT_TRUE(save_xmp_sidecar(folder / "clip.mp4", texts.xmp, Publish::kNew));
  const std::string first = read_file(folder / "clip.xmp", 1 << 16, ErrorKind::kGeneral);
  EXPECT_EQ(description_of(first), texts.comment);
  EXPECT_FALSE(save_xmp_sidecar(folder / "clip.mp4", "other", Publish::kNew));
  EXPECT_EQ(read_file(folder / "clip.xmp", 1 << 16, ErrorKind::kGeneral), first);
  EXPECT_TRUE(save_xmp_sidecar(folder / "clip.mp4", "other", Publish::kReplace));
  EXPECT_EQ(read_file(folder / "clip.xmp", 1 << 16, ErrorKind::kGeneral), "other\n");
  fs::remove_all(folder);
}

TEST(XmpPacket, SaysWhatItWasHeardOnly) {
  EXPECT_EQ(digital_source_type(xmp_packet({.creator_tool = "x", .description = "y"})), "");
  EXPECT_EQ(description_of(xmp_packet({.creator_tool = "x", .made_by_model = true})), "");
  const std::string odd = "&amp; <rdf:li> \"'\t\r\n ]]> \xf0\x9f\x8e\xa8";
  EXPECT_EQ(description_of(xmp_packet({.description = odd})), odd);
  EXPECT_EQ(description_of(xmp_packet({.description = std::string("a\0\x01 b", 5)})), "a b");
}

}  // namespace
}  // namespace tessera::video_facts_test
