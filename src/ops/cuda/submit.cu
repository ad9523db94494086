/* submit.cu - a segment of the plan on the device: the step's facts, then its kernels, one launch for all of them where
 * the segment was seen before.
 *
 * Facts of a step (tokens, ids, tables of blocks) go to fixed places in one copy; kernels know only those places. So
 * the launches of a segment are the same for every step of as many tokens, and are captured into a graph the second
 * time: it is found again by (segment, tokens, whether each is a row of its own, wanted tokens, how far the tokens see,
 * rounded up to a power of two).
 * Segments of many tokens are launched as they come: there the host is ahead of the device anyway.
 *
 * Nothing here waits for the device but for the copies of the step before.
 */
#include "ops/cuda/host.cuh"

enum {
  GRAPH_TOKENS = 64, /* most tokens of a step that is captured */
  GRAPHS = 96,       /* most graphs kept */
  SEEN_ROUND = 256, /* most_keys' unit */
};

/* ---- facts ---- */

/* Where a step's arrays lie in the mirror of facts. Addresses depend on the numbers of tokens alone. */
struct facts {
  size_t tokens, ids, use, rates, bytes;
};

static size_t rounded(size_t bytes)
{
  return (bytes + 63) / 64 * 64;
}

static facts facts_of(int tokens, int rates)
{
  facts f = {};
  size_t n = (size_t)tokens;
  f.ids = rounded(n * sizeof(cuda_token));
  f.use = f.ids + rounded(n * sizeof(int32_t));
  f.rates = f.use + rounded(n);
  f.bytes = f.rates + rounded(n * (size_t)rates * 2 * sizeof(float));
  return f;
}

static void write_rates(const cuda_rates *rates, const ops_step *step, float *out)
{
  for (int i = 0; i < rates->n; i++)
    for (int r = 0; r < step->rows; r++)
      for (int t = 0; t < step->row[r].count; t++) {
        const op_rope *a = rates->rope[i];
        const ops_row *row = &step->row[r];
        float *pair = out + 2 * ((size_t)i * (size_t)step->tokens + (size_t)(row->first + t));
        for (int side = 0; side < 2; side++) {
          int64_t length = ref_length(row, row->position + t, side ? a->k_heads : a->q_heads);
          pair[side] = ref_grown(a, length) ? ref_grown_rate(a, length) : NAN;
        }
      }
}

static void write_facts(const facts *f, const ops_step *step, const cuda_rates *rates, char *out)
{
  cuda_token *token = (cuda_token *)(out + f->tokens);
  for (int r = 0; r < step->rows; r++) {
    const ops_row *row = &step->row[r];
    for (int t = 0; t < row->count; t++)
      token[row->first + t] = {row->position + t, row->split, row->position, r, row->kind};
  }
  memcpy(out + f->ids, step->ids, (size_t)step->tokens * sizeof *step->ids);
  if (step->use)
    memcpy(out + f->use, step->use, (size_t)step->tokens);
  write_rates(rates, step, (float *)(out + f->rates));
}

/* ---- tables of blocks ---- */

static int64_t blocks_of(const ops_row *row)
{
  return cuda_ceil(row->position + row->count, KV_BLOCK);
}

/* Room for the step's rows; doubled, so that it grows seldom. False: not to be had. */
static bool grow_table(cuda_state *s, const ops_step *step, int slots)
{
  int64_t most = 1;
  int rows = s->rows ? s->rows : 1, row_blocks = s->row_blocks ? s->row_blocks : 16;
  for (int r = 0; r < step->rows; r++)
    most = blocks_of(&step->row[r]) > most ? blocks_of(&step->row[r]) : most;
  while (rows < step->rows)
    rows *= 2;
  while (row_blocks < most)
    row_blocks *= 2;
  slots = slots > s->slots ? slots : s->slots;
  if (rows == s->rows && row_blocks == s->row_blocks && slots == s->slots)
    return true;
  cuda_ok(&s->cx, cudaStreamSynchronize(s->cx.stream));
  cuda_forget_graphs(s);
  cuda_mirror_free(&s->table);
  s->rows = rows;
  s->row_blocks = row_blocks;
  s->slots = slots;
  if (cuda_mirror_grow(s, &s->table, (size_t)slots * (size_t)rows * (size_t)row_blocks * sizeof(void *)))
    return true;
  s->rows = s->row_blocks = 0;
  return false;
}

/* Writes down what changed since the last step; the bytes [*begin, *end) of the mirror that did. */
static void write_table(cuda_state *s, const ops_step *step, size_t *begin, size_t *end)
{
  void **table = (void **)s->table.host;
  size_t first = SIZE_MAX, last = 0;
  for (int slot = 0; slot < s->slots; slot++)
    for (int r = 0; r < step->rows; r++) {
      size_t at = ((size_t)slot * (size_t)s->rows + (size_t)r) * (size_t)s->row_blocks;
      void *const *blocks = step->row[r].slots[slot].blocks;
      size_t n = (size_t)blocks_of(&step->row[r]);
      if (memcmp(table + at, blocks, n * sizeof *table) == 0)
        continue;
      memcpy(table + at, blocks, n * sizeof *table);
      first = at < first ? at : first;
      last = at + n;
    }
  *begin = first == SIZE_MAX ? 0 : first * sizeof *table;
  *end = first == SIZE_MAX ? 0 : last * sizeof *table;
}

/* ---- a segment ---- */

/* All of the body's facts; the head comes after its body and needs only which tokens are wanted. */
static bool send_facts(cuda_run *run, const ops_step *step)
{
  cuda_state *s = run->s;
  facts f = facts_of(step->tokens, run->rates.n);
  size_t begin, end;
  if (!cuda_ok(&s->cx, cudaEventSynchronize(s->copied)) || !grow_table(s, step, run->slots))
    return false;
  if (f.bytes > s->facts.bytes) {
    cuda_ok(&s->cx, cudaStreamSynchronize(s->cx.stream));
    cuda_forget_graphs(s);
    if (!cuda_mirror_grow(s, &s->facts, 2 * f.bytes))
      return false;
  }
  write_facts(&f, step, &run->rates, s->facts.host);
  write_table(s, step, &begin, &end);
  cudaStream_t stream = s->cx.stream;
  cuda_ok(&s->cx, cudaMemcpyAsync(s->facts.device, s->facts.host, f.bytes, cudaMemcpyHostToDevice, stream));
  if (end > begin)
    cuda_ok(&s->cx, cudaMemcpyAsync(s->table.device + begin, s->table.host + begin, end - begin, cudaMemcpyHostToDevice,
                                    stream));
  return cuda_ok(&s->cx, cudaEventRecord(s->copied, stream));
}

static bool send_given(cuda_run *run, const ops_step *step, int width)
{
  cuda_state *s = run->s;
  size_t floats = (size_t)step->tokens * (size_t)width;
  if (!step->use)
    return true;
  if (floats > s->given_floats) {
    cuda_ok(&s->cx, cudaStreamSynchronize(s->cx.stream));
    cudaFree(s->given);
    s->given = NULL;
    s->given_floats = 0;
    if (!cuda_got(s, cudaMalloc(&s->given, floats * sizeof *s->given), floats * sizeof *s->given))
      return false;
    s->given_floats = floats;
  }
  run->given = s->given;
  run->use = (const uint8_t *)s->facts.device + facts_of(step->tokens, run->rates.n).use;
  return cuda_ok(
      &s->cx, cudaMemcpyAsync(s->given, step->embeds, floats * sizeof *s->given, cudaMemcpyHostToDevice, s->cx.stream));
}

/* Steps want every token, or the last of a few; the first case needs no copy. */
static bool send_wanted(cuda_run *run, const ops_step *step)
{
  cuda_state *s = run->s;
  bool counting = true;
  for (int i = 0; i < step->wanted; i++)
    counting = counting && step->want[i] == i;
  if (counting && step->wanted <= CUDA_COUNTING) {
    run->step.want = s->counting;
    return true;
  }
  if (step->wanted > CUDA_WANTED)
    return cuda_ok(&s->cx, cudaErrorInvalidValue); /* a head takes 16 */
  run->step.want = s->counting + CUDA_COUNTING;
  /* From memory that is not page-locked: copied before the call returns. */
  return cuda_ok(&s->cx, cudaMemcpyAsync(s->counting + CUDA_COUNTING, step->want, (size_t)step->wanted * sizeof *step->want,
                                         cudaMemcpyHostToDevice, s->cx.stream));
}

/* ---- graphs ---- */

struct cuda_graph {
  const op_record *records;
  int tokens, wanted;
  bool singles;
  int64_t most_keys;
  const int32_t *want;
  bool seen;            /* it ran once, launch by launch: what loads at first use is loaded */
  cudaGraphExec_t exec; /* NULL: not captured yet */
  cuda_graph *next;
};

static void free_graph(cuda_graph *g)
{
  if (g->exec)
    cudaGraphExecDestroy(g->exec);
  mem_free(g);
}

void cuda_forget_graphs(cuda_state *s)
{
  while (s->graphs) {
    cuda_graph *g = s->graphs;
    s->graphs = g->next;
    free_graph(g);
  }
  s->n_graphs = 0;
}

/* The graph of this segment and shape, moved to the front; a new one, without exec, where there is none. NULL: no
 * memory. */
static cuda_graph *graph_for(cuda_state *s, const op_record *records, const cuda_step *step, bool singles)
{
  cuda_graph **at = &s->graphs, **last = NULL;
  for (; *at; last = at, at = &(*at)->next) {
    cuda_graph *g = *at;
    if (g->records != records || g->tokens != step->tokens || g->wanted != step->wanted ||
        g->most_keys != step->most_keys || g->want != step->want || g->singles != singles)
      continue;
    *at = g->next;
    g->next = s->graphs;
    return s->graphs = g;
  }
  if (s->n_graphs == GRAPHS) {
    free_graph(*last);
    *last = NULL;
    s->n_graphs--;
  }
  cuda_graph *g = (cuda_graph *)mem_zalloc(sizeof *g);
  if (!g)
    return NULL;
  *g = {records, step->tokens, step->wanted, singles, step->most_keys, step->want, false, NULL, s->graphs};
  s->n_graphs++;
  return s->graphs = g;
}

/* NULL in *exec: there is no memory for a graph. That is no fault: the records can be launched one by one. */
static bool capture(cuda_run *run, const op_record *records, int n, cudaGraphExec_t *exec)
{
  cuda_context *cx = &run->s->cx;
  cudaGraph_t graph = NULL;
  if (!cuda_ok(cx, cudaStreamBeginCapture(cx->stream, cudaStreamCaptureModeThreadLocal)))
    return false;
  cuda_run_records(run, records, n);
  cuda_ok(cx, cudaStreamEndCapture(cx->stream, &graph));
  if (cx->error == cudaSuccess) {
    cudaError_t result = cudaGraphInstantiate(exec, graph, 0);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      *exec = NULL;
    } else {
      cuda_ok(cx, result);
    }
  }
  if (graph)
    cudaGraphDestroy(graph);
  return cx->error == cudaSuccess;
}

/* ---- submit ---- */

static void look_through(cuda_run *run, const op_record *records, int n)
{
  for (int i = 0; i < n; i++) {
    const op_record *r = &records[i];
    if (r->kind == OP_kv_append && r->kv_append.slot >= run->slots)
      run->slots = r->kv_append.slot + 1;
    if (r->kind == OP_attention && r->attention.slot >= run->slots)
      run->slots = r->attention.slot + 1;
    if (r->kind != OP_rope || !r->rope.ntk_from || cuda_rates_of(&run->rates, &r->rope) >= 0)
      continue;
    if (run->rates.n == CUDA_MOST_RATES)
      cuda_ok(&run->s->cx, cudaErrorNotSupported); /* no model has so many */
    else
      run->rates.rope[run->rates.n++] = &r->rope;
  }
}

/* How far any token of the step sees. */
static int64_t most_keys(const ops_step *step)
{
  int64_t most = 0;
  for (int r = 0; r < step->rows; r++) {
    int64_t end = step->row[r].position + step->row[r].count;
    most = end > most ? end : most;
  }
  return most;
}

/* The body runs over all tokens; only it knows rows. */
static bool prepare_body(cuda_run *run, const op_record *records, const ops_step *step, bool few)
{
  cuda_state *s = run->s;
  int64_t most = most_keys(step);
  run->step.tokens = step->tokens;
  run->singles = true;
  for (int r = 0; r < step->rows; r++)
    run->singles = run->singles && step->row[r].count == 1;
  run->step.most_keys = few ? cuda_keys_rounded(most) : cuda_ceil(most, SEEN_ROUND) * SEEN_ROUND;
  if (!send_facts(run, step) || !send_given(run, step, (int)records[0].embed.table->k))
    return false;
  facts f = facts_of(step->tokens, run->rates.n);
  run->step.token = (const cuda_token *)(s->facts.device + f.tokens);
  run->step.ids = (const int32_t *)(s->facts.device + f.ids);
  run->rate_values = (const float *)(s->facts.device + f.rates);
  run->step.blocks = (void *const *)s->table.device;
  run->step.rows = s->rows;
  run->step.row_blocks = s->row_blocks;
  return true;
}

static bool prepare_head(cuda_run *run, const ops_step *step)
{
  run->step.wanted = step->wanted;
  return send_wanted(run, step);
}

void cuda_submit(ops_context *context, const op_record *records, int n, const ops_step *step)
{
  cuda_state *s = cuda_state_of(context);
  cuda_run run = {};
  if (s->cx.error != cudaSuccess || s->wanting || n == 0)
    return;
  bool body = records[0].kind == OP_embed;
  bool few = body ? step->tokens <= GRAPH_TOKENS && !step->use : step->wanted <= GRAPH_TOKENS;
  run.s = s;
  look_through(&run, records, n);
  if (body ? !prepare_body(&run, records, step, few) : !prepare_head(&run, step))
    return;
  cuda_graph *g = few ? graph_for(s, records, &run.step, run.singles) : NULL;
  if (g && g->seen && !g->exec && !capture(&run, records, n, &g->exec))
    return;
  if (g && g->exec)
    cuda_ok(&s->cx, cudaGraphLaunch(g->exec, s->cx.stream));
  else
    cuda_run_records(&run, records, n);
  if (g)
    g->seen = true;
}
