// The page at "/" (apps/serve/page.html).
#pragma once

#include <string>

namespace tessera {

// NONCE stands in it where the server's policy for scripts and styles wants one.
std::string page_text();

}  // namespace tessera
