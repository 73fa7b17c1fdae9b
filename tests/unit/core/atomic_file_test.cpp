// Files written piece by piece: whole under their name, or not there at all.
#include "engine/core/atomic_file.h"

#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "tests/support/fault_scope.h"
#include "tests/support/temp_folder.h"

namespace tessera::atomic_file_test {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

void write_pieces(const fs::path& path) {
  AtomicFile file(path, 9);
  for (const char* piece : {"one", "two", "six"}) file.append(bytes_of(piece));
  EXPECT_TRUE(file.publish());
}

TEST(AtomicFile, PiecesStandInTheirOrderAndNothingElseIsThere) {
  const TempFolder folder;
  {
    AtomicFile file(folder / "a");
    file.append(bytes_of("first "));
    EXPECT_FALSE(fs::exists(folder / "a")) << "readers see whole files only";
    file.append(bytes_of("second"));
    EXPECT_EQ(file.size(), 12u);
    EXPECT_TRUE(file.publish());
  }
  EXPECT_EQ(get_file(folder / "a"), "first second");
  write_pieces(folder / "a");
  EXPECT_EQ(get_file(folder / "a"), "onetwosix") << "replaced";
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFile, WhatIsNotPublishedIsRemoved) {
  const TempFolder folder;
  put_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.append(bytes_of("new"));
    EXPECT_EQ(entries(folder.path()), 2u);
  }
  EXPECT_EQ(get_file(folder / "a"), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFile, ATakenNameStaysWhereItMustNotBeReplaced) {
  const TempFolder folder;
  put_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.append(bytes_of("new"));
    EXPECT_FALSE(file.publish(Publish::kNew));
  }
  EXPECT_EQ(get_file(folder / "a"), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
}

// Every call fails once: with a full disk the old file stays, and no temporary is left.
TEST(AtomicFile, AFullDiskLeavesNoHalfFile) {
  int faults = 0;
  for (std::uint64_t nth = 1;; ++nth) {
    const TempFolder folder;
    put_file(folder / "a", "old");
    const FaultScope fault({.op = IoOp::kAny, .nth = nth, .error = ENOSPC});
    std::string code, where;
    try {
      write_pieces(folder / "a");
    } catch (const Error& error) {
      code = error.info().code;
      where = error.info().where;
      EXPECT_EQ(error.exit_code(), 6);
    }
    if (fault.hits() == 0) break;
    ++faults;
    EXPECT_EQ(code, "E_IO_WRITE") << nth;
    // The file has its name before the folder is synced.
    const bool renamed = where.find("folder") != std::string::npos;
    EXPECT_EQ(get_file(folder / "a"), renamed ? "onetwosix" : "old") << nth << " " << where;
    EXPECT_EQ(entries(folder.path()), 1u) << nth;
  }
  EXPECT_GE(faults, 7) << "create, three writes, sync, rename, the folder's";
}

}  // namespace
}  // namespace tessera::atomic_file_test
