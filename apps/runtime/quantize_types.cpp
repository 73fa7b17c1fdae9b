#include "apps/runtime/quantize_types.h"

#include <algorithm>
#include <array>
#include <optional>

#include "engine/checkpoint/gguf_write.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

constexpr std::array kRoles = {WeightRole::kTable, WeightRole::kHead, WeightRole::kAttention,
                               WeightRole::kFeedForward};
// Files of most matrices in a format: general.file_type, as the gguf package numbers them.
struct NumberedType {
  std::string_view name;
  std::uint32_t id;
};
constexpr std::array kFileTypes = {
    NumberedType{"F32", 0},   NumberedType{"F16", 1},   NumberedType{"Q4_0", 2},
    NumberedType{"Q4_1", 3},  NumberedType{"Q8_0", 7},  NumberedType{"Q5_0", 8},
    NumberedType{"Q5_1", 9},  NumberedType{"Q2_K", 10}, NumberedType{"Q3_K", 12},
    NumberedType{"Q4_K", 15}, NumberedType{"Q5_K", 17}, NumberedType{"Q6_K", 18},
    NumberedType{"BF16", 32}};
constexpr std::uint32_t kGuessed = 1024;

[[noreturn]] void refuse_type(const char* code, const char* where, std::string expected,
                              std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .where = where,
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::string in_case(std::string_view text, int (*change)(int)) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(change(byte_of(c)));
  return out;
}
std::string lower(std::string_view text) { return in_case(text, &std::tolower); }
std::string upper(std::string_view text) { return in_case(text, &std::toupper); }

std::string joined_names(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

double bits_a_number(const BlockType& type) {
  return 8.0 * to_double(type.bytes) / to_double(type.numbers);
}

const BlockType& type_named(const std::string& name, const char* where) {
  const std::string own = upper(name);
  for (const BlockType& type : block_types()) {
    if (type.name == own && block_writer(type) != nullptr) return type;
  }
  const std::optional<DType> kept = storage_named(lower(name));
  const BlockType* const type = kept ? block_type_of(*kept) : nullptr;
  if (type != nullptr && block_writer(*type) != nullptr) return *type;
  refuse_type("E_QUANTIZE_TYPE", where, joined_names(quantize_type_names()),
              name.empty() ? "none" : name);
}

// How a model of these matrices is kept when it is loaded; nothing for formats that are read alone.
const StorageType* storage_with(const BlockType& matrices) {
  for (const StorageType& storage : storage_types()) {
    if (storage.kept && block_type_of(storage.dtype) == &matrices) return &storage;
  }
  return nullptr;
}

}  // namespace

const BlockType* block_type_of(DType dtype) {
  if (!is_weight(dtype) || dtype == DType::kF64) return nullptr;
  return find_block_type(storage_of(dtype).gguf);
}

std::vector<std::string> quantize_type_names() {
  std::vector<std::string> out;
  for (const StorageType& storage : storage_types()) {
    const std::string name(dtype_name(storage.dtype));
    if (storage_named(name)) out.push_back(name);
  }
  for (const BlockType& type : block_types()) {
    const std::string name = lower(type.name);
    const bool listed = std::find(out.begin(), out.end(), name) != out.end();
    if (!listed && block_writer(type) != nullptr) out.push_back(name);
  }
  return out;
}

QuantizeTypes::QuantizeTypes(const std::string& type, std::span<const std::string> keep)
    : matrices_(&type_named(type, "--type")) {
  for (const std::string& one : keep) {
    const std::size_t equals = one.find('=');
    const std::string role = one.substr(0, equals);
    const auto found = std::find_if(kRoles.begin(), kRoles.end(), [&](WeightRole known) {
      return weight_role_name(known) == role;
    });
    if (found == kRoles.end() || equals == std::string::npos) {
      std::string roles;
      for (const WeightRole known : kRoles) {
        roles += (roles.empty() ? "" : ", ") + std::string(weight_role_name(known));
      }
      refuse_type("E_QUANTIZE_ROLE", "--keep", "ROLE=TYPE, where ROLE is one of " + roles, one);
    }
    keep_[*found] = &type_named(one.substr(equals + 1), "--keep");
  }
  if (const auto table = keep_.find(WeightRole::kTable); table != keep_.end()) {
    keep_[WeightRole::kTiedTable] = table->second;
  }
}

const BlockType& QuantizeTypes::wanted(WeightRole role) const {
  if (const auto kept = keep_.find(role); kept != keep_.end()) return *kept->second;
  const StorageType* const storage = storage_with(*matrices_);
  const bool wide = matrices_->numbers == 1;
  switch (role) {
    case WeightRole::kTable:
    case WeightRole::kTiedTable:
      return *block_type_of(storage != nullptr ? storage->beside : DType::kBF16);
    case WeightRole::kHead:
      if (storage != nullptr) return *block_type_of(storage->heads);
      return wide ? *matrices_ : *block_type_of(DType::kQ8);
    case WeightRole::kAttention:
    case WeightRole::kFeedForward:
      break;
  }
  return *matrices_;
}

ChosenType QuantizeTypes::choose(WeightRole role, const Shape& shape,
                                 const BlockType* source) const {
  const BlockType& goal = wanted(role);
  const BlockType& as_it_is = source != nullptr ? *source : *block_type_of(DType::kF32);
  const bool of_layers = role == WeightRole::kAttention || role == WeightRole::kFeedForward;
  if (!keep_.contains(role) && !of_layers) {
    const bool tied = role == WeightRole::kTiedTable && matrices_->numbers > 1;
    // What a wider type would not change either.
    const bool narrower = &goal != matrices_ && bits_a_number(as_it_is) < bits_a_number(goal);
    if (tied || narrower || as_it_is.numbers > 1) return {&as_it_is, ""};
  }
  if (fits_gguf(shape, goal)) return {&goal, ""};
  const BlockType* best = &as_it_is;
  for (const BlockType& type : block_types()) {
    const bool wider = type.numbers > 1 && bits_a_number(type) > bits_a_number(goal) &&
                       bits_a_number(type) < bits_a_number(*best);
    if (wider && block_writer(type) != nullptr && fits_gguf(shape, type)) best = &type;
  }
  return {best, "rows of " + std::to_string(shape[shape.rank() - 1]) + " are no whole blocks of " +
                    std::to_string(goal.numbers)};
}

std::uint32_t QuantizeTypes::file_type() const {
  for (const NumberedType& type : kFileTypes) {
    if (type.name == matrices_->name) return type.id;
  }
  return kGuessed;
}

}  // namespace tessera
