// What a device may do in one go, in parts: the meaning of the fused ops.
#include "engine/backend/backend.h"

namespace tessera {

void Backend::qkv_rope(const QkvRopeArgs& args) {
  const std::int64_t q_width = args.q.shape[1] * args.q.shape[2];
  const std::int64_t kv_width = args.k.shape[1] * args.k.shape[2];
  const std::int64_t stride = q_width + 2 * kv_width;
  const auto norm_heads = [&](TensorView heads, const ConstTensorView& weight) {
    if (weight.empty()) return;
    heads.shape = {heads.shape[0] * heads.shape[1], heads.shape[2]};
    rms_norm(heads, weight, args.eps, heads);
  };
  const float* const rows = args.qkv.f32();
  store_rows(rows, stride, args.identity, args.q);
  store_rows(rows + q_width, stride, args.identity, args.k);
  norm_heads(args.q, args.q_norm);
  norm_heads(args.k, args.k_norm);
  rope(args.q, args.cos, args.sin, args.pairing);
  rope(args.k, args.cos, args.sin, args.pairing);
  store_rows(args.k.f32(), kv_width, args.slots, args.keys);
  store_rows(rows + q_width + kv_width, stride, args.slots, args.values);
}

}  // namespace tessera
