/* rates_fast_linear.cu - how fast the linears of numerics fast are on this GPU: those of an 8B llama, 4 bits, groups
 * of 64.
 *
 *   rates_fast_linear            of one token to 2048
 *   rates_fast_linear 1 32       of these numbers of tokens
 *
 * Each is replayed as a graph over as many matrices as L2 does not hold; medians.
 */
#include "fast_linear_side.cuh"

struct shape {
  const char *name;
  int64_t n[3], k;
  int copies, layers; /* distinct matrices to cycle over; times it is in a step */
};

static void fill_random(void *to, size_t bytes)
{
  std::vector<uint32_t> block(1 << 20);
  for (uint32_t &v : block)
    v = random_bits() & 0x3fff3fffu; /* as scales: small and positive halves */
  for (size_t at = 0; at < bytes; at += block.size() * 4)
    CHECK(cudaMemcpy((uint8_t *)to + at, block.data(), std::min(block.size() * 4, bytes - at), cudaMemcpyHostToDevice));
}

static float median_of_graph(cuda_context *cx, void (*work)(void *), void *user)
{
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t from, to;
  CHECK(cudaStreamBeginCapture(cx->stream, cudaStreamCaptureModeThreadLocal));
  work(user);
  CHECK(cudaStreamEndCapture(cx->stream, &graph));
  CHECK(cx->error);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  std::vector<float> times;
  for (int i = 0; i < 11; i++) {
    float ms;
    CHECK(cudaEventRecord(from, cx->stream));
    CHECK(cudaGraphLaunch(exec, cx->stream));
    CHECK(cudaEventRecord(to, cx->stream));
    CHECK(cudaEventSynchronize(to));
    CHECK(cudaEventElapsedTime(&ms, from, to));
    if (i >= 2)
      times.push_back(ms);
  }
  CHECK(cudaEventDestroy(from));
  CHECK(cudaEventDestroy(to));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct bench_work {
  cuda_context *cx;
  std::vector<op_linear> ops;
  int tokens;
};

static void bench_run(void *user)
{
  bench_work *b = (bench_work *)user;
  for (const op_linear &a : b->ops)
    cuda_fast_linear(b->cx, &a, b->tokens);
}

/* All linears, norms and gates of a step, each reading what the one before wrote (attention left out). */
struct bench_step {
  cuda_context *cx;
  int tokens, layers;
  bool joined; /* as few kernels as there can be */
  float *stream, *norm_w, *normed, *qkv[3], *gate, *up, *mid, *logits;
  ops_weight (*weights)[16][3];
};

static void bench_layers(void *user)
{
  bench_step *b = (bench_step *)user;
  op_rms_norm norm = {};
  norm.x = b->stream, norm.y = b->normed, norm.w = b->norm_w, norm.count = 1, norm.width = 4096;
  norm.x_stride = norm.y_stride = 4096, norm.eps = 1e-5f;
  op_glu glu = {};
  glu.gate = b->gate, glu.up = b->up, glu.y = b->mid, glu.width = 14336, glu.act = ACT_SILU;
  struct {
    op_linear a;
    bool norm, gate;
  } all[4 * 64 + 1];
  memset(all, 0, sizeof all);
  for (int i = 0; i <= 4 * b->layers; i++) {
    op_linear *a = &all[i].a;
    int l = i / 4, what = i == 4 * b->layers ? 4 : i % 4;
    static const int outputs[] = {3, 1, 2, 1, 1}, copies[] = {16, 16, 8, 8, 1};
    a->outputs = outputs[what];
    for (int k = 0; k < a->outputs; k++)
      a->w[k] = &b->weights[what][l % copies[what]][k];
    all[i].norm = what == 0 || what == 2 || what == 4;
    all[i].gate = what == 2;
    a->x = all[i].norm ? b->normed : what == 1 ? b->qkv[0] : b->mid;
    if (what == 0)
      a->y[0] = b->qkv[0], a->y[1] = b->qkv[1], a->y[2] = b->qkv[2];
    else if (what == 2)
      a->y[0] = b->gate, a->y[1] = b->up;
    else
      a->y[0] = what == 4 ? b->logits : b->stream, a->residual = what == 4 ? NULL : b->stream;
  }
  for (int i = 0; i <= 4 * b->layers; i++) {
    if (b->joined) {
      cuda_fast_norm_linear(b->cx, all[i].norm ? &norm : NULL, &all[i].a, all[i].gate ? &glu : NULL, b->tokens, false);
      continue;
    }
    if (all[i].norm)
      cuda_rms_norm(b->cx, &norm, b->tokens);
    cuda_fast_linear(b->cx, &all[i].a, b->tokens);
    if (all[i].gate)
      cuda_glu(b->cx, &glu, b->tokens);
  }
}

static void bench_whole(cuda_context *cx, ops_weight (*weights)[16][3], int tokens)
{
  bench_step b = {cx, tokens, 32, false};
  float *all;
  b.weights = weights;
  std::vector<float> host = inputs(tokens, 8192, PLAIN);
  CHECK(cudaMalloc(&all, (size_t)tokens * (2 * 4096 + 6144 + 3 * 14336 + 128256) * 4 + 16384));
  float *at = all;
  auto take = [&](int64_t width) { return at += width, at - width; };
  b.norm_w = take(4096);
  b.stream = take((int64_t)tokens * 4096), b.normed = take((int64_t)tokens * 4096);
  b.qkv[0] = take((int64_t)tokens * 4096), b.qkv[1] = take((int64_t)tokens * 1024);
  b.qkv[2] = take((int64_t)tokens * 1024), b.gate = take((int64_t)tokens * 14336);
  b.up = take((int64_t)tokens * 14336), b.mid = take((int64_t)tokens * 14336);
  b.logits = take((int64_t)tokens * 128256);
  CHECK(cudaMemcpy(b.norm_w, host.data(), 16384, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b.stream, host.data(), (size_t)tokens * 16384, cudaMemcpyHostToDevice));
  float apart = median_of_graph(cx, bench_layers, &b);
  b.joined = true;
  float joined = median_of_graph(cx, bench_layers, &b);
  printf("T %d: a step without attention %.3f ms with norms and gates apart, %.3f ms joined: %.0f tokens/s\n", tokens,
         apart, joined, tokens * 1e3 / joined);
  CHECK(cudaFree(all));
}

static void bench(cuda_context *cx, std::vector<int> counts)
{
  static const shape shapes[] = {
      {"qkv", {4096, 1024, 1024}, 4096, 16, 32},
      {"o", {4096}, 4096, 16, 32},
      {"gate+up", {14336, 14336}, 4096, 8, 32},
      {"down", {4096}, 14336, 8, 32},
      {"head", {128256}, 4096, 2, 1},
  };
  const int most = 2048;
  float *x, *y[3];
  std::vector<float> host = inputs(most, 14336, PLAIN);
  x = (float *)upload(host.data(), host.size() * 4);
  for (float *&p : y)
    CHECK(cudaMalloc(&p, (size_t)most * 14336 * 4));
  CHECK(cudaFree(y[0]));
  CHECK(cudaMalloc(&y[0], (size_t)most * 128256 * 4));
  want_scratch(cx, most, 14336);
  static cuda_matrix matrices[5][16][3];
  static ops_weight weights[5][16][3];
  for (int s = 0; s < 5; s++)
    for (int i = 0; i < shapes[s].copies; i++)
      for (int o = 0; o < 3 && shapes[s].n[o]; o++) {
        ops_weight w = {};
        w.quant = Q_AFFINE, w.bits = 4, w.group = 64, w.stored = DT_BF16, w.n = shapes[s].n[o], w.k = shapes[s].k;
        uint8_t *data;
        CHECK(cudaMalloc(&data, cuda_fast_pack_bytes(&w)));
        fill_random(data, cuda_fast_pack_bytes(&w));
        w.data = data;
        matrices[s][i][o].shape = w;
        matrices[s][i][o].layout = CUDA_FAST_4;
        w.packed = &matrices[s][i][o];
        weights[s][i][o] = w;
      }
  if (counts.empty())
    counts = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
  for (int tokens : counts) {
    float step = 0;
    double macs = 0;
    printf("T %-4d", tokens);
    for (int s = 0; s < 5; s++) {
      const shape &h = shapes[s];
      if (s == 4 && tokens > 32)
        continue;
      bench_work work = {cx, {}, tokens};
      double bytes = 0, mac = 0;
      for (int i = 0; i < h.copies; i++) {
        op_linear a = {};
        a.x = x;
        bytes = mac = 0;
        for (int o = 0; o < 3 && h.n[o]; o++) {
          a.outputs = o + 1;
          a.w[o] = &weights[s][i][o];
          a.y[o] = y[o];
          bytes += (double)h.n[o] * h.k * 9 / 16;
          mac += (double)h.n[o] * h.k * tokens;
        }
        work.ops.push_back(a);
      }
      float us = median_of_graph(cx, bench_run, &work) * 1000 / (float)h.copies;
      if (tokens <= 32)
        printf(" | %s %.1f us %.0f GB/s %.0f%%", h.name, us, bytes / us * 1e-3, bytes / us * 1e-3 / 4500 * 100);
      else
        printf(" | %s %.1f us %.1f TMAC/s", h.name, us, mac / us * 1e-6);
      step += us * (float)h.layers;
      macs += mac * h.layers;
    }
    printf(" | step %.3f ms, %.0f tokens/s, %.1f TMAC/s\n", step * 1e-3, tokens * 1e6 / step, macs / step * 1e-6);
    fflush(stdout);
  }
  for (int tokens : counts)
    if (tokens <= 32)
      bench_whole(cx, weights, tokens);
}

int main(int count, char **arguments)
{
  setvbuf(stdout, NULL, _IOLBF, 0);
  cuda_context cx = context_new();
  std::vector<int> counts;
  for (int i = 1; i < count; i++)
    counts.push_back(atoi(arguments[i]));
  bench(&cx, counts);
  return 0;
}
