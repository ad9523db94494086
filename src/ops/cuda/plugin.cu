/* plugin.cu - the cuda backend's one door: what devices there are, and opening one of them. */
#include "ops/cuda/host.cuh"

/* ---- errors, in words ---- */

/* What a user can do about it; NULL: nothing known. */
static const char *advice(cudaError_t error)
{
  switch (error) {
  case cudaErrorInsufficientDriver:
    return "the NVIDIA driver is missing or older than this build's CUDA: install a newer one";
  case cudaErrorNoDevice:
    return "no GPU is visible (CUDA_VISIBLE_DEVICES?)";
  case cudaErrorDevicesUnavailable:
    return "the GPU is busy or in exclusive use: end the other process or choose another GPU";
  case cudaErrorMemoryAllocation:
    return "out of GPU memory";
  case cudaErrorNoKernelImageForDevice:
    return "this build has no code for this GPU";
  default:
    return NULL;
  }
}

static tern_status fail(cudaError_t error, const char *what, tern_error *err)
{
  const char *words = advice(error);
  tern_status status = error == cudaErrorMemoryAllocation ? TERN_E_LIMIT : TERN_E_UNSUPPORTED;
  return err_set(err, status, "backend cuda: %s: %s (%s)", what, words ? words : cudaGetErrorString(error),
                 cudaGetErrorName(error));
}

/* ---- devices ---- */

static tern_status count(int *n, tern_error *err)
{
  cudaError_t result = cudaGetDeviceCount(n);
  if (result == cudaErrorNoDevice) {
    *n = 0;
    return TERN_OK;
  }
  return result == cudaSuccess ? TERN_OK : fail(result, "looking for GPUs", err);
}

__global__ void probe(int *out)
{
  *out = 1;
}

static tern_status describe(int device, cuda_device *out, tern_error *err)
{
  cudaDeviceProp p;
  cudaFuncAttributes code;
  *out = {};
  cudaError_t result = cudaSetDevice(device);
  result = result == cudaSuccess ? cudaGetDeviceProperties(&p, device) : result;
  result = result == cudaSuccess ? cudaMemGetInfo(&out->available, &out->memory) : result;
  if (result != cudaSuccess)
    return fail(result, "looking at the GPU", err);
  snprintf(out->name, sizeof out->name, "%.127s", p.name);
  out->capability = 10 * p.major + p.minor;
  out->processors = p.multiProcessorCount;
  cudaDriverGetVersion(&out->driver);
  cudaRuntimeGetVersion(&out->runtime);
  out->built_for = cudaFuncGetAttributes(&code, probe) == cudaSuccess;
  cudaGetLastError();
  return TERN_OK;
}

/* ---- bandwidth ---- */

__global__ void read_all(const uint4 *from, size_t n, uint32_t *out)
{
  size_t stride = (size_t)gridDim.x * blockDim.x;
  uint32_t sum = 0;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i + 7 * stride < n; i += 8 * stride) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
      v[j] = __ldcs(from + i + (size_t)j * stride);
#pragma unroll
    for (int j = 0; j < 8; j++)
      sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x12345u)
    *out = sum; /* keeps the reads */
}

static tern_status bandwidth(int device, double *gb_s, tern_error *err)
{
  enum { PASSES = 6, LEAST = 256 << 20 }; /* below that, it would not fill the loop of every thread */
  size_t bytes = (size_t)2 << 30, available = 0, all = 0;
  uint4 *from = NULL;
  cudaDeviceProp p;
  cudaEvent_t begin = NULL, end = NULL;
  cudaError_t result = cudaSetDevice(device);
  result = result == cudaSuccess ? cudaGetDeviceProperties(&p, device) : result;
  result = result == cudaSuccess ? cudaMemGetInfo(&available, &all) : result;
  while (bytes > available / 2 && bytes > LEAST)
    bytes /= 2;
  result = result == cudaSuccess ? cudaMalloc(&from, bytes) : result;
  result = result == cudaSuccess ? cudaMemset(from, 1, bytes) : result;
  result = result == cudaSuccess ? cudaEventCreate(&begin) : result;
  result = result == cudaSuccess ? cudaEventCreate(&end) : result;
  *gb_s = 0;
  for (int i = 0; i < PASSES && result == cudaSuccess; i++) {
    float ms = 0;
    cudaEventRecord(begin);
    read_all<<<p.multiProcessorCount * 8, 256>>>(from, bytes / sizeof *from, (uint32_t *)from);
    cudaEventRecord(end);
    result = cudaGetLastError(); /* of the launch */
    result = result == cudaSuccess ? cudaEventSynchronize(end) : result;
    result = result == cudaSuccess ? cudaEventElapsedTime(&ms, begin, end) : result;
    double rate = ms > 0 ? 1e-6 * (double)bytes / ms : 0;
    *gb_s = rate > *gb_s ? rate : *gb_s;
  }
  cudaFree(from);
  if (begin)
    cudaEventDestroy(begin);
  if (end)
    cudaEventDestroy(end);
  return result == cudaSuccess ? TERN_OK : fail(result, "measuring the GPU's memory", err);
}

/* ---- a context ---- */

static tern_status check(ops_context *cx, tern_error *err)
{
  cuda_state *s = cuda_state_of(cx);
  size_t wanting = s->wanting;
  s->wanting = 0;
  if (s->cx.error != cudaSuccess)
    return fail(s->cx.error, "the GPU failed: end this process and look at the GPU (nvidia-smi)", err);
  return wanting ? err_set(err, TERN_E_LIMIT, "GPU memory: a step needs %zu KB more, but %zu KB are free", wanting >> 10,
                           cuda_memory_available(cx) >> 10)
                 : TERN_OK;
}

/* All that was written and prepared has arrived, and what only that needed is given back. */
static tern_status settle(ops_context *cx, tern_error *err)
{
  cuda_state *s = cuda_state_of(cx);
  cuda_ok(&s->cx, cudaStreamSynchronize(s->cx.stream));
  cuda_upload_end(s);
  return check(cx, err);
}

static size_t exact_block_bytes(const ops_kv_shape *shape)
{
  return cuda_kv_block_bytes(false, shape);
}

static size_t fast_block_bytes(const ops_kv_shape *shape)
{
  return cuda_kv_block_bytes(true, shape);
}

static void quantise(ops_context *cx, const ops_kv_shape *shape, const void *plain, void *quantised, int rows)
{
  cuda_state *s = cuda_state_of(cx);
  if (s->cx.error == cudaSuccess)
    cuda_kv_quantise(&s->cx, shape, plain, quantised, rows);
}

static size_t scratch_bytes(const ops_context *cx, const ops_room *room)
{
  const cuda_state *s = cuda_state_of(cx);
  ops_room seen = *room;
  seen.keys = cuda_keys_rounded(room->keys);
  size_t linear = s->cx.fast ? cuda_fast_linear_scratch(&s->cx, room->tokens, room->inputs)
                             : cuda_exact_linear_scratch(&s->cx, room->tokens, room->inputs);
  size_t attention = cuda_attention_scratch(&s->cx, &seen, room->heads);
  return linear > attention ? linear : attention;
}

static tern_status reserve(ops_context *cx, const ops_room *room, tern_error *err)
{
  cuda_state *s = cuda_state_of(cx);
  size_t bytes = scratch_bytes(cx, room);
  if (bytes <= s->cx.scratch_bytes)
    return TERN_OK;
  TRY(check(cx, err));
  cuda_ok(&s->cx, cudaStreamSynchronize(s->cx.stream));
  cuda_forget_graphs(s); /* they know the old one's address */
  cudaFree(s->cx.scratch);
  s->cx.scratch_bytes = cx->scratch_bytes = 0;
  s->cx.scratch = bytes == SIZE_MAX ? NULL : cuda_memory_alloc(cx, bytes);
  if (!s->cx.scratch)
    return err_set(err, TERN_E_LIMIT, "GPU memory: %zu MB of scratch are needed, but %zu MB are free", bytes >> 20,
                   cuda_memory_available(cx) >> 20);
  s->cx.scratch_bytes = cx->scratch_bytes = bytes;
  cuda_ok(&s->cx, cudaMemsetAsync(s->cx.scratch, 0, bytes, s->cx.stream)); /* kernels read padding, and do not use it */
  return check(cx, err);
}

static void close_device(ops_context *cx)
{
  cuda_state *s = cuda_state_of(cx);
  if (!s)
    return;
  if (s->cx.stream)
    cudaStreamSynchronize(s->cx.stream);
  cuda_upload_end(s);
  cuda_forget_graphs(s);
  cuda_mirror_free(&s->facts);
  cuda_mirror_free(&s->table);
  cudaFree(s->counting);
  cudaFree(s->choosing);
  cudaFree(s->given);
  cudaFree(s->cx.scratch);
  if (s->copied)
    cudaEventDestroy(s->copied);
  if (s->cx.stream)
    cudaStreamDestroy(s->cx.stream);
  mem_free(s);
  cx->device = NULL;
}

/* Every op goes through submit. */
#define TABLE(label, block_bytes)                                                                                      \
  {                                                                                                                    \
    .name = label, .own_memory = true, .run = {}, .alloc = cuda_memory_alloc, .release = cuda_memory_release,          \
    .write = cuda_memory_write, .read = cuda_memory_read, .kv_block_bytes = block_bytes, .kv_quantise = quantise,      \
    .submit = cuda_submit, .prepare = cuda_upload, .discard = cuda_discard, .layout = NULL,                            \
    .scratch_bytes = scratch_bytes, .reserve = reserve, .choose = cuda_choose, .takes = cuda_takes, .check = check, .settle = settle,           \
    .available = cuda_memory_available, .host_alloc = cuda_host_alloc, .host_release = cuda_host_release, .close = close_device                            \
  }

static const ops_backend exact_backend = TABLE("cuda", exact_block_bytes),
                         fast_backend = TABLE("cuda", fast_block_bytes);

static cudaError_t begin(cuda_state *s, int device)
{
  cudaDeviceProp p;
  int32_t counting[CUDA_COUNTING];
  cudaError_t result = cudaSetDevice(device);
  result = result == cudaSuccess ? cudaGetDeviceProperties(&p, device) : result;
  if (result != cudaSuccess)
    return result;
  cudaFuncAttributes code;
  result = cudaFuncGetAttributes(&code, probe);
  if (result != cudaSuccess)
    return cudaErrorNoKernelImageForDevice;
  s->cx.device = device;
  s->cx.processors = p.multiProcessorCount;
  s->cx.capability = 10 * p.major + p.minor;
  s->cx.shared_most = p.sharedMemPerBlockOptin;
  s->cx.overlap = s->cx.capability >= 90;
  for (int i = 0; i < CUDA_COUNTING; i++)
    counting[i] = i;
  size_t bytes = (CUDA_COUNTING + CUDA_WANTED) * sizeof(int32_t);
  result = cudaStreamCreateWithFlags(&s->cx.stream, cudaStreamNonBlocking);
  result = result == cudaSuccess ? cudaEventCreateWithFlags(&s->copied, cudaEventDisableTiming) : result;
  result = result == cudaSuccess ? cudaMalloc(&s->counting, bytes) : result;
  result = result == cudaSuccess ? cudaMalloc(&s->choosing, cuda_choose_bytes()) : result;
  result = result == cudaSuccess ? cudaMemset(s->choosing, 0, cuda_choose_bytes()) : result;
  return result == cudaSuccess ? cudaMemcpy(s->counting, counting, sizeof counting, cudaMemcpyHostToDevice) : result;
}

static tern_status open_device(const cuda_options *o, ops_context *cx, tern_error *err)
{
  int n = 0;
  TRY(count(&n, err));
  if (n == 0)
    return fail(cudaErrorNoDevice, "opening", err);
  if (o->device < 0 || o->device >= n)
    return err_set(err, TERN_E_USAGE, "backend cuda: GPU %d: there are %d", o->device, n);
  cuda_state *s = (cuda_state *)mem_zalloc(sizeof *s);
  if (!s)
    return err_nomem(err, "backend cuda");
  s->cx.device = o->device;
  s->cx.fast = o->fast;
  s->share = o->share;
  cx->device = s;
  cudaError_t result = begin(s, o->device);
  if (result != cudaSuccess) {
    cudaGetLastError();
    close_device(cx);
    return fail(result, "opening the GPU", err);
  }
  cuda_exact_setup(&s->cx);
  cuda_fast_setup(&s->cx);
  cuda_attention_setup(&s->cx);
  tern_status status = check(cx, err);
  if (status != TERN_OK) {
    close_device(cx);
    return status;
  }
  cx->backend = o->fast ? &fast_backend : &exact_backend;
  return TERN_OK;
}

extern "C" __attribute__((visibility("default"))) const cuda_plugin *tern_cuda_plugin(void)
{
  static const cuda_plugin plugin = {.version = TERN_VERSION,
                                     .build = TERN_CUDA_BUILD,
                                     .count = count,
                                     .describe = describe,
                                     .bandwidth = bandwidth,
                                     .open = open_device};
  return &plugin;
}
