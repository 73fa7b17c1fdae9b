// All ops. A free function of this namespace checks what it is given and runs the op on a device; a
// mismatch is a programmer's error (files were checked when they loaded). M rows, k inputs, n
// outputs; all activations f32. docs/adding-an-op.md says how one is added.
#pragma once

#include "engine/ops/attention.h"
#include "engine/ops/codebook.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "engine/ops/norm.h"
#include "engine/ops/rope.h"
#include "engine/ops/row_attention.h"
