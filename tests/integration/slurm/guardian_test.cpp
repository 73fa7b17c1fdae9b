// The guardian ends everything that it started, also what hides from it, when its owner goes on and
// when its owner is killed.
#include "tests/support/guardian.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace tessera::guardian_test {
namespace {

// A daemon as slurmstepd is one: a session of its own, no parent. Its id is in "daemon".
Guardian::Command daemon_in(const std::filesystem::path& folder) {
  return {{"/bin/sh", "-c",
           "cd '" + folder.string() +
               "'; (setsid sh -c 'echo $$ > part; mv part daemon; trap : TERM; sleep 1000' &); "
               "while :; do sleep 1000; done"},
          {"PATH=/usr/bin:/bin"},
          folder / "log"};
}

bool lives(pid_t process) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
  const std::size_t name_end = line.rfind(") ");
  return name_end != std::string::npos && line[name_end + 2] != 'Z';
}

pid_t daemon_of(const std::filesystem::path& folder) {
  for (int i = 0; i < 20000 && !std::filesystem::exists(folder / "daemon"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::atoi(get_file(folder / "daemon").c_str());
}

TEST(Guardian, NothingIsLeftWhenItGoes) {
  const TempFolder folder;
  pid_t daemon = 0;
  {
    const Guardian guardian({daemon_in(folder.path())}, {folder.path()});
    daemon = daemon_of(folder.path());
    ASSERT_GT(daemon, 0);
    EXPECT_TRUE(lives(daemon));
  }
  EXPECT_FALSE(lives(daemon));
  EXPECT_FALSE(std::filesystem::exists(folder.path()));
}

TEST(Guardian, NothingIsLeftWhenItsOwnerIsKilled) {
  const TempFolder folder;
  const pid_t owner = ::fork();
  if (owner == 0) {
    const Guardian guardian({daemon_in(folder.path())}, {folder.path()});
    while (true) ::pause();
  }
  const pid_t daemon = daemon_of(folder.path());
  ASSERT_GT(daemon, 0);
  EXPECT_TRUE(lives(daemon));
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  for (int i = 0; i < 20000 && (lives(daemon) || std::filesystem::exists(folder.path())); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(lives(daemon));
  EXPECT_FALSE(std::filesystem::exists(folder.path()));
}

}  // namespace
}  // namespace tessera::guardian_test
