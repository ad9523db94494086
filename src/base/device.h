/* device.h - marks of what kernels on a GPU use as well: the same source, compiled twice. Nothing to a C compiler. */
#ifndef TERN_BASE_DEVICE_H
#define TERN_BASE_DEVICE_H

#ifdef __CUDACC__
#define ON_DEVICE __host__ __device__ /* host code of a .cu file may call it too */
#define DEVICE_ONLY __device__        /* it may not: the tables of ops/math*.c lie in the device's memory */
#define DEVICE_COPY static __device__ /* a function of ops/math*.c, which each file of kernels includes for itself */
#else
#define ON_DEVICE
#define DEVICE_ONLY
#define DEVICE_COPY
#endif

#endif
