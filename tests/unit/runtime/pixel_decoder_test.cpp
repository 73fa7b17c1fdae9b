// One tokenizer for previews and images of several submissions: one caller at a time.
#include "apps/runtime/pixel_decoder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace tessera::pixel_decoder_test {
namespace {

// Code 7 is one pixel of 7. It knows whether it is called while it is at work.
class Alone final : public VisualTokenizer {
 public:
  explicit Alone(std::atomic<int>& together) : together_(together) {}
  std::int64_t codes() const override { return 100; }
  int factor() const override { return 1; }
  std::vector<std::int32_t> encode(ConstTensorView) const override { return {}; }
  Tensor decode(std::span<const std::int32_t> ids, int rows, int cols) const override {
    if (at_work_.exchange(true)) ++together_;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Tensor out = Tensor::host(DType::kF32, {rows, cols, 3});
    for (std::size_t i = 0; i < ids.size() * 3; ++i) {
      out.f32()[i] = static_cast<float>(ids[i / 3]);
    }
    at_work_ = false;
    return out;
  }
  std::size_t decode_scratch_bytes(int, int) const override { return 0; }
  Tensor codebook() const override { return Tensor::host(DType::kF32, {1, 1}); }
  std::vector<std::uint8_t> to_pixels(ConstTensorView image) const override {
    std::vector<std::uint8_t> out;
    const auto* values = static_cast<const float*>(image.data);
    for (std::int64_t i = 0; i < image.shape.elements(); ++i) {
      out.push_back(static_cast<std::uint8_t>(values[i]));
    }
    return out;
  }

 private:
  std::atomic<int>& together_;
  mutable std::atomic<bool> at_work_ = false;
};

TEST(PixelDecoder, ServesOneCallerAtATime) {
  std::atomic<int> together = 0;
  const PixelDecoder decoder(nullptr, std::make_unique<Alone>(together), 2, 2);
  EXPECT_FALSE(decoder.apart());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::int32_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      const std::vector<std::int32_t> codes(4, number + 1);
      for (int i = 0; i < 20; ++i) {
        const Image whole = decoder.decode(codes), first = decoder.decode_first(codes, 1);
        for (const Image& image : {whole, first}) {
          if (image.rgb != std::vector<std::uint8_t>(12, static_cast<std::uint8_t>(number + 1))) {
            ++wrong;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, 0);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tessera::pixel_decoder_test
