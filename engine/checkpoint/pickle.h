// A reader for the pickles inside torch.save archives that never runs code. It interprets the
// opcodes of pickle protocols 2 to 5 that such files use (Python's pickletools documents them) over
// plain data; the only names it admits are torch's tensor and parameter rebuilders, the storage
// classes, OrderedDict, and three inert records that training scripts leave next to the weights
// (torch.Size, torch dtypes, argparse.Namespace). Nothing is ever called: a rebuilder is a pattern
// that yields a description of a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/dtype.h"
#include "engine/core/tensor.h"

namespace tessera {

// A tensor as the pickle describes it. Its elements lie inside the storage: this is checked.
struct PickledTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::string storage;             // key of the storage entry in the archive
  std::uint64_t storage_size = 0;  // elements
  std::uint64_t offset = 0;        // first element, in elements
  std::uint64_t reach = 0;         // one past the last element touched; = offset if there is none
  Shape shape;
  std::vector<std::int64_t> strides;  // in elements; empty when dense and row-major
};

struct PickledState {
  std::string root;  // "model", "module", "state_dict", or empty for the top level
  std::vector<PickledTensor> tensors;
};

// Reads the state dict out of data.pkl of `file`; offsets in messages count within data.pkl.
// Errors (kModel): E_PT_PICKLE_SIZE, E_PT_TRUNCATED, E_PT_PROTOCOL, E_PT_OPCODE, E_PT_GLOBAL,
// E_PT_STACK, E_PT_MEMO, E_PT_STEPS, E_PT_MEMORY, E_PT_TYPE, E_PT_CALL, E_PT_STORAGE_ID,
// E_PT_DTYPE, E_PT_SHAPE, E_PT_STRIDE, E_PT_NAME, E_PT_DUPLICATE, E_PT_COUNT, E_PT_NO_TENSORS,
// E_PT_TRAILING.
PickledState read_pickled_state(std::string_view pickle, const std::string& file);

}  // namespace tessera
