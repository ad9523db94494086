/* math.cuh - the functions of ops/math.h that are not inline, for kernels: the same sources as on the host. */
#ifndef TERN_OPS_CUDA_MATH_CUH
#define TERN_OPS_CUDA_MATH_CUH

#include "ops/cuda/cuda.cuh"

extern "C" {
#include "ops/math_fdlibm.c"
#include "ops/math_log.c"
}

#endif
