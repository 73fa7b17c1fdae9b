#include "video/codec/rgb_frames.h"

#include <cstring>
#include <utility>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

namespace {

// As players draft where the file does not say: BT.709 from 720 lines on.
int matrix_of(const AVFrame& frame) {
  switch (frame.colorspace) {
    case AVCOL_SPC_BT709:
      return SWS_CS_ITU709;
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL:
      return SWS_CS_BT2020;
    case AVCOL_SPC_SMPTE240M:
      return SWS_CS_SMPTE240M;
    case AVCOL_SPC_FCC:
      return SWS_CS_FCC;
    case AVCOL_SPC_UNSPECIFIED:
    case AVCOL_SPC_RESERVED:
      return frame.height >= 720 ? SWS_CS_ITU709 : SWS_CS_ITU601;
    default:
      return SWS_CS_ITU601;
  }
}

// Vector code of the scaler writes whole registers: rows with room, copied after.
void scale_padded(SwsContext* scaler, const AVFrame& frame, VideoFrame& out) {
  const int stride = (frame.width * 3 + 127) / 64 * 64;
  std::vector<std::uint8_t> rows(to_size(stride) * to_size(frame.height) + 64);
  std::uint8_t* planes[1] = {rows.data()};
  sws_scale(scaler, frame.data, frame.linesize, 0, frame.height, planes, &stride);
  const auto bytes_a_row = to_size(out.width * 3);
  for (std::int64_t y = 0; y < out.height; ++y) {
    std::memcpy(&out.rgb[to_size(y) * bytes_a_row], &nth(rows, y * stride), bytes_a_row);
  }
}

}  // namespace

VideoFrame RgbFrames::convert(const AVFrame& frame, const std::string& place) {
  VideoFrame out{0, frame.width, frame.height, {}};
  out.rgb.resize(to_size(out.width * out.height * 3));
  const auto format = static_cast<AVPixelFormat>(frame.format);
  scaler_.reset(sws_getCachedContext(
      scaler_.release(), frame.width, frame.height, format, frame.width, frame.height,
      AV_PIX_FMT_RGB24,
      SWS_BILINEAR | SWS_BITEXACT | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP,
      nullptr, nullptr, nullptr));
  if (!scaler_) {
    const char* name = av_get_pix_fmt_name(format);
    ffmpeg::fail("E_VIDEO_CODEC", place, "pixels that can be shown as RGB",
                 name != nullptr ? name : "an unknown format");
  }
  const int* matrix = sws_getCoefficients(matrix_of(frame));
  const int full = frame.color_range == AVCOL_RANGE_JPEG ? 1 : 0;
  sws_setColorspaceDetails(scaler_.get(), matrix, full, matrix, 1, 0, 1 << 16, 1 << 16);
  // A row of RGB24 may be written up to its stride only: the scaler works on padded rows else.
  if (frame.width % 16 != 0) {
    scale_padded(scaler_.get(), frame, out);
    return out;
  }
  std::uint8_t* planes[1] = {out.rgb.data()};
  const int strides[1] = {frame.width * 3};
  sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, planes, strides);
  return out;
}

}  // namespace tessera
