// Images of a server: asked for by POST /v1/images/generations, shown as its partial images come.
#pragma once

#include <memory>
#include <string>

#include "apps/studio/event_queue.h"
#include "apps/studio/image_maker.h"
#include "apps/studio/server_link.h"

namespace tessera {

class ServerImages final : public ImageMaker {
 public:
  static constexpr std::int64_t kPartials = 3;  // as many as a server gives

  // Both are borrowed. `model`: where settings name none; empty = the server's first.
  ServerImages(ServerLink& server, std::string model, EventQueue& events)
      : server_(server), model_(std::move(model)), events_(events) {}
  void make(const GenerateJob& job, Generation& generation, StopRequest& stop_request) override;

 private:
  void check(const GenerateSettings& settings, const ServerLink::Cancelled& cancelled) const;
  void take_image(const GenerateJob& job, Generation& generation, ImageNews&& news);
  void tell(const Generation& generation) { events_.push(GenerationEvent{generation}); }

  ServerLink& server_;
  std::string model_;
  EventQueue& events_;
};

// The fields of the request: settings by their names, those of a method as far as they differ from
// what its name says.
Json image_request(const GenerateSettings& settings, const std::string& model);

}  // namespace tessera
