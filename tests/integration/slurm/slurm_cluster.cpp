// The cluster's configuration, its start, its logs.
#include "tests/integration/slurm/slurm_cluster.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <stdexcept>

#include "tests/support/temp_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::array kPrograms = {"slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "sinfo"};
constexpr int kStarts = 3;  // somebody else may take a port between its choice and its use

// Two different TCP ports that nobody listens on.
std::array<int, 2> free_ports() {
  std::array<int, 2> sockets{}, ports{};
  for (std::size_t i = 0; i < 2; ++i) {
    sockets[i] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    expects(::bind(sockets[i], any, size) == 0, "a port of the loopback is free");
    ::getsockname(sockets[i], any, &size);
    ports[i] = ntohs(address.sin_port);
  }
  for (const int fd : sockets) ::close(fd);
  return ports;
}

// As Slurm cuts it.
std::string short_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const std::string whole = name.data();
  return whole.substr(0, whole.find('.'));
}

std::string end_of(const fs::path& path) {
  const std::string text = get_file(path);
  return path.filename().string() + ":\n" +
         text.substr(text.size() - std::min<std::size_t>(text.size(), 3000));
}

}  // namespace

std::string SlurmCluster::program(const std::string& name) {
  for (const char* folder : {"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}) {
    const fs::path path = fs::path(folder) / name;
    if (::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return "";
}

std::string SlurmCluster::missing() {
  std::string names;
  for (const char* name : kPrograms) {
    if (program(name).empty()) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

SlurmCluster::SlurmCluster(std::vector<fs::path> folders) {
  // Not where other tests have theirs: scripts run from here, and a file system in memory may be
  // mounted without the right to.
  std::string pattern = "/tmp/tessera-slurm-XXXXXX";
  expects(::mkdtemp(pattern.data()) != nullptr, "a temporary folder can be made");
  folder_ = pattern;
  folders.push_back(folder_);
  std::string logs_so_far;
  for (int i = 0; i < kStarts; ++i) {
    for (const char* name : {"state", "spool", "cgroup"}) fs::create_directories(folder_ / name);
    write_config();
    const std::vector<std::string> environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
                                                  "SLURM_CONF=" + config().string()};
    guardian_ = std::make_unique<Guardian>(
        std::vector<Guardian::Command>{
            {{program("slurmctld"), "-D"}, environment, folder_ / "slurmctld.log"},
            {{program("slurmd"), "-D", "-N", "paint"}, environment, folder_ / "slurmd.log"}},
        folders);
    if (comes_up()) return;
    logs_so_far += logs();
    guardian_.reset();
    for (const fs::path& folder : folders) fs::create_directories(folder);
  }
  fs::remove_all(folder_);
  throw std::runtime_error("Slurm does not come up: " + logs_so_far);
}

std::string SlurmCluster::logs() const {
  return end_of(folder_ / "slurmctld.log") + end_of(folder_ / "slurmd.log");
}

// cred_expire: a requeued job rests so long. CgroupPlugin: slurmd wants one even if nothing uses
// it; of version 1 it takes a folder that holds nothing. config_overrides: the node has what is
// written here, whatever the machine has.
void SlurmCluster::write_config() const {
  const auto [controller, node] = free_ports();
  const std::string at = folder_.string(), user = std::to_string(::geteuid());
  put_file(folder_ / "cgroup.conf",
           "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nCgroupMountpoint=" + at + "/cgroup\n");
  put_file(config(), "ClusterName=tessera\nSlurmctldHost=" + short_host_name() +
                         "(127.0.0.1)\nSlurmUser=" + user + "\nSlurmdUser=" + user +
                         "\nSlurmctldPort=" + std::to_string(controller) +
                         "\nSlurmdPort=" + std::to_string(node) + "\nStateSaveLocation=" + at +
                         "/state\nSlurmdSpoolDir=" + at + "/spool\nSlurmctldPidFile=" + at +
                         "/slurmctld.pid\nSlurmdPidFile=" + at +
                         "/slurmd.pid\n"
                         "AuthType=auth/none\nCredType=cred/none\nAuthInfo=cred_expire=5\n"
                         "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
                         "JobAcctGatherType=jobacct_gather/none\nSwitchType=switch/none\n"
                         "MpiDefault=none\nMailProg=/bin/true\nSlurmctldDebug=info\n"
                         "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n"
                         "SchedulerType=sched/builtin\n"
                         "SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,"
                         "sched_interval=2\n"
                         "SlurmdParameters=config_overrides\nReturnToService=2\nKillWait=10\n"
                         "NodeName=paint NodeAddr=127.0.0.1 NodeHostname=" +
                         short_host_name() +
                         " CPUs=64 RealMemory=1000000 State=UNKNOWN\n"
                         "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
}

bool SlurmCluster::comes_up() const {
  const std::string ask = "SLURM_CONF='" + config().string() + "' timeout 10 '" + program("sinfo") +
                          "' -h -o %t 2>/dev/null";
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    std::array<char, 64> answer{};
    if (FILE* pipe = ::popen(ask.c_str(), "r")) {
      const bool said = std::fgets(answer.data(), answer.size(), pipe) != nullptr;
      ::pclose(pipe);
      if (said && std::string(answer.data()) == "idle\n") return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

}  // namespace tessera
