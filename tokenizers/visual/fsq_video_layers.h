// Layers of Cosmos' video tokenizer, and one video on its way through them, map after map. Internal
// to tokenizers/visual.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/nn/fsq_video_spec.h"
#include "tokenizers/visual/time_conv.h"

namespace tessera {

// Over a frame, then along time.
struct SplitConv {
  TimeConv space, time;
};

// GroupNorm of one group, each frame by itself.
struct FrameNorm {
  Tensor gamma, beta;
};

struct VideoRes {
  FrameNorm norm1, norm2;
  SplitConv conv1, conv2;
  std::optional<TimeConv> shortcut;
};

struct VideoAttention {
  FrameNorm norm;
  TimeConv q, k, v, out;
};

// Space and time halved or doubled after a level's blocks.
struct VideoResample {
  std::optional<TimeConv> space, time;
  std::optional<TimeConv> last;
};

struct VideoLevel {
  std::vector<VideoRes> blocks;
  VideoResample resample;
};

struct VideoMiddle {
  VideoRes before;
  VideoAttention frame, time;
  VideoRes after;
};

// Encoder or decoder, its levels in the order in which they are run.
struct VideoSide {
  SplitConv in;
  std::vector<VideoLevel> levels;
  VideoMiddle middle;
  FrameNorm norm;
  SplitConv out;
};

VideoSide load_video_encoder(Backend& backend, const FsqVideoSpec& spec, const Checkpoint& checkpoint,
                           DType storage);
VideoSide load_video_decoder(Backend& backend, const FsqVideoSpec& spec, const Checkpoint& checkpoint,
                           DType storage);

// What each layer of one side read last of one video. Maps are [h, w, C] on the device.
class VideoPass {
 public:
  explicit VideoPass(Backend& backend) : backend_(backend) {}

  // Null where time is halved and the layer waits for the next map.
  Map encode(const VideoSide& side, Map x);
  std::vector<Map> decode(const VideoSide& side, Map x);

 private:
  struct Seen {
    Tensor keys, values;  // [room, places, C]
    std::int64_t count = 0;
  };

  Map make(std::int64_t height, std::int64_t width, std::int64_t channels);
  // A layer over a frame.
  Map space(const TimeConv& conv, const Map& x, Conv2dArgs form = {});
  // A layer along time: the first map stands before the video too.
  Map time(const TimeConv& conv, const Map& x);
  Map split(const SplitConv& conv, const Map& x, const FrameNorm* norm);
  Conv2dArgs through(const FrameNorm& norm, const Map& x, bool swish);
  Map residual(const VideoRes& block, const Map& x);
  Map attend_frame(const VideoAttention& layer, const Map& x);
  Map attend_time(const VideoAttention& layer, const Map& x);
  void append(Seen& seen, const Map& keys, const Map& values);
  Map middle(const VideoMiddle& layers, Map x);
  Map halve(const VideoResample& resample, Map x);
  std::vector<Map> twice(const VideoResample& resample, const Map& x);
  Map sum(const Map& a, const Map& b);
  Map means(const Map& x);  // of 2x2 places
  Map mean(const Map& a, const Map& b);
  Map enlarged(const Map& x);  // nearest, twice both sides

  Backend& backend_;
  // By layer.
  std::map<const void*, Past> past_;
  std::map<const void*, Seen> seen_;
  std::map<const void*, std::int64_t> count_;
  // Scale and shift of the norm that is read through now.
  Tensor scale_, shift_;
};

}  // namespace tessera
