/* test_types.cu - what the cuda backend does with half types, against the definition: an embedding of the fp modes is
 * bf16 in every mode of numerics, so what happens to its rows before something of float32 joins them rounds to that;
 * and records that round beyond that are refused, not run.
 */
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "ops/cuda/host.cuh"

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    cudaError_t e_ = (call);                                                                                           \
    if (e_ != cudaSuccess) {                                                                                           \
      printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));                                               \
      exit(2);                                                                                                         \
    }                                                                                                                  \
  } while (0)

enum { VOCAB = 37, WIDTH = 96, TOKENS = 5 };

static int passed, failed;

static void tell(bool well, const char *what)
{
  printf("%s %s\n", well ? "ok  " : "FAIL", what);
  (well ? passed : failed)++;
}

static uint32_t random_bits(void)
{
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33);
}

template <class T> static T *upload(const T *from, size_t n)
{
  T *to;
  CHECK(cudaMalloc(&to, n * sizeof *from));
  CHECK(cudaMemcpy(to, from, n * sizeof *from, cudaMemcpyHostToDevice));
  return to;
}

/* ---- a step of TOKENS tokens at positions 7, 8, ... ---- */

static const int32_t ids[TOKENS] = {1, 36, 0, 17, 1};
static const int64_t first_position = 7;

static ops_step host_step(ops_row *row)
{
  ops_step step = {};
  *row = {};
  row->count = TOKENS, row->position = first_position;
  step.rows = 1, step.row = row, step.tokens = TOKENS, step.ids = ids;
  return step;
}

static cuda_step device_step(void)
{
  cuda_token token[TOKENS] = {};
  cuda_step s = {};
  for (int i = 0; i < TOKENS; i++)
    token[i].position = first_position + i;
  s.tokens = TOKENS;
  s.ids = upload(ids, TOKENS);
  s.token = upload(token, TOKENS);
  return s;
}

/* ---- tables ---- */

struct rows {
  std::vector<uint8_t> data, scales;
  ops_weight host, device;
  cuda_matrix on;
};

static void fill(rows *t, ops_quant quant, int bits, int group)
{
  ops_weight w = {};
  w.quant = quant, w.bits = bits, w.group = group, w.n = VOCAB, w.k = WIDTH;
  t->data.resize(quant == Q_NONE ? VOCAB * WIDTH * 4 : VOCAB * WIDTH * bits / 8);
  t->scales.resize(group ? VOCAB * WIDTH / group : 1);
  if (quant == Q_NONE)
    for (int i = 0; i < VOCAB * WIDTH; i++)
      ((float *)t->data.data())[i] = (float)random_bits() * 0x1p-31f - 0.5f;
  else
    for (uint8_t &byte : t->data)
      byte = (uint8_t)(random_bits() % 0x78); /* no NaN of fp8 */
  for (uint8_t &scale : t->scales)
    scale = quant == Q_NVFP4 ? (uint8_t)(random_bits() % 0x60) : (uint8_t)(118 + random_bits() % 8);
  w.data = t->data.data(), w.scales = t->scales.data();
  t->host = w;
  t->on = {};
  t->on.shape = w;
  t->on.shape.data = upload(t->data.data(), t->data.size());
  t->on.shape.scales = upload(t->scales.data(), t->scales.size());
  t->device = w;
  t->device.packed = &t->on;
}

static void embeddings(cuda_context *cx)
{
  static const struct {
    const char *name;
    ops_quant quant;
    int bits, group;
  } kinds[] = {{"mxfp4", Q_MXFP4, 4, 32}, {"mxfp8", Q_MXFP8, 8, 32}, {"nvfp4", Q_NVFP4, 4, 16}, {"dense", Q_NONE, 0, 0}};
  ops_row row;
  ops_step step = host_step(&row);
  cuda_step s = device_step();
  for (const auto &kind : kinds)
    for (float scale : {1.0f, 9.8125f})
      for (int with_positions = 0; with_positions < 2; with_positions++) {
        rows words, positions;
        fill(&words, kind.quant, kind.bits, kind.group);
        fill(&positions, kind.quant, kind.bits, kind.group);
        op_record record = {};
        std::vector<float> want(TOKENS * WIDTH), got(TOKENS * WIDTH);
        record.kind = OP_embed;
        record.embed.table = &words.host, record.embed.positions = with_positions ? &positions.host : NULL;
        record.embed.out = want.data(), record.embed.scale = scale;
        record.embed.type = kind.quant == Q_NONE ? DT_F32 : DT_BF16;
        ref_embed(NULL, &record, &step);
        op_embed on = record.embed;
        on.table = &words.device, on.positions = with_positions ? &positions.device : NULL;
        on.out = upload(got.data(), got.size());
        cuda_embed(cx, &on, &s, NULL, NULL);
        CHECK(cx->error);
        CHECK(cudaStreamSynchronize(cx->stream));
        CHECK(cudaMemcpy(got.data(), on.out, got.size() * 4, cudaMemcpyDeviceToHost));
        char what[96];
        snprintf(what, sizeof what, "embedding of %s, times %g%s", kind.name, (double)scale,
                 with_positions ? ", and positions" : "");
        tell(memcmp(got.data(), want.data(), got.size() * 4) == 0, what);
      }
}

static void temperatures(cuda_context *cx)
{
  ops_row row;
  ops_step step = host_step(&row);
  cuda_step s = device_step();
  for (ops_dtype type : {DT_F32, DT_BF16}) {
    std::vector<float> want(TOKENS * WIDTH), got;
    for (float &x : want)
      x = (float)random_bits() * 0x1p-31f;
    got = want;
    op_record record = {};
    record.kind = OP_temperature;
    record.temperature.width = WIDTH, record.temperature.span = 3, record.temperature.beta = 0.1f;
    record.temperature.factor_type = type;
    op_temperature on = record.temperature;
    on.q = upload(got.data(), got.size());
    record.temperature.q = want.data();
    ref_temperature(NULL, &record, &step);
    cuda_temperature(cx, &on, &s);
    CHECK(cx->error);
    CHECK(cudaStreamSynchronize(cx->stream));
    CHECK(cudaMemcpy(got.data(), on.q, got.size() * 4, cudaMemcpyDeviceToHost));
    tell(memcmp(got.data(), want.data(), got.size() * 4) == 0,
         type == DT_F32 ? "temperature" : "temperature, its factor bf16");
  }
}

/* ---- what is refused ---- */

static void refusals(void)
{
  op_record all = {};
  for (int kind = 0; kind < OP_COUNT; kind++) {
    all.kind = (op_kind)kind;
    tell(cuda_takes(&all), "records of float32 are taken");
  }
  op_record norm = {}, product = {}, sum = {}, append = {}, table = {};
  norm.kind = OP_rms_norm, norm.rms_norm.type = DT_BF16;
  product.kind = OP_linear, product.linear.outputs = 2, product.linear.type[1] = DT_BF16;
  sum.kind = OP_add, sum.add.type = DT_F16;
  append.kind = OP_kv_append, append.kv_append.quant.key_type = DT_BF16;
  table.kind = OP_embed, table.embed.type = DT_BF16;
  tell(!cuda_takes(&norm), "a norm that rounds is refused");
  tell(!cuda_takes(&product), "a product that rounds is refused");
  tell(!cuda_takes(&sum), "a sum that rounds is refused");
  tell(!cuda_takes(&append), "keys that round are refused");
  tell(cuda_takes(&table), "an embedding that rounds is taken");
}

int main(void)
{
  cuda_context cx = {};
  cudaDeviceProp is;
  CHECK(cudaGetDeviceProperties(&is, 0));
  cx.processors = is.multiProcessorCount;
  CHECK(cudaStreamCreate(&cx.stream));
  embeddings(&cx);
  temperatures(&cx);
  refusals();
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
