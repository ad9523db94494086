/* test_fast_linear.cu - linears of numerics fast on a GPU against their definition, bit for bit (NaN being NaN).
 *
 *     test_fast_linear            every kernel, small shapes and large ones (of which rows are sampled)
 *     test_fast_linear --quick    small shapes alone, for compute-sanitizer
 */
#include "fast_linear_side.cuh"

/* ---- cases ---- */

static int passed, failed;

static bool same(float a, float b)
{
  return f32_bits(a) == f32_bits(b) || (a != a && b != b);
}

/* Rows [from, to) of a matrix, as a matrix (not ternary ones). */
static ops_weight rows_of(const ops_weight *w, int64_t from, int64_t to)
{
  ops_weight r = *w;
  size_t wide = w->stored == DT_F32 ? 4 : 2, group_wide = w->quant == Q_AFFINE ? wide : 1;
  r.n = to - from;
  r.data += w->quant == Q_NONE ? (size_t)(from * w->k) * wide : (size_t)(from * ref_row_bytes(w));
  if (w->group) {
    r.scales += (size_t)(from * w->k / w->group) * group_wide;
    r.biases += (size_t)(from * w->k / w->group) * group_wide;
  }
  return r;
}

struct linear_case {
  const char *name;
  kind q[3];
  int64_t n[3]; /* 0: no such output */
  int64_t k;
  int tokens;
  bool pack, bias, residual;
  inputs_kind which;
};

static void run_case(cuda_context *cx, const linear_case &c)
{
  std::vector<float> x = inputs(c.tokens, c.k, c.which);
  matrix *m[3] = {};
  op_linear on = {};
  std::vector<float> bias[3], residual;
  on.x = (float *)upload(x.data(), x.size() * 4);
  bool packed = false;
  for (int i = 0; i < 3 && c.n[i]; i++) {
    m[i] = matrix_new(cx, c.q[i], c.n[i], c.k, c.pack);
    packed |= m[i]->on.layout == CUDA_FAST_4;
    on.outputs = i + 1;
    on.w[i] = &m[i]->device;
    size_t out = (size_t)(c.n[i] * c.tokens);
    bool ternary = c.q[i].quant == Q_TERNARY;
    if (c.bias && !ternary) {
      bias[i].resize(c.n[i]);
      for (float &v : bias[i])
        v = random_value();
      on.bias[i] = (float *)upload(bias[i].data(), bias[i].size() * 4);
    }
    if (c.residual && i == 0) {
      residual.resize(out);
      for (float &v : residual)
        v = random_value();
      on.y[i] = (float *)upload(residual.data(), out * 4); /* in place */
      on.residual = on.y[i];
    } else {
      CHECK(cudaMalloc(&on.y[i], out * 4));
      CHECK(cudaMemset(on.y[i], 0xff, out * 4));
    }
  }
  want_scratch(cx, c.tokens, c.k);
  cuda_fast_linear(cx, &on, c.tokens);
  CHECK(cx->error);
  CHECK(cudaStreamSynchronize(cx->stream));

  /* Large ones: a few rows and tokens. */
  ops_context host = {};
  std::vector<float> scratch(c.k * 2 + 64);
  host.scratch = scratch.data();
  size_t wrong = 0, checked = 0;
  char where[160] = "";
  for (int i = 0; i < on.outputs; i++) {
    std::vector<float> y((size_t)c.n[i] * c.tokens);
    CHECK(cudaMemcpy(y.data(), on.y[i], y.size() * 4, cudaMemcpyDeviceToHost));
    double work = (double)c.n[i] * c.tokens * c.k;
    bool all = work < 3e7 || c.q[i].quant == Q_TERNARY;
    for (int sample = 0; sample < (all ? c.tokens : 24); sample++) {
      int t = all ? sample : (int)(random_bits() % (unsigned)c.tokens);
      int64_t rows = all ? c.n[i] : std::min<int64_t>(c.n[i], 17);
      int64_t from = all ? 0 : (int64_t)(random_bits() % (unsigned)(c.n[i] - rows + 1));
      if (!all && sample < 2) /* the corners */
        t = sample ? c.tokens - 1 : 0, from = sample ? c.n[i] - rows : 0;
      ops_weight part = all ? m[i]->host : rows_of(&m[i]->host, from, from + rows);
      std::vector<float> z(rows);
      op_record record = {};
      record.kind = OP_linear;
      record.linear.outputs = 1;
      record.linear.x = &x[t * c.k];
      record.linear.w[0] = &part;
      record.linear.bias[0] = bias[i].empty() ? NULL : &bias[i][from];
      record.linear.residual = i == 0 && c.residual ? &residual[t * c.n[i] + from] : NULL;
      record.linear.y[0] = z.data();
      ops_step step = {};
      step.tokens = 1;
      fast_linear(&host, &record, &step);
      for (int64_t r = 0; r < rows; r++, checked++)
        if (!same(z[r], y[t * c.n[i] + from + r]) && !wrong++)
          snprintf(where, sizeof where, "  output %d token %d row %lld: %.9g, should be %.9g", i, t,
                   (long long)(from + r), y[t * c.n[i] + from + r], z[r]);
    }
  }
  printf("%s %-44s k %-6lld n %-6lld T %-4d%s%s%s%s %zu of %zu wrong%s\n", wrong ? "FAIL" : "ok  ", c.name,
         (long long)c.k, (long long)c.n[0], c.tokens, packed ? " packed" : "", c.bias ? " bias" : "",
         c.residual ? " residual" : "", c.which == WITH_ODD ? " odd" : "", wrong, checked, where);
  (wrong ? failed : passed)++;
  CHECK(cudaFree((void *)on.x));
  for (int i = 0; i < on.outputs; i++) {
    if (on.bias[i])
      CHECK(cudaFree((void *)on.bias[i]));
    CHECK(cudaFree(on.y[i]));
    matrix_free(m[i]);
  }
}

static const char *kind_name(const kind &q, char *to, size_t room)
{
  static const char *const quants[] = {"dense", "affine", "mxfp4", "mxfp8", "nvfp4", "ternary"};
  static const char *const types[] = {"f32", "bf16", "f16"};
  snprintf(to, room, "%s %d/%d %s", quants[q.quant], q.bits, q.group, types[q.stored]);
  return to;
}

/* Code, scale and bias of every element of a packed matrix, by the functions that the embedding uses. */
static __global__ void count_differences(ops_weight packed, ops_weight w, int *wrong)
{
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, n = i / w.k, k = i % w.k;
  if (n >= w.n)
    return;
  int64_t g = i / w.group;
  if (fast_packed_code(packed, n, k) != ref_code(w.data + n * ref_row_bytes(&w), w.bits, k) ||
      fast_packed_scale(packed, n, k) != ops_load(w.stored, w.scales, g) ||
      fast_packed_bias(packed, n, k) != ops_load(w.stored, w.biases, g))
    atomicAdd(wrong, 1);
}

static void packing(cuda_context *cx)
{
  static const kind kinds[] = {{Q_AFFINE, 4, 32, DT_BF16}, {Q_AFFINE, 4, 64, DT_F16}, {Q_AFFINE, 4, 128, DT_BF16}};
  static const int64_t shapes[][2] = {{40, 1152}, {16, 128}, {7, 512}};
  int *wrong, count;
  CHECK(cudaMalloc(&wrong, 4));
  for (const kind &q : kinds)
    for (auto &shape : shapes) {
      matrix *m = matrix_new(cx, q, shape[0], shape[1], true);
      CHECK(cudaMemsetAsync(wrong, 0, 4, cx->stream));
      cuda_launch(cx, false, count_differences, (unsigned)cuda_ceil(shape[0] * shape[1], 128), 128, 0, m->on.shape,
                  m->as_stored.shape, wrong);
      CHECK(cudaStreamSynchronize(cx->stream));
      CHECK(cudaMemcpy(&count, wrong, 4, cudaMemcpyDeviceToHost));
      char name[64];
      printf("%s packing %s n %lld k %lld: %d wrong\n", count ? "FAIL" : "ok  ", kind_name(q, name, sizeof name),
             (long long)shape[0], (long long)shape[1], count);
      (count ? failed : passed)++;
      matrix_free(m);
    }
  CHECK(cudaFree(wrong));
}

static void every_kind(cuda_context *cx)
{
  static const kind kinds[] = {
      {Q_AFFINE, 2, 64, DT_BF16}, {Q_AFFINE, 3, 32, DT_F16},  {Q_AFFINE, 3, 128, DT_BF16}, {Q_AFFINE, 4, 64, DT_F32},
      {Q_AFFINE, 5, 64, DT_BF16}, {Q_AFFINE, 6, 128, DT_F16}, {Q_AFFINE, 8, 32, DT_F32},   {Q_AFFINE, 8, 64, DT_BF16},
      {Q_NONE, 0, 0, DT_F32},     {Q_NONE, 0, 0, DT_BF16},    {Q_NONE, 0, 0, DT_F16},      {Q_MXFP4, 4, 32, DT_F32},
      {Q_MXFP8, 8, 32, DT_F32},   {Q_NVFP4, 4, 16, DT_F32},   {Q_TERNARY, 2, 0, DT_F32},
  };
  static const int tokens[] = {1, 2, 5, 9};
  for (const kind &q : kinds)
    for (int i = 0; i < 8; i++) {
      char name[64];
      linear_case c = {};
      c.name = kind_name(q, name, sizeof name);
      c.q[0] = q;
      c.n[0] = i % 4 == 0 ? 33 : i % 4 == 1 ? 7 : i % 4 == 2 ? 64 : 19;
      c.k = i % 4 == 0 ? 640 : i % 4 == 1 ? 4608 : i % 4 == 2 ? 128 : 14336;
      if (q.quant == Q_NONE && i % 4 < 2)
        c.k = i % 4 ? 519 : 61;
      c.tokens = tokens[(i + i / 4) % 4];
      c.bias = i & 1;
      c.residual = q.quant != Q_TERNARY && (i & 2);
      c.which = i < 4 ? PLAIN : WITH_ODD;
      run_case(cx, c);
    }
}

static void packed_kinds(cuda_context *cx, bool quick)
{
  static const kind kinds[] = {{Q_AFFINE, 4, 64, DT_BF16}, {Q_AFFINE, 4, 64, DT_F16},  {Q_AFFINE, 4, 32, DT_BF16},
                               {Q_AFFINE, 4, 32, DT_F16},  {Q_AFFINE, 4, 128, DT_F16}, {Q_AFFINE, 4, 128, DT_BF16}};
  static const int tokens[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 64, 65, 128, 130, 200};
  static const int64_t ks[] = {4096, 640, 14336, 128, 4608, 1024, 2880};
  static const int64_t ns[] = {64, 40, 33, 7, 128, 130, 200};
  int at = 0;
  for (const kind &q : kinds)
    for (int t : tokens) {
      if (quick && (at++ % 3 || t > 70))
        continue;
      char name[64];
      linear_case c = {};
      c.name = kind_name(q, name, sizeof name);
      c.q[0] = q;
      c.k = ks[random_bits() % (quick ? 2 : 7)];
      if (c.k % q.group)
        c.k = 640;
      c.n[0] = ns[random_bits() % 7];
      c.tokens = t;
      c.pack = true;
      c.bias = random_bits() & 1;
      c.residual = random_bits() & 1;
      c.which = random_bits() % 4 ? PLAIN : WITH_ODD;
      run_case(cx, c);
    }
}

static void several_outputs(cuda_context *cx)
{
  const kind four = {Q_AFFINE, 4, 64, DT_BF16}, eight = {Q_AFFINE, 8, 64, DT_BF16}, other = {Q_AFFINE, 4, 32, DT_BF16},
             dense = {Q_NONE, 0, 0, DT_BF16};
  for (int t : {1, 3, 6, 13, 30, 70}) {
    run_case(cx, {"three packed", {four, four, four}, {80, 33, 17}, 1024, t, true, true, true, PLAIN});
    run_case(cx, {"packed, 8 bits, packed", {four, eight, four}, {20, 33, 40}, 640, t, true, false, true, PLAIN});
    run_case(cx, {"two groups, dense", {four, other, dense}, {20, 33, 40}, 640, t, true, true, false, WITH_ODD});
  }
}

/* A norm, a linear and a gate as one, against the three records of the definition. */
static void run_fused(cuda_context *cx, const kind &q, int64_t n, int64_t k, int tokens, bool gated, bool keep,
                      bool weights, int act)
{
  const int64_t stride = k + 32; /* of the norm's rows, in and out */
  int outputs = gated ? 2 : 1;
  std::vector<float> x = inputs(tokens, stride, PLAIN), w = inputs(1, k, PLAIN), normed((size_t)(tokens * k));
  std::vector<float> y[3], ref[3], kept((size_t)(tokens * k));
  op_record norm = {}, linear = {}, glu = {};
  matrix *m[2];
  ops_weight weight[2];
  float *on_normed;
  norm.rms_norm.x = x.data(), norm.rms_norm.y = normed.data(), norm.rms_norm.w = weights ? w.data() : NULL;
  norm.rms_norm.count = 1, norm.rms_norm.width = (int)k, norm.rms_norm.x_stride = stride, norm.rms_norm.y_stride = k;
  norm.rms_norm.eps = 1e-5f;
  linear.linear.x = normed.data();
  linear.linear.outputs = outputs;
  op_rms_norm on_norm = norm.rms_norm;
  op_linear on = {};
  CHECK(cudaMalloc(&on_normed, (size_t)(tokens * k) * 4));
  on_norm.x = (float *)upload(x.data(), x.size() * 4);
  on_norm.y = on_normed;
  on_norm.w = weights ? (float *)upload(w.data(), w.size() * 4) : NULL;
  on.x = on_normed;
  on.outputs = outputs;
  for (int i = 0; i < 3; i++) {
    y[i].resize((size_t)(tokens * n));
    ref[i].resize((size_t)(tokens * n));
  }
  for (int i = 0; i < outputs; i++) {
    m[i] = matrix_new(cx, q, n, k, true);
    weight[i] = m[i]->host;
    linear.linear.w[i] = &weight[i];
    linear.linear.y[i] = ref[i].data();
    on.w[i] = &m[i]->device;
    CHECK(cudaMalloc(&on.y[i], y[i].size() * 4));
  }
  glu.glu.gate = ref[0].data(), glu.glu.up = ref[1].data(), glu.glu.y = ref[2].data();
  glu.glu.width = (int)n, glu.glu.act = (ops_act)act;
  op_glu on_glu = glu.glu;
  on_glu.gate = on.y[0], on_glu.up = on.y[1];
  CHECK(cudaMalloc(&on_glu.y, y[2].size() * 4));
  want_scratch(cx, tokens, k);
  cuda_fast_norm_linear(cx, &on_norm, &on, gated ? &on_glu : NULL, tokens, keep);
  CHECK(cx->error);
  CHECK(cudaStreamSynchronize(cx->stream));
  std::vector<float> scratch(k * 2 + 64);
  ops_context host = {};
  ops_step step = {};
  host.scratch = scratch.data();
  step.tokens = tokens;
  fast_rms_norm(&host, &norm, &step);
  fast_linear(&host, &linear, &step);
  if (gated)
    ref_glu(&host, &glu, &step);
  int result = gated ? 2 : 0;
  CHECK(cudaMemcpy(y[result].data(), gated ? on_glu.y : on.y[0], y[0].size() * 4, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(kept.data(), on_normed, kept.size() * 4, cudaMemcpyDeviceToHost));
  size_t wrong = 0, wrong_kept = 0;
  for (size_t i = 0; i < y[result].size(); i++)
    wrong += !same(y[result][i], ref[result][i]);
  for (size_t i = 0; keep && i < kept.size(); i++)
    wrong_kept += !same(kept[i], normed[i]);
  char name[64];
  printf("%s norm, linear%s: %s k %lld n %lld T %d%s%s %zu wrong, %zu of the norm\n",
         wrong + wrong_kept ? "FAIL" : "ok  ", gated ? ", gate" : "", kind_name(q, name, sizeof name), (long long)k,
         (long long)n, tokens, keep ? " kept" : "", weights ? " weights" : "", wrong, wrong_kept);
  (wrong + wrong_kept ? failed : passed)++;
  CHECK(cudaFree((void *)on_norm.x));
  CHECK(cudaFree(on_normed));
  CHECK(cudaFree((void *)on_norm.w));
  CHECK(cudaFree(on_glu.y));
  for (int i = 0; i < outputs; i++) {
    CHECK(cudaFree(on.y[i]));
    matrix_free(m[i]);
  }
}

static void fused(cuda_context *cx)
{
  static const kind kinds[] = {{Q_AFFINE, 4, 64, DT_BF16}, {Q_AFFINE, 4, 32, DT_F16}, {Q_AFFINE, 4, 128, DT_BF16}};
  int at = 0;
  for (const kind &q : kinds)
    for (int64_t k : {128, 640, 4096, 5120})
      for (int t : {1, 3, 6, 20, 70}) {
        run_fused(cx, q,
                  at % 2   ? 40
                  : t <= 3 ? 2200
                           : 200,
                  k, t, at % 3 == 0, at % 5 < 3, at % 7 != 0, at % 4 ? ACT_SILU : ACT_RELU2);
        at++;
      }
}

static void large_shapes(cuda_context *cx)
{
  const kind four = {Q_AFFINE, 4, 64, DT_BF16};
  for (int t : {1, 4, 8, 16, 32, 100, 512}) {
    run_case(cx, {"qkv of 8B", {four, four, four}, {4096, 1024, 1024}, 4096, t, true, false, false, PLAIN});
    run_case(cx, {"down of 8B", {four}, {4096}, 14336, t, true, false, true, PLAIN});
  }
}

int main(int count, char **arguments)
{
  setvbuf(stdout, NULL, _IOLBF, 0);
  cuda_context cx = context_new();
  bool quick = count > 1 && !strcmp(arguments[1], "--quick");
  packing(&cx);
  every_kind(&cx);
  packed_kinds(&cx, quick);
  several_outputs(&cx);
  fused(&cx);
  /* Kernels go by processors and shared memory: those that this GPU would not choose for so small shapes. */
  cuda_context other = cx;
  printf("as with little shared memory\n");
  other.shared_most = 99 * 1024;
  packed_kinds(&other, true);
  printf("as with one processor\n");
  other.shared_most = cx.shared_most;
  other.processors = 1;
  packed_kinds(&other, false);
  cx.scratch = other.scratch;
  cx.scratch_bytes = other.scratch_bytes;
  if (!quick)
    large_shapes(&cx);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
