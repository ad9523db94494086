/* upload.cu - matrices on their way to the device: through page-locked memory, and packed there.
 *
 * The mapping is read by all workers into one half of a page-locked buffer while the other half is on the bus. A matrix
 * that gets a layout of its own is first laid down as stored, in memory that the next one uses again; so there is one
 * copy of the weights on the device, and one matrix more while a model is opened.
 */
#include "ops/cuda/host.cuh"

enum { HALF = 32 << 20, ALIGN = 256 };

struct copying {
  char *to;
  const uint8_t *from;
  size_t bytes;
};

static void copy_share(void *user, int share, int shares)
{
  const copying *c = (const copying *)user;
  size_t begin, end;
  pool_share(c->bytes, 4096, share, shares, &begin, &end);
  memcpy(c->to + begin, c->from + begin, end - begin);
}

static bool begin_staging(cuda_state *s)
{
  if (s->staging)
    return true;
  if (cudaMallocHost((void **)&s->staging, 2 * (size_t)HALF) != cudaSuccess) {
    cudaGetLastError();
    s->staging = NULL;
    return false;
  }
  for (int i = 0; i < 2; i++)
    if (!cuda_ok(&s->cx, cudaEventCreateWithFlags(&s->staged[i], cudaEventDisableTiming)))
      return false;
  return true;
}

/* Queues the copy of host memory of any kind to the device. */
static bool send(ops_context *cx, char *to, const uint8_t *from, size_t bytes)
{
  cuda_state *s = cuda_state_of(cx);
  for (size_t at = 0; at < bytes; at += HALF) {
    int half = s->staging_turn ^= 1;
    copying c = {s->staging + (size_t)half * HALF, from + at, bytes - at < HALF ? bytes - at : HALF};
    if (!cuda_ok(&s->cx, cudaEventSynchronize(s->staged[half])))
      return false;
    if (cx->workers && c.bytes >= 1 << 20)
      pool_run(cx->workers, copy_share, &c);
    else
      memcpy(c.to, c.from, c.bytes);
    if (!cuda_ok(&s->cx, cudaMemcpyAsync(to + at, c.to, c.bytes, cudaMemcpyHostToDevice, s->cx.stream)) ||
        !cuda_ok(&s->cx, cudaEventRecord(s->staged[half], s->cx.stream)))
      return false;
  }
  return true;
}

/* ---- as stored ---- */

static size_t dtype_bytes(ops_dtype type)
{
  return type == DT_F32 ? 4 : 2;
}

struct parts {
  size_t data, scales, biases; /* bytes */
};

static parts parts_of(const ops_weight *w)
{
  parts p = {};
  int64_t groups = w->group ? w->n * (w->k / w->group) : 0;
  switch (w->quant) {
  case Q_NONE:
    p.data = (size_t)(w->n * w->k) * dtype_bytes(w->stored);
    break;
  case Q_TERNARY:
    p.data = (size_t)((w->n + 3) / 4 * w->k);
    break;
  default:
    p.data = (size_t)(w->n * ref_row_bytes(w));
    p.scales = (size_t)groups * (w->quant == Q_AFFINE ? dtype_bytes(w->stored) : 1);
    p.biases = w->quant == Q_AFFINE ? p.scales : 0;
  }
  return p;
}

static size_t aligned(size_t bytes)
{
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The bytes of a matrix as stored; kernels may read up to 16 bytes behind a part. */
static size_t stored_bytes(const parts *p)
{
  return aligned(p->data) + aligned(p->scales) + aligned(p->biases) + ALIGN;
}

static bool send_stored(ops_context *cx, const ops_weight *w, char *to, cuda_matrix *out)
{
  parts p = parts_of(w);
  char *scales = to + aligned(p.data), *biases = scales + aligned(p.scales);
  out->layout = CUDA_AS_STORED;
  out->shape = *w;
  out->shape.packed = NULL;
  out->shape.data = (const uint8_t *)to;
  out->shape.scales = (const uint8_t *)scales;
  out->shape.biases = (const uint8_t *)biases;
  return send(cx, to, w->data, p.data) && send(cx, scales, w->scales, p.scales) &&
         send(cx, biases, w->biases, p.biases);
}

/* ---- packed ---- */

static bool room_for_stored(ops_context *cx, size_t bytes)
{
  cuda_state *s = cuda_state_of(cx);
  if (bytes <= s->stored_bytes)
    return true;
  cudaFree(s->stored);
  s->stored_bytes = 0;
  s->stored = (char *)cuda_memory_alloc(cx, bytes);
  s->stored_bytes = s->stored ? bytes : 0;
  return s->stored != NULL;
}

/* False: no memory, or the device failed. */
static bool make_packed(ops_context *cx, const ops_weight *w, cuda_matrix *m)
{
  cuda_state *s = cuda_state_of(cx);
  parts p = parts_of(w);
  cuda_matrix stored = {};
  m->bytes = s->cx.fast ? cuda_fast_pack_bytes(w) : cuda_exact_pack_bytes(w);
  m->memory = cuda_memory_alloc(cx, m->bytes);
  if (!m->memory || !room_for_stored(cx, stored_bytes(&p)) || !send_stored(cx, w, s->stored, &stored))
    return false;
  m->shape = stored.shape;
  m->shape.data = (const uint8_t *)m->memory;
  m->shape.scales = m->shape.biases = NULL;
  m->layout = s->cx.fast ? CUDA_FAST_4 : CUDA_EXACT_4;
  if (s->cx.fast) {
    cuda_fast_pack(&s->cx, &stored, (uint8_t *)m->memory);
    return true;
  }
  unsigned inexact = 0;
  if (!s->inexact)
    s->inexact = (unsigned *)cuda_memory_alloc(cx, sizeof *s->inexact);
  if (!s->inexact || !cuda_ok(&s->cx, cudaMemsetAsync(s->inexact, 0, sizeof *s->inexact, s->cx.stream)))
    return false;
  cuda_exact_pack(&s->cx, &stored, (uint8_t *)m->memory, s->inexact);
  cuda_memory_read(cx, &inexact, s->inexact, sizeof inexact);
  m->shortcut = inexact == 0;
  return true;
}

static bool make(ops_context *cx, const ops_weight *w, cuda_matrix *m)
{
  const cuda_state *s = cuda_state_of(cx);
  if (s->cx.fast ? cuda_fast_packs(w) : cuda_exact_packs(w))
    return make_packed(cx, w, m);
  parts p = parts_of(w);
  m->bytes = stored_bytes(&p);
  m->memory = cuda_memory_alloc(cx, m->bytes);
  return m->memory && send_stored(cx, w, (char *)m->memory, m);
}

tern_status cuda_upload(ops_context *cx, ops_weight *w, size_t *bytes, tern_error *err)
{
  cuda_state *s = cuda_state_of(cx);
  cuda_matrix *m = (cuda_matrix *)mem_zalloc(sizeof *m);
  if (!m)
    return err_nomem(err, "matrices");
  if (!begin_staging(s)) {
    mem_free(m);
    return err_nomem(err, "page-locked memory for uploads");
  }
  size_t available = cuda_memory_available(cx);
  if (!make(cx, w, m) || s->cx.error != cudaSuccess) {
    parts p = parts_of(w);
    bool packs = s->cx.fast ? cuda_fast_packs(w) : cuda_exact_packs(w);
    size_t need = m->bytes + (packs ? stored_bytes(&p) : 0);
    cudaFree(m->memory);
    mem_free(m);
    TRY(cx->backend->check(cx, err));
    return err_set(err, TERN_E_LIMIT, "GPU memory: %s needs %zu MB on its way there, but %zu MB are free", w->name,
                   need >> 20, available >> 20);
  }
  w->packed = m;
  *bytes = m->bytes;
  return TERN_OK;
}

void cuda_discard(ops_context *cx, ops_weight *w)
{
  cuda_state_of(cx);
  cuda_matrix *m = (cuda_matrix *)(uintptr_t)w->packed;
  cudaFree(m->memory);
  mem_free(m);
  w->packed = NULL;
}

void cuda_upload_end(cuda_state *s)
{
  if (!s->staging)
    return;
  cudaStreamSynchronize(s->cx.stream);
  cudaFreeHost(s->staging);
  cudaFree(s->stored);
  cudaFree(s->inexact);
  for (int i = 0; i < 2; i++) {
    if (s->staged[i])
      cudaEventDestroy(s->staged[i]);
    s->staged[i] = NULL;
  }
  s->staging = s->stored = NULL;
  s->inexact = NULL;
  s->stored_bytes = 0;
}
