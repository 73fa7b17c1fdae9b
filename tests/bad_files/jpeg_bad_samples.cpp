// Bad JPEG and WebP files: stored good ones with a few bytes changed.
#include "tests/bad_files/image_bad_sample.h"
#include "tests/support/image_files.h"

namespace tessera {

namespace {

std::string changed(std::string file, std::size_t at, const std::string& bytes) {
  expects(at + bytes.size() <= file.size(), "the change lies inside the file");
  return file.replace(at, bytes.size(), bytes);
}

std::size_t place_of(const std::string& file, const std::string& marker) {
  const std::size_t at = file.find(marker);
  expects(at != std::string::npos, "the marker is there");
  return at;
}

const char kFrame[] = "\xff\xc0", kProgressive[] = "\xff\xc2", kScan[] = "\xff\xda";

// Without the first segment that begins with this marker.
std::string without(const std::string& file, const std::string& marker) {
  const std::size_t at = place_of(file, marker);
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(file[i]); };
  return file.substr(0, at) + file.substr(at + 2 + (byte(at + 2) << 8 | byte(at + 3)));
}

void add_headers(std::vector<ImageBadSample>& out) {
  const std::string good = golden_image("rgb420.jpg");
  const std::size_t frame = place_of(good, kFrame);
  const auto header = [&](const char* name, std::size_t at, const std::string& bytes,
                          const char* code, std::vector<std::string> words) {
    out.push_back({name, changed(good, frame + at, bytes), code, std::move(words)});
  };
  header("jpeg_precision_12", 4, "\x0c", "E_PICTURE_DATA", {"precision"});
  header("jpeg_height_0", 5, std::string(2, '\0'), "E_PICTURE_DATA", {"JPEG"});
  header("jpeg_width_0", 7, std::string(2, '\0'), "E_PICTURE_DATA", {"JPEG"});
  header("jpeg_65500_a_side", 5, "\xff\xdc\xff\xdc", "E_PICTURE_SIZE", {"65500x65500"});
  header("jpeg_65535_a_side", 5, "\xff\xff\xff\xff", "E_PICTURE_DATA", {"JPEG"});
  header("jpeg_five_components", 9, "\5", "E_PICTURE_DATA", {"JPEG"});
  header("jpeg_no_component", 9, std::string(1, '\0'), "E_PICTURE_DATA", {"JPEG"});
  header("jpeg_sampling_0", 11, std::string(1, '\0'), "E_PICTURE_DATA", {"ampling"});
  header("jpeg_sampling_15", 11, "\xff", "E_PICTURE_DATA", {"ampling"});
  header("jpeg_table_9", 12, "\x09", "E_PICTURE_DATA", {"JPEG"});
  header("jpeg_lossless", 1, "\xc3", "E_PICTURE_DATA", {"nsupported"});
  header("jpeg_hierarchical", 1, "\xc5", "E_PICTURE_DATA", {"nsupported"});
  out.push_back({"jpeg_no_quantisation",
                 without(without(good, "\xff\xdb"), "\xff\xdb"),
                 "E_PICTURE_DATA",
                 {"able"}});
  out.push_back({"jpeg_no_frame", without(good, kFrame), "E_PICTURE_DATA", {"SOF"}});
  const std::size_t codes = place_of(good, "\xff\xc4");
  out.push_back({"jpeg_codes_overflow",
                 changed(good, codes + 5, std::string(16, '\xff')),
                 "E_PICTURE_DATA",
                 {"Huffman"}});
  out.push_back({"jpeg_segment_length_0",
                 changed(good, codes + 2, std::string(2, '\0')),
                 "E_PICTURE_DATA",
                 {"length"}});
  const std::size_t scan = place_of(good, kScan);
  out.push_back({"jpeg_scan_of_nine", changed(good, scan + 4, "\x09"), "E_PICTURE_DATA", {"JPEG"}});
}

void add_streams(std::vector<ImageBadSample>& out) {
  const std::string good = golden_image("rgb420.jpg");
  const std::size_t scan = place_of(good, kScan);
  out.push_back({"jpeg_marker_only", "\xff\xd8\xff", "E_PICTURE_CUT", {"whole JPEG"}});
  out.push_back({"jpeg_without_picture", "\xff\xd8\xff\xd9", "E_PICTURE_DATA", {"no image"}});
  out.push_back({"jpeg_cut_in_tables", good.substr(0, 100), "E_PICTURE_CUT", {"whole JPEG"}});
  out.push_back({"jpeg_cut_in_scan", good.substr(0, scan + 40), "E_PICTURE_CUT", {"whole JPEG"}});
  out.push_back(
      {"jpeg_without_end", good.substr(0, good.size() - 2), "E_PICTURE_CUT", {"whole JPEG"}});
  out.push_back({"jpeg_scan_ends_early",
                 good.substr(0, scan + 40) + "\xff\xd9",
                 "E_PICTURE_CUT",
                 {"premature end"}});
  std::string ones = good;
  for (std::size_t i = scan + 14; i + 2 < ones.size(); i += 2)
    ones.replace(i, 2, std::string("\xff\0", 2));
  out.push_back({"jpeg_scan_of_ones", ones, "E_PICTURE_DATA", {"JPEG"}});
  const std::string layered = golden_image("progressive.jpg");
  const std::size_t last = layered.rfind(kScan);
  // The first scan again and again: it may be repeated, since it only sets what it sets already.
  const std::size_t first = place_of(layered, kScan);
  const std::string layer = layered.substr(first, layered.find("\xff\xc4", first) - first);
  const std::string body = layered.substr(0, layered.size() - 2);
  const auto repeated = [&](int times) {
    std::string file = body;
    for (int i = 0; i < times; ++i) file += layer;
    return file + "\xff\xd9";
  };
  out.push_back(
      {"jpeg_more_than_100_scans", repeated(120), "E_PICTURE_DATA", {"more than 100 scans"}});
  out.push_back({"jpeg_of_30_scans", repeated(20), "", {"rules"}});
  out.push_back({"jpeg_layers_cut", layered.substr(0, last), "E_PICTURE_CUT", {"whole JPEG"}});
  out.push_back({"jpeg_layers_65500",
                 changed(layered, place_of(layered, kProgressive) + 5, "\xff\xdc\xff\xdc"),
                 "E_PICTURE_SIZE",
                 {"65500x65500"}});
  out.push_back({"jpeg_bytes_behind_the_end", good + std::string(3000, 'x'), "", {}});
  const std::string turned = golden_image("exif6.jpg");
  const std::size_t exif = place_of(turned, "Exif");
  out.push_back({"jpeg_exif_destroyed", changed(turned, exif + 6, "XXXX"), "", {"EXIF left out"}});
}

void add_webp_files(std::vector<ImageBadSample>& out) {
  const std::string lossy = golden_image("lossy.webp"),
                    lossless = golden_image("lossless.webp");
  const auto bad = [&](const char* name, const std::string& file, const char* code,
                       std::vector<std::string> words) {
    out.push_back({name, file, code, std::move(words)});
  };
  bad("webp_riff_only", lossy.substr(0, 12), "E_PICTURE_CUT", {"RIFF data"});
  bad("webp_nothing_inside", "RIFF" + le32(4) + "WEBP", "E_PICTURE_DATA", {"intact WebP"});
  bad("webp_cut", lossy.substr(0, 60), "E_PICTURE_CUT", {"RIFF data"});
  bad("webp_riff_of_4_gib", changed(lossy, 4, le32(0xfffffffe)), "E_PICTURE_CUT", {"4294967294"});
  bad("webp_riff_of_0", changed(lossy, 4, le32(0)), "E_PICTURE_DATA", {"WebP"});
  bad("webp_chunk_of_4_gib", changed(lossy, 16, le32(0xfffffff0)), "E_PICTURE_CUT", {"4294967280"});
  bad("webp_no_start_code", changed(lossy, 23, "xxx"), "E_PICTURE_DATA", {"WebP"});
  bad("webp_partition_too_long", changed(lossy, 20, "\xf0\xff\xff"), "E_PICTURE_DATA", {"WebP"});
  bad("webp_width_0", changed(lossy, 26, std::string(2, '\0')), "E_PICTURE_DATA", {"WebP"});
  bad("webp_lossless_signature", changed(lossless, 20, "x"), "E_PICTURE_DATA", {"WebP"});
  bad("webp_lossless_version", changed(lossless, 24, "\xff"), "E_PICTURE_DATA", {"WebP"});
  bad("webp_lossless_damaged", changed(lossless, 27, std::string(30, '\xa5')), "E_PICTURE_DATA",
      {"WebP"});
  bad("webp_lossless_other_size", changed(lossless, 21, "\xff\xff\xff\x0f"), "E_PICTURE_SIZE",
      {"16384x16384"});
}

void add_webp_animations(std::vector<ImageBadSample>& out) {
  const std::string good = golden_image("animated.webp");
  const std::size_t canvas = place_of(good, "VP8X") + 12, frame = place_of(good, "ANMF") + 8;
  const auto bad = [&](const char* name, std::size_t at, const std::string& bytes, const char* code,
                       std::vector<std::string> words) {
    out.push_back({name, changed(good, at, bytes), code, std::move(words)});
  };
  bad("webp_canvas_2_24", canvas, "\xff\xff\xff\xff\xff\xff", "E_PICTURE_SIZE",
      {"16777216x16777216"});
  bad("webp_frame_outside", frame, "\1", "E_PICTURE_DATA", {"inside the canvas"});
  bad("webp_frame_far_outside", frame, "\xff\xff\xff", "E_PICTURE_DATA", {"inside the canvas"});
  bad("webp_frame_smaller_than_its_data", frame + 6, "\4", "E_PICTURE_DATA", {"frame's size"});
  bad("webp_frame_damaged", frame + 16, "XXXX", "E_PICTURE_DATA", {"WebP"});
  out.push_back(
      {"webp_animation_without_frame",
       changed(good.substr(0, frame - 8), 4, le32(static_cast<std::uint32_t>(frame - 16))),
       "E_PICTURE_CUT",
       {"first frame"}});
}

}  // namespace

std::vector<ImageBadSample> jpeg_bad_samples() {
  std::vector<ImageBadSample> out;
  add_headers(out);
  add_streams(out);
  return out;
}

std::vector<ImageBadSample> webp_bad_samples() {
  std::vector<ImageBadSample> out;
  add_webp_files(out);
  add_webp_animations(out);
  return out;
}

}  // namespace tessera
