// A server (`tessera serve`) in the place of a model of this process: what it is asked, and its
// answers checked. From several threads at once.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>

#include "apps/client/client.h"
#include "apps/studio/server_answers.h"
#include "engine/core/json.h"
#include "vision/image/image_reader.h"

namespace tessera {

struct ServerOptions {
  std::string url;                // "http://127.0.0.1:8080"
  std::filesystem::path key_file;  // empty = no key
  ClientLimits limits = {};
};

class ServerLink {
 public:
  using Cancelled = std::function<bool()>;

  // Error kUsage (E_CONNECT_URL, E_CONNECT_KEY). Asks nothing yet. `helper` reads its images.
  ServerLink(const ServerOptions& options, const std::filesystem::path& helper);

  std::string url() const { return address_.url(); }

  // Error as of ask_server() and of server_answers.h. Where it was cancelled: false, or nothing.
  std::string get(const std::string& path, double seconds, const Cancelled& cancelled) const;
  bool stream(const std::string& path, const Json& body, const Cancelled& cancelled,
              const std::function<void(const ServerEvent&)>& on_event) const;
  // Pixels of a PNG that it sent, one at a time. Error kGeneral.
  Image decode(const std::string& png);

 private:
  ServerAddress address_;
  std::string key_;
  ClientLimits limits_;
  std::mutex decoding_;
  ImageReader reader_;
};

}  // namespace tessera
