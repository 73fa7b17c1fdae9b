// A Slurm of one node on this machine, for one test: the real slurmctld and slurmd, in a folder of
// their own, on ports of their own, without authentication, cgroups, systemd or the right of root.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/guardian.h"

namespace tessera {

class SlurmCluster {
 public:
  // The programs of Slurm that are not installed, "" when all are.
  static std::string missing();
  static std::string program(const std::string& name);  // its path, "" when it is not there

  // Returns when the node takes jobs. `folders` go with the cluster, whatever ends the test.
  // Throws std::runtime_error with the ends of the logs when it does not come up.
  explicit SlurmCluster(std::vector<std::filesystem::path> folders);

  std::filesystem::path config() const { return folder_ / "slurm.conf"; }  // what SLURM_CONF names
  std::string logs() const;

 private:
  void write_config() const;
  bool comes_up() const;

  std::filesystem::path folder_;
  std::unique_ptr<Guardian> guardian_;
};

}  // namespace tessera
