/* ops_rows.c - times the cpu backend's ops other than products, and ternary products, on records made here: a prompt's
 * piece of 512 tokens and a single token. Prints the reference's time, the backend's, and their ratio; each the best of
 * several runs.
 *
 *   cc -O2 -Iinclude -Isrc bench/ops_rows.c build/libtern.a -lpthread -lm -o build/bench_ops_rows
 *   build/bench_ops_rows [threads [level [name]]]     level: baseline avx2 avx512; name: the first letters of a line
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ops/ops.h"

enum {
  WIDTH = 4096,
  UNIT = 14336,
  VOCABULARY = 256000,
  TOKENS = 512,
  HEADS = 32,
  KV_HEADS = 8,
  DIM = 128,
  KEYS = 2048
};

typedef struct setting {
  int threads;
  ops_context ref, cpu;
  const char *only;
  float *x, *y, *z; /* UNIT * TOKENS values each */
  const int32_t *ids;
} setting;

/* With one thread its own processor time, so that a busy machine does not count. */
static double now(const setting *s)
{
  struct timespec t;
  clock_gettime(s->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t next(void)
{
  static uint64_t z = 1;
  z = z * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (uint32_t)(z >> 32);
}

static float *floats(size_t n)
{
  float *p = aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);
  if (!p)
    exit(1);
  for (size_t i = 0; i < n; i++)
    p[i] = ((float)(next() >> 8) * 0x1p-23f - 1) * 3;
  return p;
}

/* The best of as many runs as go into a third of a second. Ops in place meet their own results, which stay ordinary. */
static double best_of(const setting *s, ops_context *cx, const op_record *r, const ops_step *step)
{
  double best = 1e9;
  for (double begin = now(s), start = begin; start - begin < 0.3;) {
    cx->backend->run[r->kind](cx, r, step);
    double end = now(s);
    best = end - start < best ? end - start : best;
    start = end;
  }
  return best;
}

static void measure(setting *s, const char *name, const op_record *r, const ops_step *step)
{
  if (s->only && strncmp(name, s->only, strlen(s->only)) != 0)
    return;
  double ref = best_of(s, &s->ref, r, step), cpu = best_of(s, &s->cpu, r, step);
  printf("%-34s %4d tokens  ref %10.1f us  cpu %9.1f us  x %.1f\n", name, step->tokens, ref * 1e6, cpu * 1e6,
         ref / cpu);
}

static void values(setting *s, const ops_step *step)
{
  static const char *const acts[] = {"silu", "gelu_tanh", "gelu", "relu", "relu2", "xielu", "gegelu"};
  op_record r;
  for (int act = ACT_SILU; act <= ACT_GEGELU; act++) {
    char name[64];
    snprintf(name, sizeof name, "act %s", acts[act]);
    r = (op_record){.kind = OP_act, .act = {.x = s->x, .y = s->y, .width = UNIT, .act = (ops_act)act}};
    memcpy(r.act.params, (float[4]){0.8f, 1.3f, 0.5f, -1e-6f}, sizeof r.act.params);
    if (act != ACT_GEGELU)
      measure(s, name, &r, step);
    snprintf(name, sizeof name, "glu %s", acts[act]);
    r = (op_record){.kind = OP_glu, .glu = {.gate = s->x, .up = s->z, .y = s->y, .width = UNIT, .limit = 20}};
    r.glu.act = (ops_act)act;
    if (act != ACT_XIELU)
      measure(s, name, &r, step);
  }
  r = (op_record){.kind = OP_scale, .scale = {.x = s->x, .y = s->y, .width = WIDTH, .factor = 0.3f}};
  measure(s, "scale", &r, step);
  r.scale.divide = true;
  measure(s, "scale, divided", &r, step);
  r = (op_record){.kind = OP_add, .add = {.x = s->x, .y = s->y, .width = WIDTH}};
  measure(s, "add", &r, step);
  r = (op_record){.kind = OP_temperature, .temperature = {.q = s->y, .width = WIDTH, .span = 8192, .beta = 0.1f}};
  measure(s, "temperature", &r, step);
  if (step->tokens == 1) {
    r = (op_record){.kind = OP_softcap, .softcap = {.x = s->x, .y = s->y, .width = VOCABULARY, .cap = 30}};
    measure(s, "softcap, 256000 logits", &r, step);
  }
}

static void norms(setting *s, const ops_step *step)
{
  op_record r = {.kind = OP_layer_norm, .layer_norm = {.x = s->x, .y = s->y, .w = s->z, .b = s->z, .count = 1}};
  r.layer_norm.width = WIDTH;
  r.layer_norm.x_stride = r.layer_norm.y_stride = WIDTH;
  r.layer_norm.eps = 1e-5f;
  measure(s, "layer_norm", &r, step);
  r.layer_norm.count = HEADS;
  r.layer_norm.width = DIM;
  r.layer_norm.own = true;
  r.layer_norm.b = NULL;
  measure(s, "layer_norm, heads", &r, step);
  r = (op_record){.kind = OP_rms_norm, .rms_norm = {.x = s->x, .y = s->y, .w = s->z, .count = 1, .width = WIDTH}};
  r.rms_norm.x_stride = r.rms_norm.y_stride = WIDTH;
  r.rms_norm.eps = 1e-5f;
  measure(s, "rms_norm", &r, step);
}

static void copies(setting *s, const ops_step *step)
{
  int32_t from[HEADS], want[TOKENS];
  for (int i = 0; i < HEADS; i++)
    from[i] = (i * 7) % HEADS;
  for (int i = 0; i < TOKENS; i++)
    want[i] = i;
  op_record r = {.kind = OP_regroup, .regroup = {.x = s->x, .y = s->y, .from = from, .n = HEADS, .width = DIM}};
  r.regroup.x_width = WIDTH;
  measure(s, "regroup", &r, step);
  r = (op_record){.kind = OP_select, .select = {.x = s->x, .y = s->y, .width = WIDTH}};
  ops_step wanted = *step;
  wanted.wanted = step->tokens;
  wanted.want = want;
  measure(s, "select", &r, &wanted);
  /* Any bytes do for a table of 4 bits; scales and biases are the same small halves. */
  static uint16_t halves[512 * WIDTH / 64];
  for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
    halves[i] = (uint16_t)(0x3c00 + i % 128);
  ops_weight w = {.quant = Q_AFFINE, .bits = 4, .group = 64, .stored = DT_BF16, .n = 512, .k = WIDTH};
  w.data = (const uint8_t *)s->z;
  w.scales = w.biases = (const uint8_t *)halves;
  r = (op_record){.kind = OP_embed, .embed = {.out = s->y, .table = &w, .scale = 64}};
  measure(s, "embed, 4 bits", &r, step);
  w = (ops_weight){.quant = Q_NONE, .stored = DT_BF16, .n = 512, .k = WIDTH, .data = (const uint8_t *)s->z};
  measure(s, "embed, bf16", &r, step);
}

static void rotation(setting *s, const ops_step *step)
{
  float inverse[DIM / 2];
  for (int i = 0; i < DIM / 2; i++)
    inverse[i] = 1.0f / (float)(1 + i * i);
  op_record r = {.kind = OP_rope, .rope = {.q = s->x, .k = s->z, .q_heads = HEADS, .k_heads = KV_HEADS, .dims = DIM}};
  r.rope.head_dim = DIM;
  r.rope.inverse = inverse;
  r.rope.position_scale = r.rope.mscale = 1;
  measure(s, "rope", &r, step);
  r.rope.ntk_from = 100;
  r.rope.ntk_base = 1e6;
  r.rope.ntk_scale = 2;
  measure(s, "rope, growing base", &r, step);
}

static void attention(setting *s, const ops_step *step)
{
  op_record r = {.kind = OP_attention, .attention = {.q = s->x, .out = s->y, .heads = HEADS, .kv_heads = KV_HEADS}};
  r.attention.key_dim = r.attention.value_dim = DIM;
  r.attention.scale = 0.01f;
  measure(s, "attention", &r, step);
  r.attention.softcap = 50;
  measure(s, "attention, softcap", &r, step);
  r.attention.softcap = 0;
  r.attention.sparse_block = 64;
  r.attention.sparse_local = 16;
  r.attention.sparse_stride = 8;
  measure(s, "attention, block-sparse", &r, step);
  r.attention.sparse_block = 0;
  static const int widths[] = {8, 6, 4, 3, 2};
  for (int i = 0; i < 5; i++) {
    char name[64];
    snprintf(name, sizeof name, "attention, %d-bit keys", widths[i]);
    r.attention.quant = (ops_kv_quant){.bits = widths[i], .group = 64};
    measure(s, name, &r, step);
  }
  op_record append = {.kind = OP_kv_append, .kv_append = {.k = s->x, .v = s->z, .kv_heads = KV_HEADS}};
  append.kv_append.key_dim = append.kv_append.value_dim = DIM;
  measure(s, "append", &append, step);
  append.kv_append.quant = (ops_kv_quant){.bits = 4, .group = 64};
  measure(s, "append, 4-bit keys", &append, step);
}

static void ternary(setting *s, const ops_step *step)
{
  ops_weight w = {.quant = Q_TERNARY, .bits = 2, .n = WIDTH, .k = 2560, .factor = 0.1f};
  w.data = (const uint8_t *)s->z;
  op_record r = {.kind = OP_linear, .linear = {.x = s->x, .outputs = 1, .w = {&w}, .y = {s->y}}};
  measure(s, "linear, ternary", &r, step);
}

int main(int argc, char **argv)
{
  setting s = {.threads = argc > 1 ? atoi(argv[1]) : 1, .only = argc > 3 ? argv[3] : NULL};
  ops_simd level = ops_simd_best();
  for (int l = 0; argc > 2 && l < SIMD_LEVELS; l++)
    if (!strcmp(argv[2], ops_simd_name((ops_simd)l)))
      level = (ops_simd)l;
  s.ref = (ops_context){.backend = ops_ref()};
  s.cpu = (ops_context){.backend = ops_cpu(level)};
  if (!s.cpu.backend || pool_open(s.threads, &s.cpu.workers, NULL) != TERN_OK)
    return 1;
  if (s.ref.backend->reserve(&s.ref, &(ops_room){.keys = KEYS}, NULL) != TERN_OK ||
      s.cpu.backend->reserve(&s.cpu, &(ops_room){.keys = KEYS}, NULL) != TERN_OK)
    return 1;
  s.x = floats((size_t)TOKENS * UNIT);
  s.y = floats((size_t)TOKENS * UNIT);
  s.z = floats((size_t)TOKENS * UNIT);
  static int32_t ids[TOKENS];
  for (int i = 0; i < TOKENS; i++)
    ids[i] = (int32_t)(next() % 512);
  static void *blocks[KEYS / KV_BLOCK];
  for (int i = 0; i < KEYS / KV_BLOCK; i++)
    blocks[i] = floats((size_t)KV_BLOCK * KV_HEADS * 2 * DIM);
  const ops_kv_view slot = {blocks};
  printf("%s, %d threads\n", s.cpu.backend->name, s.threads);
  for (int tokens = TOKENS; tokens; tokens = tokens == 1 ? 0 : 1) {
    ops_row row = {.count = tokens, .position = KEYS - tokens, .kind = ROW_READ, .split = KEYS, .slots = &slot};
    ops_step step = {.tokens = tokens, .ids = ids, .rows = 1, .row = &row};
    values(&s, &step);
    norms(&s, &step);
    copies(&s, &step);
    rotation(&s, &step);
    attention(&s, &step);
    ternary(&s, &step);
  }
  return 0;
}
