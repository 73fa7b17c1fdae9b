// What the program says about the keys of a describing model's files.
#pragma once

#include "apps/cli/session.h"
#include "engine/families/describe_spec.h"

namespace tessera {

// One line a file with keys that nobody knows, or that are not followed.
void warn_of_keys(const Session& session, const DescribeSpec& spec);
// Every key, a line each.
void print_keys(const Session& session, const DescribeSpec& spec);

}  // namespace tessera
