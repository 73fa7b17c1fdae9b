// A device without the vendor's libraries.
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/libraries.h"

namespace tessera::cuda {

namespace {

class NoLibraries final : public Libraries {
 public:
  const std::string& without_cublaslt() override { return why_; }
  const std::string& without_cudnn() override { return why_; }
  bool multiply(const MatrixProduct&) override { return false; }
  bool convolve(const PlainConvolution&) override { return false; }

 private:
  std::string why_ = "built without the vendor's libraries";
};

}  // namespace

std::shared_ptr<Libraries> make_libraries() { return std::make_shared<NoLibraries>(); }

}  // namespace tessera::cuda
