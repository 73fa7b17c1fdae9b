// A sequence of PNG files as a FrameSink; what its names mean stands in video/frame_sink.h.
#pragma once

#include <optional>

#include "engine/core/draft_folder.h"
#include "video/frame_sink.h"

namespace tessera {

// The file names of a sequence.
struct SequenceName {
  std::filesystem::path folder;  // that holds the files
  std::string before, after;     // the number
  std::size_t digits = 4;        // at least
  bool own_folder = false;       // the folder is the sequence
  std::string of(std::uint64_t number) const;
};
// Nothing for what is no sequence.
std::optional<SequenceName> sequence_name(const std::filesystem::path& path);

class PngSequence final : public FrameSink {
 public:
  PngSequence(const std::filesystem::path& path, SequenceName name, const VideoFormat& format);

  void put(std::span<const std::uint8_t> rgb, std::int64_t ticks) override;
  bool finish(std::int64_t end_ticks, Publish publish, Sync sync) override;
  bool finish_whole_frames(std::int64_t end_ticks, Publish publish, Sync sync) override;
  std::uint64_t frames() const override { return draft_.files(); }
  std::string codec() const override { return "png"; }

 private:
  [[noreturn]] void fail(const char* code, std::string expected, std::string found) const;
  std::string time_of(std::int64_t ticks) const;

  std::filesystem::path path_;
  SequenceName name_;
  VideoFormat format_;
  DraftFolder draft_;
  std::optional<std::int64_t> first_, last_;  // ticks
  std::optional<ErrorInfo> failure_;          // of the first put() that failed
  bool ended_ = false;
};

}  // namespace tessera
