// All of Tessera's library. The namespace of the headers carries the number of the binary
// interface; here it gets the name that programs use.
#pragma once

#include <tessera/error.h>
#include <tessera/image.h>
#include <tessera/request.h>
#include <tessera/runtime.h>
#include <tessera/settings.h>

namespace tessera = tessera_v0;
