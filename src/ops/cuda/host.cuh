/* host.cuh - what the host's half of the cuda backend shares: memory, the step's arrays, what a segment became.
 *
 * One cuda_state a model. A step's facts go to the device in one copy, from page-locked memory, before its kernels; a
 * segment of few tokens is captured into a graph when it is seen the second time and replayed from then on (submit.cu).
 */
#ifndef TERN_OPS_CUDA_HOST_CUH
#define TERN_OPS_CUDA_HOST_CUH

#include "ops/cuda/cuda.cuh"

extern "C" {
#include "base/mem.h"
#include "base/status.h"
#include "ops/cuda/plugin.h"
}

/* The same array on both sides. */
struct cuda_mirror {
  char *host, *device;
  size_t bytes;
};

struct cuda_graph;

/* Numbers on the device that wanted tokens usually are, 0, 1, 2, ..., and room behind them for others. */
enum { CUDA_COUNTING = 1024, CUDA_WANTED = 1024 };

/* Steps of few tokens are replayed, so how far they see is rounded up to few values: a power of two. Scratch is made
 * for that. */
static inline int64_t cuda_keys_rounded(int64_t keys)
{
  int64_t power = 256;
  while (power < keys)
    power *= 2;
  return power;
}

struct cuda_state {
  cuda_context cx;
  double share;      /* of the device's memory: cuda_options */
  cuda_mirror facts; /* tokens, ids, rates, wanted tokens of a step (submit.cu) */
  cuda_mirror table; /* blocks: [slots][rows][row_blocks] */
  int slots, rows, row_blocks;
  int32_t *counting;     /* [COUNTING] on the device: 0, 1, 2, ... */
  void *choosing;        /* cuda_choose's, zeros at first */
  cudaEvent_t copied;    /* after the copies of the last step: the host may write into the mirrors again */
  cudaEvent_t staged[2]; /* the same of each half of `staging` */
  char *staging;         /* page-locked, two halves, for weights; only while a model is opened */
  int staging_turn;
  char *stored; /* on the device: a matrix as stored, on its way to a layout */
  size_t stored_bytes;
  unsigned *inexact;  /* on the device */
  cuda_graph *graphs; /* a list, the latest used first */
  int n_graphs;
  float *given; /* on the device: embeddings in place of tokens */
  size_t given_floats;
  size_t wanting; /* bytes that a step did not get: an error of that step alone; 0: none */
};

/* Every call into the backend begins here: which device a thread works on is the thread's own matter, and any thread
 * may call. */
static inline cuda_state *cuda_state_of(const ops_context *cx)
{
  cuda_state *s = (cuda_state *)cx->device;
  if (s)
    cudaSetDevice(s->cx.device);
  return s;
}

/* Notes the first failure; whether all is well so far. */
static inline bool cuda_ok(cuda_context *cx, cudaError_t result)
{
  if (cx->error == cudaSuccess && result != cudaSuccess) {
    cx->error = result;
    cudaGetLastError(); /* it is noted; what can go on shall not see it again */
  }
  return cx->error == cudaSuccess;
}

/* The same of an allocation for a step: where there is too little memory, that step has failed and nothing else. */
static inline bool cuda_got(cuda_state *s, cudaError_t result, size_t bytes)
{
  if (result != cudaErrorMemoryAllocation)
    return cuda_ok(&s->cx, result);
  cudaGetLastError();
  s->wanting = bytes;
  return false;
}

/* memory.cu */
void *cuda_memory_alloc(ops_context *cx, size_t bytes);
void cuda_memory_release(ops_context *cx, void *p);
void cuda_memory_write(ops_context *cx, void *to, const void *from, size_t bytes);
void cuda_memory_read(ops_context *cx, void *to, const void *from, size_t bytes);
size_t cuda_memory_available(ops_context *cx);
void *cuda_host_alloc(ops_context *cx, size_t bytes);
void cuda_host_release(ops_context *cx, void *p);
bool cuda_mirror_grow(cuda_state *s, cuda_mirror *m, size_t bytes);
void cuda_mirror_free(cuda_mirror *m);

/* upload.cu */
tern_status cuda_upload(ops_context *cx, ops_weight *w, size_t *bytes, tern_error *err);
void cuda_discard(ops_context *cx, ops_weight *w);
void cuda_upload_end(cuda_state *s); /* frees what only uploads need */

/* ---- a segment on its way ---- */

/* Ropes whose base grows: rates [tokens][2], for queries and for keys, come from the host (double pow is the C
 * library's). Records that grow alike share them. */
enum { CUDA_MOST_RATES = 4 };

struct cuda_rates {
  const op_rope *rope[CUDA_MOST_RATES];
  int n;
};

struct cuda_run {
  cuda_state *s;
  cuda_step step;
  cuda_rates rates;
  const float *rate_values; /* [rates][tokens][2] on the device */
  const float *given;       /* embeddings in place of tokens, on the device; NULL: none */
  const uint8_t *use;
  int slots;    /* that the segment touches */
  bool singles; /* no row has more than one token */
};

/* records.cu */
/* ops_backend.takes: all but records that round to half types (cuda.cuh). */
bool cuda_takes(const op_record *record);
/* The index of the record's rates; -1: it does not grow. */
int cuda_rates_of(const cuda_rates *r, const op_rope *a);
/* Launches all of them, several as one kernel where there is one with the same bits. */
void cuda_run_records(cuda_run *run, const op_record *records, int n);

/* choose.cu */
size_t cuda_choose_bytes(void); /* of cuda_state.choosing */
void cuda_choose(ops_context *cx, const float *values, int rows, int width, float apart, int32_t *chosen);

/* submit.cu */
void cuda_submit(ops_context *cx, const op_record *records, int n, const ops_step *step);
void cuda_forget_graphs(cuda_state *s);

#endif
