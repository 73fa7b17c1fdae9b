// Nothing is linked. In a file of its own, so that another definition takes its place.
#include "engine/families/model_source.h"

namespace tessera {

const ModelSource* linked_models() { return nullptr; }

}  // namespace tessera
