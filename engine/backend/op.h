// What an op is to a device. An op is a struct of its arguments (engine/ops): tensors, weights and
// numbers, with a name. A device has a table of functions, one an op, and looks them up by name; so
// an op is added without a line in the device's class, and doubles in tests take ops of any kind.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/core/tensor.h"

namespace tessera {

class Backend;
struct ConvWeight;
struct LinearWeight;

// Is shown what an op holds, field by field, and may put something else in its place. What is shown
// is the same in every repeat of a recorded pass, up to the bytes of host arrays.
class OpVisitor {
 public:
  virtual ~OpVisitor() = default;

  // `visitor(x, weight, eps, out)`: all fields of an op or of a part of it.
  template <typename... Fields>
  void operator()(Fields&... fields) {
    fields_ += sizeof...(Fields);
    (field(fields), ...);
  }
  // Fields that may differ from repeat to repeat of a recorded pass; they are not shown.
  template <typename... Fields>
  void varying(const Fields&...) {
    fields_ += sizeof...(Fields);
  }
  std::size_t fields() const { return fields_; }

 protected:
  virtual void tensor(ConstTensorView& view) = 0;
  virtual void tensor(TensorView& view) = 0;
  virtual void weight(const LinearWeight*& weight) = 0;
  virtual void weight(const ConvWeight*& weight) = 0;
  // An array of the host that the op reads. Returns the visitor's own copy.
  virtual void* host(const void* data, std::size_t bytes) = 0;
  // An array of the host that the op fills; it is there after synchronize().
  virtual void result(void* data, std::size_t bytes) = 0;
  virtual void number(std::uint64_t bits) = 0;

 private:
  void field(ConstTensorView& view) { tensor(view); }
  void field(TensorView& view) { tensor(view); }
  void field(const LinearWeight*& given) { weight(given); }
  void field(const ConvWeight*& given) { weight(given); }
  template <typename T>
  void field(std::span<const T>& list) {
    T* const own = static_cast<T*>(host(list.data(), list.size_bytes()));
    number(list.size());
    if constexpr (requires(T & item) { item.visit(*this); }) {
      const std::size_t fields = fields_;
      for (std::size_t i = 0; i < list.size(); ++i) own[i].visit(*this);
      fields_ = fields;
    }
    list = {own, list.size()};
  }
  template <typename T>
  void field(std::span<T>& list) {
    number(list.size());
    result(list.data(), list.size_bytes());
  }
  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void field(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      number(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    } else {
      number(static_cast<std::uint64_t>(value));
    }
  }

  std::size_t fields_ = 0;
};

// The arguments of an op. `check` holds them to shapes, types and the device; visit() shows every
// field. An op that is made of others has `in_parts(backend)`, which runs them, for devices that do
// not have it as one.
template <typename T>
concept Op = std::is_trivially_copyable_v<T> &&
    requires(T op, const T& given, const Backend& backend, OpVisitor& visitor) {
  { T::kName } -> std::convertible_to<const char*>;
  given.check(backend);
  op.visit(visitor);
};

template <typename T>
concept HasParts = requires(const T& op, Backend& backend) {
  op.in_parts(backend);
};

namespace detail {
struct AnyField {
  template <typename T>
  operator T() const;
};
template <typename T, typename... Fields>
consteval std::size_t count_fields() {
  if constexpr (requires { T{Fields{}..., AnyField{}}; }) {
    return count_fields<T, Fields..., AnyField>();
  } else {
    return sizeof...(Fields);
  }
}
}  // namespace detail

// Members of an aggregate, so that a test can hold visit() to them.
template <typename T>
inline constexpr std::size_t kFieldsOf = detail::count_fields<T>();

// An op whose type is not known: what can be done with its arguments.
struct OpKind {
  const char* name;
  std::size_t fields;
  std::shared_ptr<void> (*make)();  // empty arguments
  std::shared_ptr<void> (*copy)(const void* op);
  void (*visit)(void* op, OpVisitor& visitor);
  void (*run)(Backend& backend, const void* op);
};

// By name, not by a number given at run time: a program may hold two copies of this code, one of
// them for a simulated device (FNV-1a, 64 bits).
constexpr std::uint64_t op_id(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

using OpFunction = void (*)(Backend& backend, const void* op);

// The ops of a device. Looked up once a call; never allocates.
class OpTable {
 public:
  // kRun is void(Device&, const Args&), Device the class of the device. Replaces what stood there.
  template <auto kRun>
  void add();
  // Null where the device has none of its own.
  OpFunction find(std::uint64_t id) const {
    for (std::size_t at = id % kPlaces;; at = (at + 1) % kPlaces) {
      if (entries_[at].id == id) return entries_[at].run;
      if (entries_[at].run == nullptr) return nullptr;
    }
  }
  std::vector<const OpKind*> kinds() const;

 private:
  struct Entry {
    std::uint64_t id = 0;
    OpFunction run = nullptr;
    const OpKind* kind = nullptr;
  };
  void put(const OpKind& kind, OpFunction run);

  static constexpr std::size_t kPlaces = 256;
  std::array<Entry, kPlaces> entries_{};
  std::size_t count_ = 0;
};

}  // namespace tessera
