// Shapes, borrowed views and owned buffers. A view borrows; a Tensor owns, moves, never copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "engine/core/dtype.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

inline constexpr int kMaxRank = 8;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents)
      : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents) {
    expects(extents.size() <= kMaxRank, "rank at most 8");
    for (const std::int64_t extent : extents) {
      expects(extent >= 0, "extents are not negative");
      nth(extents_, rank_++) = extent;
    }
  }
  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return nth(extents_, axis); }
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= (*this)[i];
    return product;
  }
  std::span<const std::int64_t> extents() const { return {extents_.data(), to_size(rank_)}; }
  bool operator==(const Shape&) const = default;
  std::string to_string() const;  // "[2, 3]"

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

enum class DeviceKind : std::uint8_t { kCpu, kCuda };
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// Borrowed, read-only, dense and row-major. An empty view (data == nullptr) stands for "none".
struct ConstTensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;
  Device device;

  bool empty() const { return data == nullptr; }
  std::size_t bytes() const { return dtype_bytes(dtype, shape.elements()); }
  template <typename T>
  const T* as() const {
    expects(sizeof(T) == dtype_size(dtype), "element size matches the view");
    return static_cast<const T*>(data);
  }
  const float* f32() const {
    expects(dtype == DType::kF32, "view is f32");
    return static_cast<const float*>(data);
  }
};

// Borrowed, writable, dense and row-major.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  void* data = nullptr;
  Device device;

  operator ConstTensorView() const { return {dtype, shape, data, device}; }
  bool empty() const { return data == nullptr; }
  std::size_t bytes() const { return dtype_bytes(dtype, shape.elements()); }
  template <typename T>
  T* as() const {
    expects(sizeof(T) == dtype_size(dtype), "element size matches the view");
    return static_cast<T*>(data);
  }
  float* f32() const {
    expects(dtype == DType::kF32, "view is f32");
    return static_cast<float*>(data);
  }
};

// A block of device memory with its own way of being freed.
using Buffer = std::unique_ptr<void, void (*)(void*)>;

// 64-byte aligned host memory; Error kMemory if it cannot be had.
Buffer allocate_host(std::size_t bytes);

class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape, Buffer buffer, Device device = {})
      : view_{dtype, shape, buffer.get(), device}, buffer_(std::move(buffer)) {}
  // Host memory, contents undefined.
  static Tensor host(DType dtype, Shape shape);

  TensorView view() { return view_; }
  ConstTensorView view() const { return view_; }
  const Shape& shape() const { return view_.shape; }
  DType dtype() const { return view_.dtype; }
  std::size_t bytes() const { return view_.bytes(); }
  bool empty() const { return view_.data == nullptr; }
  float* f32() { return view_.f32(); }
  const float* f32() const { return view_.f32(); }
  Tensor clone() const;  // host only: copies every byte

 private:
  TensorView view_;
  Buffer buffer_{nullptr, +[](void*) {}};
};

// Bump allocator for the activations of one pass: reserve once, reset before each pass, so that two
// decode steps allocate nothing. take() gives memory of the device, take_host() what the host notes
// next to it; both count against one plan, and on the host they are one block. Past the end is a
// broken plan and ends the program.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::size_t bytes)
      : host_(allocate_host(bytes)), base_(host_.get()), capacity_(bytes) {}
  // `block` is of a device that has memory of its own.
  explicit Arena(Tensor block)
      : block_(std::move(block)),
        host_(allocate_host(block_.bytes())),
        base_(block_.view().data),
        device_(block_.view().device),
        capacity_(block_.bytes()) {}
  TensorView take(DType dtype, Shape shape);
  template <typename T>
  std::span<T> take_host(std::int64_t count) {
    return {static_cast<T*>(host_at(advance(to_size(count) * sizeof(T)))), to_size(count)};
  }
  void reset() { used_ = 0; }
  std::size_t used() const { return used_; }
  void rewind(std::size_t used) { used_ = used; }
  std::size_t capacity() const { return capacity_; }
  std::size_t peak() const { return peak_; }

 private:
  std::size_t advance(std::size_t bytes);  // where the taken bytes begin
  void* host_at(std::size_t offset) { return static_cast<std::byte*>(host_.get()) + offset; }

  Tensor block_;  // empty where device and host are one
  Buffer host_{nullptr, +[](void*) {}};
  void* base_ = nullptr;
  Device device_;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace tessera
