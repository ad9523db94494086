/* ops.h - the op interface: what a model asks of a backend, as plain data.
 *
 * Dimension letters, fixed here for the whole project:
 *   T tokens of a batch    D model width      V vocabulary      N, K outputs and inputs of a linear
 *   H query heads          G key/value heads  E head dimension  F width of the gated unit     S keys a token sees
 *
 * A forward pass is an array of op_record, made once when a model is opened (model/plan.h) with every address in it.
 * What changes from step to step stands in struct ops_step: the tokens, their positions, and the row table. A backend
 * is a table of functions from (record, step) to work; an empty entry of a backend that shares the host's memory is
 * filled with the reference's. docs/ops.md walks a GPU backend through this interface.
 *
 * Activations are float arrays [T, width], all rows' tokens one after another. In numerics `native` the values are
 * those of the reference's half type, held in floats: every op rounds to its `type` wherever the reference does, and
 * DT_F32 rounds nowhere. So one plain C definition (ops/ref) serves `exact` and `native`, and `exact` is its DT_F32
 * case.
 *
 * Promise 2 in this interface: a token's output depends on its own inputs, its position, its row's kind and split, and
 * the keys it sees; never on T, on its neighbours, or on the number of workers.
 */
#ifndef TERN_OPS_OPS_H
#define TERN_OPS_OPS_H

#include "base/device.h"
#include "base/status.h"
#include "base/threads.h"

/* ---- types ---- */

typedef enum ops_dtype { DT_F32, DT_BF16, DT_F16 } ops_dtype;

/* The reference's promotion: equal stays, bf16 with f16 or anything with f32 gives f32. */
static inline ON_DEVICE ops_dtype ops_promote(ops_dtype a, ops_dtype b)
{
  return a == b ? a : DT_F32;
}

typedef enum ops_quant { Q_NONE, Q_AFFINE, Q_MXFP4, Q_MXFP8, Q_NVFP4, Q_TERNARY } ops_quant;

/* How a weight is held. */
typedef enum ops_hold {
  HOLD_VIEW,   /* in the mapping of the checkpoint, at any byte offset (MLX pads nothing) */
  HOLD_OWNED,  /* a derivation made at open, named, its bytes reported by `inspect` */
  HOLD_LIST,   /* n views of separate experts, no copy */
  HOLD_STREAM, /* acquired and released by expert id, between segments of the plan */
} ops_hold;

/* A weight handle: the only way in which model code names weights. N outputs, K inputs, rows of K.
 *   Q_NONE    data [N, K] of `dtype`
 *   Q_AFFINE  data [N, K*bits/32] little-endian words, a bit stream a row; scales, biases [N, K/group] of `dtype`
 *   Q_MXFP4/8, Q_NVFP4  data as above; scales [N, K/group] bytes; no biases; dtype is DT_F32 and means nothing
 *   Q_TERNARY data [ceil(N/4), K] bytes: row n is bit pair n / ceil(N/4) of byte row n % ceil(N/4), code - 1 its value;
 *             `factor` multiplies the sum; `dtype` is the type of the product
 * In numerics exact, half scales and biases count as float32 (they widen exactly); `stored` tells what lies in memory.
 */
typedef struct ops_weight {
  const char *name; /* as in the checkpoint, for messages */
  ops_hold hold;
  ops_quant quant;
  int bits, group;
  ops_dtype stored; /* of data (dense) or of scales and biases (affine), in memory */
  ops_dtype dtype;  /* the same, as arithmetic sees it */
  int64_t n, k;
  const uint8_t *data, *scales, *biases;
  float factor;       /* Q_TERNARY */
  bool turned;        /* dense, stored [K, N] in the release: in float32 the reference's sum then starts at the bias */
  const void *packed; /* the backend's own layout of the same values, by prepare or from a file; NULL: none */
} ops_weight;

/* ---- key/value blocks ---- */

/* Keys and values live in blocks of this many positions. A block is private to the backend in layout. */
enum { KV_BLOCK = 64 };

/* What one row holds of one slot: blocks[i] covers positions [64 i, 64 i + 64); blocks of positions that no token of
 * the row sees may be NULL. */
typedef struct ops_kv_view {
  void *const *blocks;
} ops_kv_view;

/* Quantised keys and values: each row of a head in groups of `group` values along its dims, affine (a code of `bits`
 * bits, times the group's scale, plus its bias). Tokens from position `start` on see quantised rows alone, the rows
 * before `start` too; tokens before it see none. So a row of a step lies on one side of `start`, and so do the blocks
 * that it is given; going over to the other side is kv_quantise's work. */
typedef struct ops_kv_quant {
  int bits; /* 0: never quantised */
  int group;
  int64_t start;
  ops_dtype key_type, value_type; /* of scales and biases: what is stored was rounded to it */
} ops_kv_quant;

/* What a block holds. */
typedef struct ops_kv_shape {
  int kv_heads, key_dim, value_dim;
  ops_kv_quant quant; /* bits 0: plain floats */
} ops_kv_shape;

/* ---- the step ---- */

typedef enum ops_row_kind {
  ROW_READ,   /* prompt tokens before the split */
  ROW_STEP,   /* the last prompt token and all that follow */
  ROW_CANVAS, /* tokens that see each other (denoising); no op takes it yet: the plan refuses it */
} ops_row_kind;

/* One sequence's share of a batch: tokens [first, first + count), at positions [position, position + count). */
typedef struct ops_row {
  int first, count;
  int64_t position;
  ops_row_kind kind;
  int64_t split;            /* prompt length - 1 of the sequence: see ops/visible.h */
  int adapter;              /* 0: none */
  const ops_kv_view *slots; /* [slots of the model] */
} ops_row;

/* Whether the row's tokens see quantised keys and values. */
static inline ON_DEVICE bool ops_quantised(const ops_kv_quant *q, const ops_row *row)
{
  return q->bits && row->position >= q->start;
}

typedef struct ops_step {
  int tokens;          /* T */
  const int32_t *ids;  /* [T] */
  const float *embeds; /* [T, D] or NULL; a row of NaN-free floats replaces the token's embedding where `use` is set */
  const uint8_t *use;  /* [T] or NULL */
  int rows;
  const ops_row *row;
  int wanted;          /* rows of the head segment */
  const int32_t *want; /* [wanted] token indices, ascending */
} ops_step;

/* ---- ops ---- */

typedef enum op_kind {
#define OP(name, contract) OP_##name,
#include "ops/ops.def"
#undef OP
  OP_COUNT
} op_kind;

struct op_embed { /* out [T, D] */
  float *out;
  const ops_weight *table;
  const ops_weight *positions; /* [P, D], its row at the token's position is added; NULL: none */
  float scale;                 /* 1: none. Already rounded as the model rounds it */
  ops_dtype type;
};

struct op_rms_norm { /* x, y [T, count * width], strides in floats a token; y may be x */
  const float *x;
  float *y;
  const float *w; /* [width], or NULL */
  int count, width;
  int64_t x_stride, y_stride;
  float eps;
  ops_dtype type;
};

struct op_layer_norm { /* as op_rms_norm, but around the mean */
  const float *x;
  float *y;
  const float *w; /* [width], or [count * width] where `own` says that each group has its own; or NULL */
  const float *b; /* [width] or NULL */
  bool own;
  int count, width;
  int64_t x_stride, y_stride;
  float eps;
  ops_dtype normed; /* what (x - mean) / deviation is rounded to before it meets w */
  ops_dtype type;
};

struct op_linear { /* x [T, K]; y[i] [T, N_i] */
  const float *x;
  int outputs; /* 1..3 */
  const ops_weight *w[3];
  const float *bias[3]; /* [N_i] or NULL */
  float *y[3];
  const float *residual; /* [T, N_0] or NULL: y[0] = residual + (x W^T + bias); may be y[0] */
  ops_dtype product[3];  /* of each sum; differs from `type` where a quantised matrix meets a bias of a wider type */
  ops_dtype type[3];     /* of y[i]; the sum with the residual is rounded to residual_type */
  ops_dtype residual_type;
};

struct op_regroup { /* x [T, x_width] -> y [T, n * width]: group i of y is group from[i] of x */
  const float *x;
  float *y;
  const int32_t *from; /* [n] */
  int n, width;
  int64_t x_width;
};

struct op_rope { /* q [T, H, E], k [T, G, E], in place */
  float *q, *k;
  int q_heads, k_heads, head_dim;
  int dims;             /* rotated; the others pass */
  const float *inverse; /* [dims / 2] inverse frequencies */
  float position_scale; /* positions are multiplied by it first */
  float mscale;         /* 1: none. Multiplies the rotated values of q and k before the rotation */
  bool traditional;     /* pairs (2i, 2i+1), else (i, i + dims/2) */
  /* A base that grows with the length; 0: none. For ROW_STEP tokens whose length, heads + position (the reference takes
   * the wrong axis for it, and its bits are the promise), exceeds ntk_from, the frequencies are those of
   * ntk_base * (ntk_scale * length / ntk_from - (ntk_scale - 1)) ^ (dims / (dims - 2)). A prompt is read as in one
   * piece, whose length is that of its first token: it never grows. */
  int ntk_from;
  double ntk_base, ntk_scale; /* ntk_scale: position_scale as a double */
  ops_dtype type;
};

struct op_temperature { /* q [T, width], in place: q *= 1 + beta ln(1 + floor(position / span)) */
  float *q;
  int width, span;
  float beta;
  ops_dtype factor_type; /* what the factor is rounded to first */
  ops_dtype type;
};

struct op_kv_append { /* k [T, G, key_dim], v [T, G, value_dim] */
  const float *k, *v;
  int slot, kv_heads, key_dim, value_dim;
  ops_kv_quant quant;
};

struct op_attention { /* q [T, H, key_dim], out [T, H, value_dim] */
  const float *q;
  float *out;
  int slot, heads, kv_heads, key_dim, value_dim;
  float scale;
  float softcap;    /* 0: none. Scores become softcap * tanh(score / softcap) */
  int window, keep; /* window 0: all keys. See ops/visible.h */
  bool by_time;     /* keys of a window are summed by time in steps too (a window without a ring) */
  /* Per-head block-sparse, 0: dense. Head h sees key block j from query block i where i - j < sparse_local or
   * (j + h + 1) % sparse_stride == 0. */
  int sparse_block, sparse_local, sparse_stride;
  ops_dtype type;       /* of queries, scores and weights */
  ops_dtype value_type; /* of the sums over values */
  ops_dtype out_type;   /* what the result is rounded to */
  ops_kv_quant quant;
  ops_dtype
      score_type; /* of queries and scores where keys are quantised; values then go by its promotion with theirs */
};

typedef enum ops_act {
  ACT_SILU,
  ACT_GELU_TANH, /* the tanh form */
  ACT_GELU,      /* with erf */
  ACT_RELU,
  ACT_RELU2, /* max(x, 0)^2 */
  ACT_XIELU, /* op_act alone */
  ACT_GEGELU /* op_glu alone: gate clipped above at limit, up to +-limit; gate sigmoid(1.702 gate) (up + 1) */
} ops_act;

struct op_act { /* x, y [T, F]; y may be x */
  const float *x;
  float *y;
  int width;
  ops_act act;
  float params[4];  /* ACT_XIELU: softplus(alpha_p), beta + softplus(alpha_n), beta, eps */
  ops_dtype x_type; /* of x; differs from `type` where ACT_XIELU's parameters are wider */
  ops_dtype type;
};

struct op_glu { /* gate, up, y [T, F]; y may be either */
  const float *gate, *up;
  float *y;
  int width;
  ops_act act;
  float limit;         /* ACT_GEGELU */
  ops_dtype gate_type; /* of the activation; up may be wider */
  ops_dtype type;
};

struct op_scale { /* x, y [T, width]; y may be x: y = x * factor, or x / factor */
  const float *x;
  float *y;
  int width;
  float factor; /* already rounded to type */
  bool divide;
  ops_dtype type;
};

struct op_softcap { /* x, y [T, width]; y may be x: y = cap * tanh(x / cap) */
  const float *x;
  float *y;
  int width;
  float cap;
  ops_dtype type;
};

struct op_add { /* x, y [T, width]: y = x + y */
  const float *x;
  float *y;
  int width;
  float clip; /* 0: none. The sum is clamped to [-clip, clip] before it is rounded */
  ops_dtype type;
};

struct op_select { /* x [T, width] -> y [wanted, width] */
  const float *x;
  float *y;
  int width;
};

typedef struct op_record {
  op_kind kind;
  int layer;   /* -1: outside the layers */
  bool wanted; /* runs over the wanted rows, not over all tokens */
  union {
#define OP(name, contract) struct op_##name name;
#include "ops/ops.def"
#undef OP
  };
} op_record;

/* Tokens that a record runs over in this step. */
static inline int ops_extent(const op_record *r, const ops_step *step)
{
  return r->wanted ? step->wanted : step->tokens;
}

/* The record of matrix i of a linear alone. */
static inline op_record ops_linear_alone(const op_record *r, int i)
{
  op_record alone = *r;
  struct op_linear *a = &alone.linear;
  a->outputs = 1;
  a->w[0] = a->w[i];
  a->bias[0] = a->bias[i];
  a->y[0] = a->y[i];
  a->product[0] = a->product[i];
  a->type[0] = a->type[i];
  a->residual = i == 0 ? a->residual : NULL;
  return alone;
}

/* ---- backends ---- */

typedef struct ops_context ops_context;
typedef void ops_fn(ops_context *cx, const op_record *record, const ops_step *step);

/* A layout that files keep (model/prepared.h): the same values in another order. A weight that has one in memory, at a
 * multiple of 64 bytes, carries its address in `packed`. */
typedef struct ops_layout {
  int version;                          /* in the identity of every file */
  size_t (*bytes)(const ops_weight *w); /* 0: none for such a weight */
  /* Makes the piece at byte `from` of the layout, and returns how long it is; out NULL: that alone. */
  size_t (*piece)(const ops_weight *w, size_t from, uint8_t *out);
} ops_layout;

/* What steps of a model may ask of scratch. */
typedef struct ops_room {
  int tokens;     /* of a step */
  int64_t keys;   /* that a token sees */
  bool quantised; /* some keys and values are */
  int dims;       /* of a key or value */
  int heads;      /* of queries */
  int64_t inputs; /* K of the widest linear */
} ops_room;

typedef struct ops_backend {
  const char *name; /* "ref", "cpu/avx512", ... */
  bool own_memory;  /* alloc gives what the host cannot touch: results come through read */
  ops_fn *run[OP_COUNT];
  /* Memory that records and blocks point into. alloc gives 64-byte aligned, uninitialised memory or NULL. */
  void *(*alloc)(ops_context *cx, size_t bytes);
  void (*release)(ops_context *cx, void *p);
  void (*write)(ops_context *cx, void *to, const void *from, size_t bytes); /* host to backend */
  void (*read)(ops_context *cx, void *to, const void *from, size_t bytes);  /* backend to host, after what was queued */
  size_t (*kv_block_bytes)(const ops_kv_shape *shape);
  /* Fills a quantised block with the first `count` positions of a plain one. */
  void (*kv_quantise)(ops_context *cx, const ops_kv_shape *shape, const void *plain, void *quantised, int count);
  /* Queues a whole segment of records for this step without waiting; `read` waits for what was queued. A backend that
   * captures (a graph, a persistent kernel) keys what it captured by the segment's address and the step's shape. NULL:
   * the executor calls run[] record by record. */
  void (*submit)(ops_context *cx, const op_record *records, int n, const ops_step *step);
  /* The next `linear` that will run, told when the one before it begins: its weights may be fetched meanwhile. NULL: of
   * no use. */
  void (*expect)(ops_context *cx, const op_record *linear);
  /* May make a private layout (w->packed, counted in *bytes) for a weight that `linear` will use; a backend with memory
   * of its own does so for every matrix, tables of the embedding too. NULL entry: never. */
  tern_status (*prepare)(ops_context *cx, ops_weight *w, size_t *bytes, tern_error *err);
  void (*discard)(ops_context *cx, ops_weight *w);
  const ops_layout *layout; /* NULL: none that a file could keep */
  /* Scratch for such steps: its bytes, SIZE_MAX where they cannot be counted; and having it. Grows only. TERN_E_NOMEM,
   * or TERN_E_LIMIT with the numbers.
   */
  size_t (*scratch_bytes)(const ops_context *cx, const ops_room *room);
  tern_status (*reserve)(ops_context *cx, const ops_room *room, tern_error *err);
  /* For whoever wants no more of each row [width] of values than where its largest is: the index, where every other
   * value is below the largest - apart; -1 where one is not, or a value is NaN, or the largest infinite. After what was
   * queued. NULL: the host looks at the values itself. */
  void (*choose)(ops_context *cx, const float *values, int rows, int width, float apart, int32_t *chosen);
  /* Whether it runs a record, some of which round to half types; NULL: every one. */
  bool (*takes)(const op_record *record);
  /* The rest is of backends with a device; NULL entries elsewhere. */
  /* The first thing that went wrong on the device since it was opened: what ran since then has no meaning. */
  tern_status (*check)(ops_context *cx, tern_error *err);
  /* At the end of opening: all that was prepared and written is there, or what failed. */
  tern_status (*settle)(ops_context *cx, tern_error *err);
  size_t (*available)(ops_context *cx); /* bytes that alloc could still give */
  /* Host memory that `read` fills at the full speed of the bus; NULL where there is none. */
  void *(*host_alloc)(ops_context *cx, size_t bytes);
  void (*host_release)(ops_context *cx, void *p);
  void (*close)(ops_context *cx); /* gives the device back, after everything that was allocated */
} ops_backend;

/* Called after each record of a backend without `submit`, when its outputs stand. For `tern logits --trace`. */
typedef void ops_watch_fn(void *user, const op_record *record, const ops_step *step);

struct ops_context {
  const ops_backend *backend;
  ops_watch_fn *watch; /* NULL: nobody watches */
  void *watch_user;
  pool *workers; /* not owned */
  void *scratch; /* the backend's, made by reserve */
  size_t scratch_bytes;
  void *device; /* of a backend that has one: its own state, from its opening to its close */
};

/* SIMD levels of the cpu backend, ascending; those of aarch64, then those of x86. A machine may lack one below its best
 * (avxvnni came after avx512). */
typedef enum ops_simd {
  SIMD_BASELINE,
  SIMD_NEON,
  SIMD_DOTPROD, /* sdot, for the products of numerics fast */
  SIMD_I8MM,    /* smmla, for the same */
  SIMD_AVX2,    /* with FMA and F16C */
  SIMD_AVXVNNI,
  SIMD_AVX512, /* F, BW, DQ, VL */
  SIMD_AVX512VNNI,
  SIMD_LEVELS
} ops_simd;
const char *ops_simd_name(ops_simd level);
/* Whether this machine offers the level and this build has it. */
bool ops_simd_has(ops_simd level);
/* The best of those. */
ops_simd ops_simd_best(void);

const ops_backend *ops_ref(void);
/* Numerics fast in plain C (fast_ref/fast.h): the definition. */
const ops_backend *ops_fast_ref(void);
/* NULL if this build or machine lacks the level. */
const ops_backend *ops_cpu(ops_simd level);      /* numerics exact */
const ops_backend *ops_cpu_fast(ops_simd level); /* numerics fast */

/* The name of an op, for traces and messages. */
const char *ops_name(op_kind kind);

/* For whoever got NULL from alloc: TERN_E_NOMEM, or TERN_E_LIMIT with the numbers where a device has too little. */
tern_status ops_nomem(ops_context *cx, const char *what, size_t bytes, tern_error *err);

/* Frees scratch and gives a device back. The context itself is the caller's. */
void ops_context_clear(ops_context *cx);

#endif
