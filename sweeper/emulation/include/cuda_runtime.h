// CUDA's device side as host C++17, enough to compile and run kernels: the part of <cuda_runtime.h> that a
// kernel can use. It is included in front of every kernel, as nvcc does.
#pragma once

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "simt/abi.h"
#include "simt/keywords.h"

#include "simt/thread.h"

#include "simt/warp.h"

#include "simt/atomics.h"
#include "simt/math.h"
#include "simt/memory.h"
