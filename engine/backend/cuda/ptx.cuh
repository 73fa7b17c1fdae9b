// What the machine has and CUDA C++ has no word for. Everything else of the kernels is plain enough
// to be compiled for a simulated device too, which brings its own version of this header.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <nv/target>

namespace tessera::cuda {

// The block's dynamic shared memory, 16-byte aligned.
template <typename T>
__device__ inline T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char tessera_dynamic_shared[];
  return reinterpret_cast<T*>(tessera_dynamic_shared);
}

// d += a b for one warp: a is 16 x 16 (row-major), b 16 x 8 (column-major) of bf16, d 16 x 8 of f32
// (mma.sync m16n8k16). With group g = lane / 4 and t = lane % 4, every register two neighbours:
//   a[0] = A[g][2t..], a[1] = A[g+8][2t..], a[2] = A[g][2t+8..], a[3] = A[g+8][2t+8..]
//   b[0] = B[2t..][g], b[1] = B[2t+8..][g]
//   d[0], d[1] = D[g][2t], D[g][2t+1];  d[2], d[3] = D[g+8][2t], D[g+8][2t+1]
__device__ inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of bf16 from shared memory; lane l gives where row l % 8 of matrix l / 8
// begins, on 16 bytes. Register i is of matrix i: M[lane / 4][2 (lane % 4)..], a piece of
// mma_bf16's a or b.
__device__ inline void load_matrices(std::uint32_t (&to)[4], const std::uint16_t* row) {
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
// The same of the transposed matrices: M[2 (lane % 4)..][lane / 4].
__device__ inline void load_matrices_turned(std::uint32_t (&to)[4], const std::uint16_t* row) {
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// 2^x with an error of two units in the last place; 0 instead of what is not normal.
__device__ inline float exp2_approximately(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// 16 bytes that are read once: past the first-level cache.
__device__ inline uint4 load_once(const void* from) {
  uint4 out;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from));
  return out;
}

// An f16 as a float.
__device__ inline float half_value(std::uint16_t bits) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
  return out;
}

// Two floats as bf16, rounded to nearest even: low half x, high half y.
__device__ inline std::uint32_t pack_bf16(float x, float y) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(y), "f"(x));
  return out;
}

// 16 bytes from global to shared memory, not waited for.
__device__ inline void copy_async(void* shared, const void* global) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most N groups of this thread's copies are under way.
template <int N>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Asks for what lies there, which arrives in the second-level cache: a load in front of
// await_previous() would be put after it by the compiler.
__device__ inline void fetch_early(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// Until the kernel in front of this one in its stream has ended, with all it wrote to be seen (CUDA
// C++ programming guide, "Programmatic dependent launch"). Every thread of a kernel that is
// launched with Launch::overlaps calls it once, before it reads or writes what other kernels write;
// before it, a thread may touch its registers, dynamic shared memory, and memory that never
// changes.
__device__ inline void await_previous() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" ::: "memory");))
}
// The next kernel may begin where there is room, as soon as all blocks of this one said so.
__device__ inline void let_next_begin() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;" ::: "memory");))
}

}  // namespace tessera::cuda
