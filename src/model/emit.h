/* emit.h - the plan compiler's hands: records, buffers, and one emitter for each op.
 *
 * While records are being emitted an operand is a pair (address of a pointer field, buffer number) in a list of
 * patches; lives and offsets are computed from that list alone, so an emitter says what it uses and nothing else.
 * Emitters follow the reference's promotion: each knows the type of what it gives from the types of what it takes.
 *
 * A failed allocation is remembered, and emitting goes on into nowhere: emit_close reports it.
 */
#ifndef TERN_MODEL_EMIT_H
#define TERN_MODEL_EMIT_H

#include "model/plan.h"

typedef struct buffer {
  int width;       /* floats a token */
  bool head;       /* sized by head rows */
  ops_dtype dtype; /* as arithmetic sees the values */
  int first, last; /* records that name it; first < 0: none yet */
  size_t offset;   /* floats */
} buffer;

typedef struct patch {
  int record;
  size_t field; /* byte offset of the pointer in op_record */
  int buffer;
} patch;

typedef struct compiler {
  ops_context *cx;
  const model_config *config;
  const model_weights *weights;
  plan *plan;
  ops_act act;
  size_t record_capacity;
  buffer *buffers;
  size_t n_buffers, buffer_capacity;
  patch *patches;
  size_t n_patches, patch_capacity;
  tern_error shortage; /* of the backend's memory; TERN_OK: none */
  bool failed;         /* no memory */
  bool plain;          /* plan_options.plain */
  char fault[256];     /* types that do not go together, and where: the first found; "" */
  op_record nowhere;   /* takes writes after a failure; never read */
  int layer;
  int hidden; /* the buffer that plan.hidden gives */
} compiler;

/* Buffers. */
int emit_buffer(compiler *c, int width, ops_dtype dtype);
ops_dtype emit_dtype(const compiler *c, int b);
int emit_width(const compiler *c, int b);

typedef struct projection {
  const ops_weight *w;
  const weight_vector *bias; /* NULL or empty: none */
  int y;                     /* out */
} projection;

/* Every emitter that gives a buffer returns its number. x stays as it is unless said otherwise. */
int emit_embed(compiler *c);
/* `count` groups of `width` values; of the kind, with weights as bound (empty where the kind has none). */
int emit_norm(compiler *c, int x, arch_norm kind, const weight_vector *w, const weight_vector *bias, int count,
              int width);
/* Layer norm of each of `count` heads, with a weight of its own each. */
int emit_head_norm(compiler *c, int x, const weight_vector *w, int count, int width);
/* Up to three products of one input. residual: a buffer that the first is added to, in place; < 0: none. */
void emit_linear(compiler *c, int x, projection *to, int n, int residual);
/* Groups from[0..n) of `width` values each. The list is copied. */
int emit_regroup(compiler *c, int x, const int32_t *from, int n, int width);
void emit_rope(compiler *c, int q, int k, int rope, const layer_config *l);            /* in place */
void emit_temperature(compiler *c, int q);                                             /* in place */
int emit_attention(compiler *c, int q, int k, int v, int slot, const layer_config *l); /* stores k and v too */
int emit_act(compiler *c, int x, const float params[4], ops_dtype params_dtype);       /* in place where types allow */
int emit_glu(compiler *c, int gate, int up);                                           /* in gate's place */
void emit_scale(compiler *c, int x, double factor, bool divide);                       /* in place */
void emit_softcap(compiler *c, int x, double cap);                                     /* in place */
void emit_add(compiler *c, int x, int y);                                              /* x += y */
int emit_select(compiler *c, int x);

/* Places buffers, allocates their memory, and turns numbers into addresses. */
tern_status emit_close(compiler *c, tern_error *err);

#endif
