// Tables of ops: every op that is declared runs on every device, shows all that it holds, and an op
// or a replacement of one is added without the device's class.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "engine/ops/ops.h"
#include "tests/support/devices.h"
#include "tests/unit/ops/ops_testing.h"

namespace tessera::testing::op_table_test {
namespace {

std::set<std::string> names(const std::vector<const OpKind*>& kinds) {
  std::set<std::string> out;
  for (const OpKind* kind : kinds) out.insert(kind->name);
  return out;
}

// Names of the ops that headers of engine/ops declare; of those that are made of others if asked.
std::set<std::string> declared(bool in_parts) {
  std::set<std::string> out;
  const std::regex name("kName = \"([a-z0-9_]+)\"|void (in_parts)\\(Backend& backend\\) const");
  for (const auto& entry :
       std::filesystem::directory_iterator(TESSERA_SOURCE_DIR "/engine/ops")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::string last;
    for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) {
      if ((*it)[1].matched) {
        last = (*it)[1];
        EXPECT_TRUE(in_parts || out.insert(last).second) << "two ops are called " << last;
      } else if (in_parts) {
        out.insert(last);
      }
    }
  }
  return out;
}

TEST(OpTables, EveryDeclaredOpRunsOnEveryDevice) {
  const std::set<std::string> all = declared(false), in_parts = declared(true);
  EXPECT_GE(all.size(), 25u);
  EXPECT_EQ(in_parts.size(), 6u);
  int devices = 0;
  for (const TestDevice& device : test_devices()) {
    const auto backend = device.open();
    if (backend == nullptr) continue;
    ++devices;
    const std::set<std::string> own = names(backend->ops().kinds());
    for (const std::string& name : all) {
      EXPECT_TRUE(own.contains(name) || in_parts.contains(name)) << device << ": " << name;
    }
    for (const std::string& name : own) EXPECT_TRUE(all.contains(name)) << device << ": " << name;
  }
  EXPECT_GE(devices, 1);
}

// What visit() hands over; takes nothing and changes nothing.
class Looker final : public OpVisitor {
  void tensor(ConstTensorView&) override {}
  void tensor(TensorView&) override {}
  void weight(const LinearWeight*&) override {}
  void weight(const ConvWeight*&) override {}
  void* host(const void*, std::size_t bytes) override {
    EXPECT_EQ(bytes, 0u) << "empty arguments";
    return nullptr;
  }
  void result(void*, std::size_t) override {}
  void number(std::uint64_t) override {}
};

TEST(OpTables, EveryFieldOfEveryOpIsShown) {
  std::set<std::string> seen;
  for (const TestDevice& device : test_devices()) {
    const auto backend = device.open();
    if (backend == nullptr) continue;
    for (const OpKind* kind : backend->ops().kinds()) {
      const std::shared_ptr<void> op = kind->make();
      Looker looker;
      kind->visit(op.get(), looker);
      EXPECT_EQ(looker.fields(), kind->fields) << kind->name;
      seen.insert(kind->name);
    }
  }
  EXPECT_TRUE(seen.contains("attention"));
  AttentionSegment segment;
  Looker looker;
  segment.visit(looker);
  EXPECT_EQ(looker.fields(), kFieldsOf<AttentionSegment>);
}

// An op that forgets a field is found.
struct ForgetfulArgs {
  static constexpr const char* kName = "forgetful";
  ConstTensorView x;
  float factor = 1;
  TensorView out;
  void check(const Backend&) const {}
  void visit(OpVisitor& visitor) { visitor(x, out); }
};

TEST(OpTables, AForgottenFieldIsFound) {
  ForgetfulArgs op;
  Looker looker;
  op.visit(looker);
  EXPECT_EQ(kFieldsOf<ForgetfulArgs>, 3u);
  EXPECT_NE(looker.fields(), kFieldsOf<ForgetfulArgs>);
}

// out = a + b + b: made of others.
struct AddTwiceArgs {
  static constexpr const char* kName = "add_twice";
  ConstTensorView a, b;
  TensorView out;  // neither a nor b
  void check(const Backend&) const {}
  void visit(OpVisitor& visitor) { visitor(a, b, out); }
  void in_parts(Backend& backend) const {
    backend.run(AddArgs{a, b, out});
    backend.run(AddArgs{out, b, out});
  }
};

int replaced = 0;
void add_twice(Backend&, const AddTwiceArgs& op) {
  ++replaced;
  for (std::int64_t i = 0; i < op.out.shape.elements(); ++i) {
    op.out.f32()[i] = (op.a.f32()[i] + op.b.f32()[i]) + op.b.f32()[i];
  }
}

TEST(OpTables, AnOpOfPartsRunsEverywhereAndADeviceMayReplaceIt) {
  const auto backend = make_backend("cpu", {.threads = 1});
  std::vector<float> a = {1, 2}, b = {10, 20}, out(2);
  const AddTwiceArgs op{view_of(a, {2}), view_of(b, {2}), view_of(out, {2})};
  ops::run(*backend, op);
  EXPECT_EQ(out, (std::vector<float>{21, 42}));
  EXPECT_EQ(replaced, 0);
  backend->ops().add<add_twice>();
  out = {0, 0};
  ops::run(*backend, op);
  EXPECT_EQ(out, (std::vector<float>{21, 42}));
  EXPECT_EQ(replaced, 1);
  EXPECT_EQ(names(make_backend("cpu")->ops().kinds()).count("add_twice"), 0u)
      << "tables are of one device object";
}

TEST(OpTables, AnOpThatADeviceLacksIsAnErrorWithBothNames) {
  const auto backend = backend_of(Isa::kReference, 1);
  try {
    ops::run(*backend, ForgetfulArgs{});
    FAIL() << "an op that no device has";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_OP");
    EXPECT_EQ(error.exit_code(), 1);
    EXPECT_NE(std::string(error.what()).find("device cpu-reference: expected the op 'forgetful'"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::testing::op_table_test
