// File access: what a reader sees after every single call of a write was made to fail, and what the
// error says.
#include "engine/core/io.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>

#include "tests/support/fault_scope.h"
#include "tests/support/temp_folder.h"

namespace tessera::io_test {
namespace {

namespace fs = std::filesystem;
using Writer = std::function<void(const fs::path&, std::string_view)>;

const std::string kOld = "the old contents";
const std::string kNew(100'000, 'n');

void atomic_writer(const fs::path& path, std::string_view text) { write_file_atomic(path, text); }

struct Outcome {
  std::uint64_t hits = 0;
  bool failed = false;
  std::string trouble;  // empty: every guarantee was kept
};

// One write over an old file under one planned fault; then looks at what is left.
Outcome write_under(const FaultPlan& plan, const Writer& writer) {
  TempFolder folder;
  const fs::path path = folder / "file";
  put_file(path, kOld);
  Outcome out;
  {
    const FaultScope fault(plan);
    try {
      writer(path, kNew);
    } catch (const Error& error) {
      out.failed = true;
      if (error.exit_code() != 6) out.trouble += "exit code; ";
      if (error.info().file != path.string()) out.trouble += "no file name; ";
      if (error.info().found.find("bytes free") == std::string::npos) out.trouble += "no room; ";
    }
    out.hits = fault.hits();
  }
  const std::string left = get_file(path);
  if (left != kOld && left != kNew) out.trouble += "half a file; ";
  if (!out.failed && left != kNew) out.trouble += "silently not written; ";
  if (std::distance(fs::directory_iterator(folder.path()), {}) != 1) out.trouble += "rubbish; ";
  return out;
}

// Fails the first call, then the second, ... until a run meets no fault any more.
int count_failing_calls(int error, FaultPlan::Mode mode, const Writer& writer,
                        const std::function<void(const Outcome&)>& check) {
  for (std::uint64_t nth = 1;; ++nth) {
    const Outcome out = write_under({IoOp::kAny, nth, error, mode}, writer);
    if (out.hits == 0) return static_cast<int>(nth) - 1;
    check(out);
  }
}

TEST(AtomicWrite, EveryFailingCallLeavesAWholeFileAndExitCodeSix) {
  for (const int error : {ENOSPC, EIO, EROFS, EDQUOT}) {
    for (const auto mode : {FaultPlan::Mode::kOnce, FaultPlan::Mode::kSticky}) {
      const int calls = count_failing_calls(error, mode, atomic_writer, [&](const Outcome& out) {
        EXPECT_TRUE(out.failed) << strerrorname_np(error);
        EXPECT_EQ(out.trouble, "") << strerrorname_np(error);
      });
      // create, write, sync, rename, open and sync of the folder
      EXPECT_EQ(calls, 6);
    }
  }
}

TEST(AtomicWrite, AnInterruptedCallIsRepeated) {
  count_failing_calls(EINTR, FaultPlan::Mode::kOnce, atomic_writer, [](const Outcome& out) {
    EXPECT_FALSE(out.failed);
    EXPECT_EQ(out.trouble, "");
  });
  count_failing_calls(EINTR, FaultPlan::Mode::kSticky, atomic_writer, [](const Outcome& out) {
    EXPECT_TRUE(out.failed);  // not for ever
    EXPECT_EQ(out.trouble, "");
  });
}

TEST(AtomicWrite, ShortWritesAreContinued) {
  const Outcome out = write_under({IoOp::kWrite, 1, 0, FaultPlan::Mode::kShort}, atomic_writer);
  EXPECT_EQ(out.hits, 1u);
  EXPECT_FALSE(out.failed);
  EXPECT_EQ(out.trouble, "");
}

// The check above must be able to fail: two writers that break the guarantee are caught.
TEST(AtomicWrite, TheCheckCatchesCarelessWriters) {
  const Writer in_place = [](const fs::path& path, std::string_view text) {
    put_file(path, text.substr(0, text.size() / 2));
    write_file_atomic(path, text);
  };
  int caught = 0;
  count_failing_calls(EIO, FaultPlan::Mode::kOnce, in_place,
                      [&](const Outcome& out) { caught += out.trouble.empty() ? 0 : 1; });
  EXPECT_GE(caught, 4);
  const Writer swallowing = [](const fs::path& path, std::string_view text) {
    try {
      write_file_atomic(path, text);
    } catch (const Error&) {
      put_file(path.parent_path() / "left", "x");
    }
  };
  caught = 0;
  count_failing_calls(EIO, FaultPlan::Mode::kOnce, swallowing,
                      [&](const Outcome& out) { caught += out.trouble.empty() ? 0 : 1; });
  EXPECT_EQ(caught, 6);
}

TEST(AtomicWrite, ARealFileSizeLimitFailsCleanly) {
  TempFolder folder;
  put_file(folder / "file", kOld);
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{50'000, old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THROW(write_file_atomic(folder / "file", kNew), Error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(get_file(folder / "file"), kOld);
  EXPECT_EQ(list_folder(folder.path()).size(), 1u);
}

TEST(AtomicWrite, RefusesAMissingFolderAndAFolderAsTarget) {
  TempFolder folder;
  for (const fs::path& path : {folder / "gone" / "file", folder.path() / ""}) {
    try {
      write_file_atomic(path, "x");
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 6);
      EXPECT_EQ(error.info().code, "E_IO_PLACE");
    }
  }
}

TEST(AtomicWrite, DoesNotFollowALinkAtTheTarget) {
  TempFolder folder;
  put_file(folder / "outside", kOld);
  fs::create_symlink(folder / "outside", folder / "link");
  write_file_atomic(folder / "link", kNew);
  EXPECT_EQ(get_file(folder / "outside"), kOld);
  EXPECT_FALSE(fs::is_symlink(folder / "link"));
}

TEST(AtomicWrite, JoinsPieces) {
  TempFolder folder;
  const std::string a = "one ", b, c = "two";
  const std::span<const std::byte> pieces[] = {
      std::as_bytes(std::span(a)), std::as_bytes(std::span(b)), std::as_bytes(std::span(c))};
  write_file_atomic(folder / "f", pieces);
  EXPECT_EQ(get_file(folder / "f"), "one two");
}

TEST(ReadFile, ReadsWholeEvenInShortPieces) {
  TempFolder folder;
  put_file(folder / "f", kNew);
  const FaultScope fault({IoOp::kRead, 1, 0, FaultPlan::Mode::kShort});
  EXPECT_EQ(read_file(folder / "f", kNew.size()), kNew);
  EXPECT_EQ(fault.hits(), 1u);
}

std::string failure_code(const std::function<void()>& body, int exit_code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), exit_code);
    return error.info().code;
  }
  return "no error";
}

TEST(ReadFile, RefusesWithTheCallersKind) {
  TempFolder folder;
  put_file(folder / "f", kNew);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto read = [&](const char* name, std::size_t limit) {
    return failure_code([&] { read_file(folder / name, limit, ErrorKind::kUsage); }, 2);
  };
  EXPECT_EQ(read("gone", 10), "E_IO_OPEN");
  EXPECT_EQ(read(".", 10), "E_IO_OPEN");
  EXPECT_EQ(read("pipe", 10), "E_IO_OPEN");  // and does not wait for a writer
  EXPECT_EQ(read("f", kNew.size() - 1), "E_IO_SIZE");
  const FaultScope fault({IoOp::kRead, 1, EIO, FaultPlan::Mode::kOnce});
  EXPECT_EQ(read("f", kNew.size()), "E_IO_READ");
}

TEST(ReadFile, AFileWithoutASizeIsStillBounded) {
  // Files of /proc say 0 bytes and hold more.
  EXPECT_EQ(failure_code([] { read_file("/proc/self/status", 16); }, 4), "E_IO_SIZE");
  EXPECT_GT(read_file("/proc/self/status", 1 << 20).size(), 100u);
}

TEST(MappedFile, ShowsTheBytesAndNoticesChanges) {
  TempFolder folder;
  put_file(folder / "f", kNew);
  MappedFile file(folder / "f");
  ASSERT_EQ(file.bytes().size(), kNew.size());
  EXPECT_EQ(std::memcmp(file.bytes().data(), kNew.data(), kNew.size()), 0);
  EXPECT_FALSE(file.changed_on_disk());
  file.release(1, kNew.size() - 2);
  EXPECT_EQ(file.bytes()[5000], std::byte{'n'});
  const MappedFile moved(std::move(file));
  EXPECT_EQ(moved.bytes().size(), kNew.size());
  EXPECT_TRUE(file.bytes().empty());
  write_file_atomic(folder / "f", kNew);  // same bytes, another file
  EXPECT_TRUE(moved.changed_on_disk());
  fs::remove(folder / "f");
  EXPECT_TRUE(moved.changed_on_disk());
}

TEST(MappedFile, NoticesACutAndATouch) {
  TempFolder folder;
  put_file(folder / "f", kNew);
  const MappedFile cut(folder / "f");
  fs::resize_file(folder / "f", 10);
  EXPECT_TRUE(cut.changed_on_disk());
  const MappedFile touched(folder / "f");
  fs::last_write_time(folder / "f", fs::file_time_type::clock::now() + std::chrono::seconds(3));
  EXPECT_TRUE(touched.changed_on_disk());
}

TEST(MappedFile, OpensEmptyFilesAndRefusesTheRest) {
  TempFolder folder;
  put_file(folder / "empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
  EXPECT_EQ(failure_code([&] { MappedFile file(folder / "gone"); }, 4), "E_IO_OPEN");
  EXPECT_EQ(failure_code([&] { MappedFile file(folder.path()); }, 4), "E_IO_OPEN");
  put_file(folder / "f", kNew);
  for (const IoOp op : {IoOp::kOpen, IoOp::kStat, IoOp::kMap}) {
    const FaultScope fault({op, 1, ENOMEM, FaultPlan::Mode::kOnce});
    EXPECT_EQ(failure_code([&] { MappedFile file(folder / "f"); }, 4), "E_IO_OPEN");
    EXPECT_EQ(fault.hits(), 1u);
  }
}

TEST(OutputFolder, IsMadeAndProvenWritable) {
  TempFolder folder;
  ensure_output_folder(folder / "a/b/c");
  ensure_output_folder(folder / "a/b/c/");
  EXPECT_TRUE(is_folder(folder / "a/b/c"));
  EXPECT_TRUE(list_folder(folder / "a/b/c").empty());
  put_file(folder / "file", "x");
  for (const char* bad : {"file", "file/below"}) {
    EXPECT_EQ(failure_code([&] { ensure_output_folder(folder / bad); }, 6), "E_IO_FOLDER");
  }
  for (const int error : {EROFS, ENOSPC, EACCES}) {
    const FaultScope fault({IoOp::kOpen, 1, error, FaultPlan::Mode::kOnce});
    EXPECT_EQ(failure_code([&] { ensure_output_folder(folder / "a"); }, 6), "E_IO_FOLDER");
  }
  const FaultScope fault({IoOp::kMkdir, 1, EROFS, FaultPlan::Mode::kSticky});
  EXPECT_EQ(failure_code([&] { ensure_output_folder(folder / "new"); }, 6), "E_IO_FOLDER");
}

TEST(ListFolder, IsSortedAndNamesWhatIsMissing) {
  TempFolder folder;
  for (const char* name : {"b", "a", "c"}) put_file(folder / name, "");
  std::string names;
  for (const fs::path& path : list_folder(folder.path())) names += path.filename().string();
  EXPECT_EQ(names, "abc");
  EXPECT_EQ(failure_code([&] { list_folder(folder / "gone"); }, 4), "E_IO_LIST");
  EXPECT_TRUE(file_exists(folder / "a"));
  EXPECT_FALSE(file_exists(folder / "gone"));
}

TEST(IoLayer, CountsItsCalls) {
  TempFolder folder;
  const CallCounter calls;
  write_file_atomic(folder / "f", "x");
  EXPECT_EQ(calls.count(), 6u);
}

}  // namespace
}  // namespace tessera::io_test
