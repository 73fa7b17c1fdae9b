// Bytes packed as gzip or Zstandard, by the libraries themselves.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <string>
#include <string_view>

#include "engine/core/error.h"

namespace tessera {

inline std::string gzip_of(std::string_view bytes, int level = 6) {
  z_stream state{};
  expects(deflateInit2(&state, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK,
          "zlib starts");
  std::string out(deflateBound(&state, bytes.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  state.avail_in = static_cast<uInt>(bytes.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  expects(deflate(&state, Z_FINISH) == Z_STREAM_END, "zlib ends");
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

// One frame with a checksum.
inline std::string zstd_of(std::string_view bytes, int window_log = 0) {
  ZSTD_CCtx* state = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(state, ZSTD_c_checksumFlag, 1);
  if (window_log != 0) {
    ZSTD_CCtx_setParameter(state, ZSTD_c_windowLog, window_log);
    ZSTD_CCtx_setParameter(state, ZSTD_c_contentSizeFlag, 0);
  }
  std::string out(ZSTD_compressBound(bytes.size()) + 64, '\0');
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  // In two steps, or the library shrinks the window to what it was given at once.
  if (window_log != 0) ZSTD_compressStream2(state, &to, &in, ZSTD_e_continue);
  expects(ZSTD_compressStream2(state, &to, &in, ZSTD_e_end) == 0, "a whole frame");
  ZSTD_freeCCtx(state);
  out.resize(to.pos);
  return out;
}

}  // namespace tessera
