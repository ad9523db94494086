/* rates_attention.cu - how fast keys, values and attention are on this GPU.
 *
 *   rates_attention             microseconds, GB/s and TMAC/s of a layer, and of its kernels one by one
 *   rates_attention --overlap   with kernels that start before their predecessors end
 *
 * Each case is replayed as a graph over several layers with keys and values of their own, so that L2 is cold; medians.
 */
#include "attention_side.cuh"

template <class F> static float median_us(cuda_context &cx, int replays, F queue)
{
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  cudaEvent_t from, to;
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  CHECK(cudaStreamBeginCapture(cx.stream, cudaStreamCaptureModeThreadLocal));
  queue();
  CHECK(cx.error);
  CHECK(cudaStreamEndCapture(cx.stream, &graph));
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  CHECK(cudaGraphLaunch(ready, cx.stream));
  std::vector<float> times;
  for (int i = 0; i < replays; i++) {
    float ms;
    CHECK(cudaEventRecord(from, cx.stream));
    CHECK(cudaGraphLaunch(ready, cx.stream));
    CHECK(cudaEventRecord(to, cx.stream));
    CHECK(cudaEventSynchronize(to));
    CHECK(cudaEventElapsedTime(&ms, from, to));
    times.push_back(ms * 1000);
  }
  std::sort(times.begin(), times.end());
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
  return times[times.size() / 2];
}

static __global__ void fill(uint16_t *x, size_t n, int fast)
{
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    uint32_t h = (uint32_t)i * 2654435761u;
    h ^= h >> 15;
    /* halves of about 1, and floats of about 1 where a pair is one: the upper half is a float's */
    x[i] = (uint16_t)(fast || (i & 1) ? 0x3800 | (h & 0x83ff) : h);
  }
}

struct bench_case {
  const char *name;
  int tokens, rows, depth; /* each row has tokens / rows of them, at positions depth - that on */
  int layers;              /* with their own keys and values: so that L2 is cold */
};

/* The kernels of a step one by one. */
static void bench_parts(cuda_context &cx, const bench_case &c, bool fast, op_attention a, const cuda_step &s)
{
  if (c.tokens > c.rows)
    return;
  exact_room e = {};
  e.slots = s.most_keys;
  e.count = c.tokens;
  e.scores = (float *)cx.scratch;
  e.inverse = e.scores + (size_t)c.tokens * a.heads * e.slots;
  fast_room f = {};
  f.units = (int)(s.most_keys / FAST_CHUNK);
  f.count = c.tokens;
  f.most = (float2 *)cx.scratch;
  f.out = (float *)(f.most + (size_t)c.tokens * a.heads * f.units);
  auto time = [&](const char *name, auto queue) {
    float us = median_us(cx, 9, [&] {
      for (a.slot = 0; a.slot < c.layers; a.slot++)
        queue();
    });
    printf("   %s %.1f", name, us / c.layers);
  };
  op_rope rope = {};
  rope.q = (float *)a.q;
  rope.k = (float *)cx.scratch;
  rope.q_heads = a.heads;
  rope.k_heads = a.kv_heads;
  rope.head_dim = rope.dims = a.key_dim;
  rope.inverse = rope.k;
  rope.position_scale = rope.mscale = 1;
  op_kv_append append = {};
  append.k = append.v = rope.k;
  append.kv_heads = a.kv_heads;
  append.key_dim = a.key_dim;
  append.value_dim = a.value_dim;
  time("rope and append", [&] {
    append.slot = a.slot;
    cuda_rope_append(&cx, &rope, &append, &s, nullptr);
  });
  if (fast) {
    time("chunks", [&] { fast_step_chunks(&cx, &a, &s, &f, NULL); });
  } else {
    time("scores", [&] { exact_step_scores(&cx, &a, &s, &e); });
    time("sums", [&] { exact_sums(&cx, &a, &s, &e); });
    time("values", [&] { exact_step_values(&cx, &a, &s, &e); });
  }
  printf(" us\n");
}

static void bench(const bench_case &c, bool fast, op_attention a)
{
  cuda_context cx = context_of(fast);
  cuda_attention_setup(&cx);
  int count = c.tokens / c.rows, row_blocks = (int)cuda_ceil(c.depth, KV_BLOCK);
  ops_kv_shape shape = {a.kv_heads, a.key_dim, a.value_dim, {}};
  size_t bytes = cuda_kv_block_bytes(fast, &shape), each = bytes * row_blocks * c.rows;
  uint8_t *memory;
  CHECK(cudaMalloc(&memory, each * c.layers));
  fill<<<2048, 256>>>((uint16_t *)memory, each * c.layers / 2, fast);
  std::vector<void *> blocks((size_t)c.layers * c.rows * row_blocks);
  for (size_t i = 0; i < blocks.size(); i++)
    blocks[i] = memory + i * bytes;
  std::vector<cuda_token> facts;
  double macs = 0;
  for (int t = 0; t < c.tokens; t++) {
    int64_t position = c.depth - count + t % count;
    facts.push_back({position, count > 1 ? c.depth : 0, c.depth - count, t / count, count > 1 ? ROW_READ : ROW_STEP});
    macs += (double)ops_visible_count(a.window, position) * a.heads * (a.key_dim + a.value_dim);
  }
  cuda_step s = {};
  s.tokens = c.tokens;
  s.most_keys = cuda_ceil(c.depth, 256) * 256;
  s.token = on_device(facts);
  s.blocks = on_device(blocks);
  s.rows = c.rows;
  s.row_blocks = row_blocks;
  a.q = on_device(random_floats((size_t)c.tokens * a.heads * a.key_dim, 1));
  CHECK(cudaMalloc(&a.out, (size_t)c.tokens * a.heads * a.value_dim * sizeof(float)));
  ops_room room = {c.tokens, s.most_keys, false, std::max(a.key_dim, a.value_dim), 0};
  cx.scratch_bytes = cuda_attention_scratch(&cx, &room, a.heads);
  CHECK(cudaMalloc(&cx.scratch, cx.scratch_bytes));
  CHECK(cudaDeviceSynchronize());
  float us = median_us(cx, 9,
                       [&] {
                         for (int l = 0; l < c.layers; l++) {
                           a.slot = l;
                           (fast ? cuda_fast_attention : cuda_exact_attention)(&cx, &a, &s);
                         }
                       }) /
             c.layers;
  double gb = (double)c.rows * std::min<int64_t>(c.depth, a.window ? a.window : c.depth) * a.kv_heads *
              (a.key_dim + a.value_dim) * (fast ? 2 : 4) / us * 1e-3;
  printf("%s %-28s %9.1f us a layer, %7.1f GB/s of keys and values (%5.1f %% of 4500), %6.2f TMAC/s\n",
         fast ? "fast " : "exact", c.name, us, gb, gb / 45, macs / us * 1e-6);
  bench_parts(cx, c, fast, a, s);
  fflush(stdout);
  for (void *p : {(void *)memory, (void *)s.token, (void *)s.blocks, (void *)a.q, (void *)a.out, cx.scratch})
    CHECK(cudaFree(p));
}

static void bench_all(void)
{
  static const bench_case cases[] = {
      {"1 token at 100", 1, 1, 100, 32},       {"1 token at 1000", 1, 1, 1000, 16},
      {"1 token at 8192", 1, 1, 8192, 8},      {"1 token at 32768", 1, 1, 32768, 2},
      {"8 rows at 1024", 8, 8, 1024, 8},       {"8 rows at 8192", 8, 8, 8192, 2},
      {"32 rows at 1024", 32, 32, 1024, 2},    {"32 rows at 8192", 32, 32, 8192, 1},
      {"16 tokens at 8192", 16, 1, 8192, 4},   {"128 tokens at 4096", 128, 1, 4096, 4},
      {"prompt of 512", 512, 1, 512, 8},       {"prompt of 2048", 2048, 1, 2048, 2},
      {"512 tokens at 8192", 512, 1, 8192, 1},
  };
  for (bool fast : {true, false})
    for (const bench_case &c : cases)
      bench(c, fast, op_of(32, 8, 128, 128));
}

int main(int argc, char **argv)
{
  overlap = argc > 1 && !strcmp(argv[1], "--overlap");
  bench_all();
  return 0;
}
