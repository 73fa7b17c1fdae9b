// Images described by a server: POST /v1/chat/completions with a data URL, texts as they grow.
#pragma once

#include "apps/studio/describer.h"
#include "apps/studio/server_link.h"

namespace tessera {

class ServerDescriber final : public Describer {
 public:
  static constexpr std::size_t kMaxText = kServerTextBytes;

  // Borrowed.
  explicit ServerDescriber(ServerLink& server) : server_(server) {}
  void describe(const CaptionSetup& setup, const DescribeSource& next, TextListener& listener,
                const std::function<bool()>& ends) override;

 private:
  // False: `ends` said so.
  bool describe_one(const CaptionSetup& setup, const DescribeRequest& request,
                    TextListener& listener, const std::function<bool()>& ends);

  ServerLink& server_;
};

}  // namespace tessera
