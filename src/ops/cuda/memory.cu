/* memory.cu - memory of the device, and ways between it and the host.
 *
 * alloc gives NULL where there is none left: the request that asked fails, nothing else does. (That is no error of the
 * device: it goes on.) write and read are in the order of the stream; both have happened when they return.
 *
 * Memory begins as zeros: kernels read whole blocks of keys and values, and pass over what was never written.
 */
#include "ops/cuda/host.cuh"

void *cuda_memory_alloc(ops_context *cx, size_t bytes)
{
  cuda_state *s = cuda_state_of(cx);
  void *p = NULL;
  if (s->cx.error != cudaSuccess || bytes > cuda_memory_available(cx))
    return NULL;
  cudaError_t result = cudaMalloc(&p, bytes ? bytes : 1);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return NULL;
  }
  if (!cuda_ok(&s->cx, result))
    return NULL;
  cuda_ok(&s->cx, cudaMemsetAsync(p, 0, bytes, s->cx.stream));
  return p;
}

void cuda_memory_release(ops_context *cx, void *p)
{
  cuda_state_of(cx);
  cudaFree(p); /* waits for what still uses it */
}

/* The source may be the host's or the device's own (a block of keys and values that is copied before it is written). */
void cuda_memory_write(ops_context *cx, void *to, const void *from, size_t bytes)
{
  cuda_state *s = cuda_state_of(cx);
  if (s->cx.error == cudaSuccess)
    cuda_ok(&s->cx, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s->cx.stream));
  if (s->cx.error == cudaSuccess)
    cuda_ok(&s->cx, cudaStreamSynchronize(s->cx.stream));
}

void cuda_memory_read(ops_context *cx, void *to, const void *from, size_t bytes)
{
  cuda_state *s = cuda_state_of(cx);
  if (s->cx.error == cudaSuccess)
    cuda_ok(&s->cx, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->cx.stream));
  if (s->cx.error == cudaSuccess)
    cuda_ok(&s->cx, cudaStreamSynchronize(s->cx.stream));
  if (s->cx.error != cudaSuccess)
    memset(to, 0, bytes); /* what is looked at before the error is noticed has a value */
}

size_t cuda_memory_available(ops_context *cx)
{
  size_t available = 0, all = 0;
  const cuda_state *s = cuda_state_of(cx);
  if (cudaMemGetInfo(&available, &all) != cudaSuccess)
    return 0;
  size_t kept = (size_t)((double)all * (1 - s->share)); /* for others */
  return available > kept ? available - kept : 0;
}

void *cuda_host_alloc(ops_context *cx, size_t bytes)
{
  void *p = NULL;
  cuda_state_of(cx);
  if (cudaMallocHost(&p, bytes) != cudaSuccess) {
    cudaGetLastError();
    return NULL;
  }
  return p;
}

void cuda_host_release(ops_context *cx, void *p)
{
  (void)cx;
  cudaFreeHost(p);
}

/* ---- mirrors ---- */

void cuda_mirror_free(cuda_mirror *m)
{
  cudaFreeHost(m->host);
  cudaFree(m->device);
  *m = {};
}

/* Contents are lost. The caller has waited for copies out of it, and forgets graphs that know its address. */
bool cuda_mirror_grow(cuda_state *s, cuda_mirror *m, size_t bytes)
{
  if (bytes <= m->bytes)
    return true;
  cuda_mirror_free(m);
  if (!cuda_got(s, cudaMallocHost((void **)&m->host, bytes), bytes) ||
      !cuda_got(s, cudaMalloc(&m->device, bytes), bytes)) {
    cuda_mirror_free(m);
    return false;
  }
  memset(m->host, 0, bytes);
  m->bytes = bytes;
  return cuda_ok(&s->cx, cudaMemsetAsync(m->device, 0, bytes, s->cx.stream));
}
