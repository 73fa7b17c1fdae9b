// A program with a name that the library has inside: neither may get the other's.
#include <string>

namespace tessera {
struct ErrorInfo;
std::string format_error(const ErrorInfo&) { return "the program's own"; }
}  // namespace tessera
