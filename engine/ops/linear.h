// Matrix products, alone and with what stands around them in a layer. Weights are of any storage
// type. M rows, k inputs, n outputs; all activations f32.
#pragma once

#include <cstdint>

#include "engine/ops/checks.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/norm.h"

namespace tessera {

// out[m, :] = w x[m, :] + bias.
struct LinearArgs {
  static constexpr const char* kName = "linear";
  ConstTensorView x;                     // [M, k]
  const LinearWeight* weight = nullptr;  // [n, k]
  ConstTensorView bias;                  // [n] or empty
  TensorView out;                        // [M, n], not x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "linear: x is f32 on the device");
    expects_f32(backend, out, "linear: out is f32 on the device");
    expects_rank(x, 2, "linear: x is [M, k]");
    expects(!weight->packed.empty() && x.shape[1] == weight->k,
            "linear: x has as many columns as w has inputs");
    expects(out.shape == Shape({x.shape[0], weight->n}), "linear: out is [M, n]");
    expects(x.data != out.data || x.data == nullptr, "linear: out is not x");
    if (!bias.empty()) expects_vector(backend, bias, weight->n, "linear: bias is [n]");
  }
  void visit(OpVisitor& visitor) { visitor(x, weight, bias, out); }
};

// The product that the ops below have within them, into `scratch` where it is one by itself.
inline void expects_product(const Backend& backend, const ConstTensorView& x,
                            const LinearWeight& weight, const ConstTensorView& scratch) {
  expects_f32(backend, x, "linear: x is f32 on the device");
  expects_f32(backend, scratch, "linear: scratch is f32 on the device");
  expects_rank(x, 2, "linear: x is [M, k]");
  expects(!weight.packed.empty() && x.shape[1] == weight.k,
          "linear: x has as many columns as w has inputs");
  expects(scratch.shape == Shape({x.shape[0], weight.n}), "linear: scratch is [M, n]");
  expects(x.data != scratch.data || x.data == nullptr, "linear: scratch is not x");
}
inline void expects_product_norm(const Backend& backend, const ConstTensorView& x,
                                 const ConstTensorView& norm, const ConstTensorView& normed,
                                 const ConstTensorView& out) {
  expects_vector(backend, norm, x.shape[1], "normed_linear: norm is [k]");
  expects_f32(backend, normed, "normed_linear: normed is f32 on the device");
  expects(normed.shape == x.shape && normed.data != x.data && normed.data != out.data,
          "normed_linear: normed is [M, k], neither x nor out");
}

// sum[m, :] += w x[m, :] + bias.
struct LinearAddArgs {
  static constexpr const char* kName = "linear_add";
  ConstTensorView x;                     // [M, k]
  const LinearWeight* weight = nullptr;  // [n, k]
  ConstTensorView bias;                  // [n] or empty
  TensorView sum, scratch;               // [M, n]

  void check(const Backend& backend) const {
    expects_product(backend, x, *weight, scratch);
    expects_f32(backend, sum, "linear_add: sum is f32 on the device");
    expects(sum.shape == scratch.shape && sum.data != x.data && sum.data != scratch.data,
            "linear_add: sum is [M, n], neither x nor scratch");
    if (!bias.empty()) expects_vector(backend, bias, weight->n, "linear_add: bias is [n]");
  }
  void visit(OpVisitor& visitor) { visitor(x, weight, bias, sum, scratch); }
  void in_parts(Backend& backend) const {
    backend.run(LinearArgs{x, weight, bias, scratch});
    backend.run(AddArgs{sum, scratch, sum});
  }
};

// out = silu(gate) * up of [gate | up] = gate_up x.
struct GatedLinearArgs {
  static constexpr const char* kName = "gated_linear";
  ConstTensorView x;                      // [M, k]
  const LinearWeight* gate_up = nullptr;  // [2F, k]
  TensorView scratch;                     // [M, 2F]
  TensorView out;                         // [M, F]

  void check(const Backend& backend) const {
    expects_product(backend, x, *gate_up, scratch);
    expects_f32(backend, out, "gated_linear: out is f32 on the device");
    expects(gate_up->n % 2 == 0 && out.shape == Shape({x.shape[0], gate_up->n / 2}) &&
                out.data != x.data && out.data != scratch.data,
            "gated_linear: out is [M, F], neither x nor scratch");
  }
  void visit(OpVisitor& visitor) { visitor(x, gate_up, scratch, out); }
  void in_parts(Backend& backend) const {
    backend.run(LinearArgs{x, gate_up, {}, scratch});
    backend.run(SiluMulArgs{scratch, out});
  }
};

// linear of rms_norm(x, norm, eps).
struct NormedLinearArgs {
  static constexpr const char* kName = "normed_linear";
  ConstTensorView x;     // [M, k]
  ConstTensorView norm;  // [k]
  float eps = 0;
  const LinearWeight* weight = nullptr;  // [n, k]
  ConstTensorView bias;                  // [n] or empty
  TensorView normed;                     // [M, k], scratch
  TensorView out;                        // [M, n]

  void check(const Backend& backend) const {
    expects_product(backend, x, *weight, out);
    expects_product_norm(backend, x, norm, normed, out);
    if (!bias.empty()) expects_vector(backend, bias, weight->n, "normed_linear: bias is [n]");
  }
  void visit(OpVisitor& visitor) { visitor(x, norm, eps, weight, bias, normed, out); }
  void in_parts(Backend& backend) const {
    backend.run(RmsNormArgs{x, norm, eps, normed});
    backend.run(LinearArgs{normed, weight, bias, out});
  }
};

// gated_linear of rms_norm(x, norm, eps).
struct NormedGatedLinearArgs {
  static constexpr const char* kName = "normed_gated_linear";
  ConstTensorView x;     // [M, k]
  ConstTensorView norm;  // [k]
  float eps = 0;
  const LinearWeight* gate_up = nullptr;  // [2F, k]
  TensorView normed;                      // [M, k], scratch
  TensorView scratch;                     // [M, 2F]
  TensorView out;                         // [M, F]

  void check(const Backend& backend) const {
    expects_product(backend, x, *gate_up, scratch);
    expects_product_norm(backend, x, norm, normed, out);
    expects_f32(backend, out, "normed_gated_linear: out is f32 on the device");
    expects(gate_up->n % 2 == 0 && out.shape == Shape({x.shape[0], gate_up->n / 2}) &&
                out.data != x.data && out.data != scratch.data,
            "normed_gated_linear: out is [M, F], neither x nor scratch");
  }
  void visit(OpVisitor& visitor) { visitor(x, norm, eps, gate_up, normed, scratch, out); }
  void in_parts(Backend& backend) const {
    backend.run(RmsNormArgs{x, norm, eps, normed});
    backend.run(GatedLinearArgs{normed, gate_up, scratch, out});
  }
};

namespace ops {

inline void linear(Backend& backend, ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
                   TensorView out) {
  run(backend, LinearArgs{x, &w, bias, out});
}
inline void linear_add(Backend& backend, ConstTensorView x, const LinearWeight& w,
                       ConstTensorView bias, TensorView sum, TensorView scratch) {
  run(backend, LinearAddArgs{x, &w, bias, sum, scratch});
}
inline void gated_linear(Backend& backend, ConstTensorView x, const LinearWeight& gate_up,
                         TensorView scratch, TensorView out) {
  run(backend, GatedLinearArgs{x, &gate_up, scratch, out});
}
inline void normed_linear(Backend& backend, ConstTensorView x, ConstTensorView norm, float eps,
                          const LinearWeight& w, ConstTensorView bias, TensorView normed,
                          TensorView out) {
  run(backend, NormedLinearArgs{x, norm, eps, &w, bias, normed, out});
}
inline void normed_gated_linear(Backend& backend, ConstTensorView x, ConstTensorView norm,
                                float eps, const LinearWeight& gate_up, TensorView normed,
                                TensorView scratch, TensorView out) {
  run(backend, NormedGatedLinearArgs{x, norm, eps, &gate_up, normed, scratch, out});
}

}  // namespace ops
}  // namespace tessera
