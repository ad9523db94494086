/* test_attention.cu - keys, values and attention on the GPU against the definitions on the host, bit for bit.
 *
 *   test_attention            every case, one line each; exit 1 where a bit differs
 *   test_attention --small    without the large ones (for compute-sanitizer)
 *   test_attention --overlap  with kernels that start before their predecessors end
 *
 * A case is an op and some rows. History is appended on the host, and what no token may look at is poisoned: blocks
 * start as NaN, and those that no token sees are NULL. The step's own keys are appended on both sides; whole blocks are
 * compared, then outputs.
 */
#include "attention_side.cuh"

/* ---- cases ---- */

struct test_row {
  ops_row_kind kind;
  int history, count, split;
};

struct test_case {
  const char *name;
  bool fast;
  op_attention op; /* sizes and features */
  std::vector<test_row> rows;
  bool large;         /* outputs of some tokens alone are compared */
  size_t scratch = 0; /* less than it asks for */
};

static op_attention windowed(op_attention a, int window, int keep, bool by_time = false)
{
  a.window = window;
  a.keep = keep;
  a.by_time = by_time;
  return a;
}

static op_attention capped(op_attention a, float cap)
{
  a.softcap = cap;
  return a;
}

static op_attention sparse(op_attention a, int block, int local, int stride)
{
  a.sparse_block = block;
  a.sparse_local = local;
  a.sparse_stride = stride;
  return a;
}

static op_attention quantised(op_attention a, int bits, int group, int64_t start = 0, ops_dtype k = DT_F32,
                              ops_dtype v = DT_F32)
{
  a.quant = {bits, group, start, k, v};
  return a;
}

/* ---- one case on both sides ---- */

struct both_sides {
  int tokens = 0;
  size_t block_bytes = 0;
  int row_blocks = 0;
  std::vector<std::vector<uint8_t>> memory; /* of each block of each row on the host; empty: NULL */
  std::vector<void *> blocks;               /* [rows][row_blocks] */
  std::vector<ops_kv_view> views;
  std::vector<ops_row> rows;
  std::vector<float> q, k, v, out;
  std::vector<cuda_token> facts;
};

static bool block_seen(const test_case &c, const ops_row &row, int64_t block)
{
  for (int t = 0; t < row.count; t++) {
    ops_range range[VISIBLE_MOST];
    int n = ops_visible(c.op.window, c.op.keep, row.position + t, row.split, c.op.by_time ? ROW_READ : row.kind, range);
    for (int i = 0; i < n; i++)
      if (range[i].first < (block + 1) * KV_BLOCK && range[i].first + range[i].count > block * KV_BLOCK)
        return true;
  }
  return false;
}

static void append_on_host(const test_case &c, const op_kv_append &a, const ops_step &step)
{
  ops_context none = {};
  op_record record = {};
  record.kind = OP_kv_append;
  record.kv_append = a;
  (c.fast ? fast_kv_append : ref_kv_append)(&none, &record, &step);
}

static op_kv_append append_of(const test_case &c, const float *k, const float *v)
{
  op_kv_append a = {};
  a.k = k;
  a.v = v;
  a.kv_heads = c.op.kv_heads;
  a.key_dim = c.op.key_dim;
  a.value_dim = c.op.value_dim;
  a.quant = c.op.quant;
  return a;
}

static both_sides make_sides(const test_case &c)
{
  both_sides b;
  const op_attention &a = c.op;
  int64_t longest = 0;
  for (const test_row &r : c.rows)
    longest = std::max<int64_t>(longest, r.history + r.count);
  b.row_blocks = (int)cuda_ceil(longest, KV_BLOCK) + 1;
  b.blocks.assign(c.rows.size() * b.row_blocks, nullptr);
  b.memory.resize(b.blocks.size());
  b.views.resize(c.rows.size());
  for (size_t r = 0; r < c.rows.size(); r++) {
    ops_row row = {};
    row.first = b.tokens;
    row.count = c.rows[r].count;
    row.position = c.rows[r].history;
    row.kind = c.rows[r].kind;
    row.split = c.rows[r].split;
    b.views[r].blocks = b.blocks.data() + r * b.row_blocks;
    row.slots = &b.views[r];
    ops_kv_shape shape = {a.kv_heads, a.key_dim, a.value_dim, a.quant};
    bool packed = ops_quantised(&a.quant, &row);
    if (!packed)
      shape.quant.bits = 0;
    size_t bytes = c.fast ? fast_kv_block_bytes(&shape) : ref_kv_block_bytes(&shape);
    b.block_bytes = std::max(b.block_bytes, bytes);
    for (int64_t i = 0; i * KV_BLOCK < row.position + row.count; i++) {
      bool written = (i + 1) * KV_BLOCK > row.position; /* by this step */
      if (!written && !block_seen(c, row, i))
        continue;
      std::vector<uint8_t> &memory = b.memory[r * b.row_blocks + i];
      memory.assign(bytes, 0xff);
      b.blocks[r * b.row_blocks + i] = memory.data();
      /* History, a block at a time. */
      int64_t from = i * KV_BLOCK, n = std::min<int64_t>(KV_BLOCK, row.position - from);
      if (n <= 0)
        continue;
      std::vector<float> k = random_floats((size_t)n * a.kv_heads * a.key_dim, 2);
      std::vector<float> v = random_floats((size_t)n * a.kv_heads * a.value_dim, 1);
      op_kv_append append = append_of(c, k.data(), v.data());
      append.quant.start = packed ? 0 : INT64_MAX;
      ops_row piece = row;
      piece.first = 0;
      piece.count = (int)n;
      piece.position = from;
      ops_step step = {};
      step.tokens = (int)n;
      step.rows = 1;
      step.row = &piece;
      append_on_host(c, append, step);
    }
    for (int t = 0; t < row.count; t++)
      b.facts.push_back({row.position + t, row.split, row.position, (int)r, row.kind});
    b.tokens += row.count;
    b.rows.push_back(row);
  }
  b.q = random_floats((size_t)b.tokens * a.heads * a.key_dim, 3);
  b.k = random_floats((size_t)b.tokens * a.kv_heads * a.key_dim, 2);
  b.v = random_floats((size_t)b.tokens * a.kv_heads * a.value_dim, 1);
  b.out.assign((size_t)b.tokens * a.heads * a.value_dim, 0);
  return b;
}

/* Whether token t's outputs are compared: all, or the tokens at edges of a large case. */
static bool compared(const test_case &c, const both_sides &b, int t)
{
  return !c.large || t == 0 || t == b.tokens - 1 || t == b.tokens / 2 || t == b.tokens / 3 + 1;
}

static void attend_on_host(const test_case &c, both_sides &b, float *out)
{
  op_record record = {};
  record.kind = OP_attention;
  record.attention = c.op;
  record.attention.q = b.q.data();
  record.attention.out = out;
  std::vector<float> scratch((size_t)b.row_blocks * KV_BLOCK + 4096);
  ops_context cx = {};
  cx.scratch = scratch.data();
  cx.scratch_bytes = scratch.size() * sizeof(float);
  for (const ops_row &row : b.rows)
    for (int t = 0; t < row.count; t++) {
      if (!compared(c, b, row.first + t))
        continue;
      ops_row alone = row;
      alone.first += t;
      alone.count = 1;
      alone.position += t;
      ops_step step = {};
      step.tokens = b.tokens;
      step.rows = 1;
      step.row = &alone;
      record.attention.quant.start = ops_quantised(&c.op.quant, &row) ? 0 : INT64_MAX;
      (c.fast ? fast_attention : ref_attention)(&cx, &record, &step);
    }
}

static bool same_float(float x, float y)
{
  return f32_bits(x) == f32_bits(y) || (x != x && y != y);
}

/* Puts what the device got beside the host's; says where the first difference is. */
static bool compare(const test_case &c, const both_sides &b, const std::vector<float> &got, char *why, size_t room)
{
  size_t width = (size_t)c.op.heads * c.op.value_dim, wrong = 0;
  int odd_tokens = 0;
  why[0] = 0;
  for (int t = 0; t < b.tokens; t++) {
    size_t before = wrong;
    for (size_t i = 0; compared(c, b, t) && i < width; i++)
      if (!same_float(got[t * width + i], b.out[t * width + i]) && !wrong++)
        snprintf(why, room, "token %d (position %lld, row %d) head %d dim %d: %a, not %a", t,
                 (long long)b.facts[t].position, b.facts[t].row, (int)(i / c.op.value_dim), (int)(i % c.op.value_dim),
                 got[t * width + i], b.out[t * width + i]);
    odd_tokens += wrong != before;
  }
  size_t used = strlen(why);
  if (wrong)
    snprintf(why + used, room - used, "; %zu differ, of %d tokens", wrong, odd_tokens);
  return wrong == 0;
}

struct device_side {
  uint8_t *memory;
  std::vector<uint8_t *> blocks;
  cuda_step step;
  op_attention attention;
  op_kv_append append;
};

static device_side device_of(const test_case &c, const both_sides &b)
{
  device_side d = {};
  CHECK(cudaMalloc(&d.memory, b.block_bytes * b.blocks.size() + 16));
  for (size_t i = 0; i < b.blocks.size(); i++) {
    d.blocks.push_back(b.blocks[i] ? d.memory + i * b.block_bytes : nullptr);
    if (b.blocks[i])
      CHECK(cudaMemcpy(d.blocks[i], b.memory[i].data(), b.memory[i].size(), cudaMemcpyHostToDevice));
  }
  d.step.tokens = b.tokens;
  int64_t most = 0;
  for (const cuda_token &t : b.facts)
    most = std::max(most, t.position + 1);
  d.step.most_keys = cuda_ceil(most, 256) * 256;
  d.step.token = on_device(b.facts);
  d.step.blocks = (void *const *)on_device(d.blocks);
  d.step.rows = (int)c.rows.size();
  d.step.row_blocks = b.row_blocks;
  d.attention = c.op;
  d.attention.q = on_device(b.q);
  d.attention.out = on_device(b.out);
  d.append = append_of(c, on_device(b.k), on_device(b.v));
  return d;
}

static void release(const device_side &d, void *scratch)
{
  for (void *p : {(void *)d.step.token, (void *)d.step.blocks, (void *)d.attention.q, (void *)d.attention.out,
                  (void *)d.append.k, (void *)d.append.v, (void *)d.memory, scratch})
    CHECK(cudaFree(p));
}

static ops_room room_of(const test_case &c, const both_sides &b, const cuda_step &s)
{
  ops_room room = {};
  room.tokens = b.tokens;
  room.keys = s.most_keys;
  room.quantised = c.op.quant.bits != 0;
  room.dims = std::max(c.op.key_dim, c.op.value_dim);
  return room;
}

static bool run_case(const test_case &c)
{
  attention_random = 12345;
  both_sides b = make_sides(c);
  cuda_context cx = context_of(c.fast);
  cuda_attention_setup(&cx);
  device_side d = device_of(c, b);
  ops_room room = room_of(c, b, d.step);
  cx.scratch_bytes = c.scratch ? c.scratch : cuda_attention_scratch(&cx, &room, c.op.heads);
  CHECK(cudaMalloc(&cx.scratch, cx.scratch_bytes));
  CHECK(cudaMemset(cx.scratch, 0xff, cx.scratch_bytes));

  ops_step step = {};
  step.tokens = b.tokens;
  step.rows = (int)b.rows.size();
  step.row = b.rows.data();
  op_kv_append append = append_of(c, b.k.data(), b.v.data());
  append_on_host(c, append, step);
  cuda_kv_append(&cx, &d.append, &d.step);
  CHECK(cx.error);
  CHECK(cudaStreamSynchronize(cx.stream));
  char why[512] = "";
  for (size_t i = 0; i < b.blocks.size() && !why[0]; i++) {
    if (!b.blocks[i])
      continue;
    std::vector<uint8_t> got(b.memory[i].size());
    CHECK(cudaMemcpy(got.data(), d.blocks[i], got.size(), cudaMemcpyDeviceToHost));
    for (size_t n = 0; n < got.size() && !why[0]; n += 2)
      if (memcmp(&got[n], &b.memory[i][n], 2))
        snprintf(why, sizeof why, "append: row %zu block %zu byte %zu", i / b.row_blocks, i % b.row_blocks, n);
  }
  if (!why[0]) {
    attend_on_host(c, b, b.out.data());
    for (int again = 0; again < 2 && !why[0]; again++) { /* what scratch and outputs hold before must not matter */
      CHECK(cudaMemset(d.attention.out, 0xff, b.out.size() * sizeof(float)));
      CHECK(cudaMemset(cx.scratch, again ? 0x3e : 0xff, cx.scratch_bytes));
      CHECK(cudaDeviceSynchronize());
      (c.fast ? cuda_fast_attention : cuda_exact_attention)(&cx, &d.attention, &d.step);
      CHECK(cx.error);
      CHECK(cudaStreamSynchronize(cx.stream));
      std::vector<float> got(b.out.size());
      CHECK(cudaMemcpy(got.data(), d.attention.out, got.size() * sizeof(float), cudaMemcpyDeviceToHost));
      compare(c, b, got, why, sizeof why);
    }
  }
  printf("%s  %s %s%s%s\n", why[0] ? "FAILED" : "ok    ", c.fast ? "fast " : "exact", c.name, why[0] ? ": " : "", why);
  fflush(stdout);
  release(d, cx.scratch);
  CHECK(cudaStreamDestroy(cx.stream));
  return !why[0];
}

/* ---- rotating and appending at once ---- */

struct rope_case {
  const char *name;
  int dims;
  bool traditional;
  float mscale;
  int ntk_from;
};

static bool run_rope(const test_case &c, const rope_case &shape)
{
  attention_random = 99;
  both_sides b = make_sides(c);
  cuda_context cx = context_of(c.fast);
  device_side d = device_of(c, b);
  std::vector<float> inverse(shape.dims / 2), rates;
  for (int i = 0; i < shape.dims / 2; i++)
    inverse[i] = powf(10000.0f, -2.0f * i / shape.dims);
  op_record record = {};
  record.kind = OP_rope;
  op_rope &rope = record.rope;
  rope = {b.q.data(), b.k.data(),   c.op.heads,        c.op.kv_heads,  c.op.key_dim, shape.dims, inverse.data(),
          0.5f,       shape.mscale, shape.traditional, shape.ntk_from, 10000.0,      0.5,        DT_F32};
  ops_step step = {};
  step.tokens = b.tokens;
  step.rows = (int)b.rows.size();
  step.row = b.rows.data();
  for (int t = 0; t < b.tokens; t++)
    for (int heads : {c.op.heads, c.op.kv_heads}) {
      int64_t length = ref_length(&b.rows[b.facts[t].row], b.facts[t].position, heads);
      rates.push_back(ref_grown(&rope, length) ? ref_grown_rate(&rope, length) : NAN);
    }
  ref_rope(nullptr, &record, &step);
  append_on_host(c, append_of(c, b.k.data(), b.v.data()), step);
  op_rope there = rope;
  there.q = (float *)d.attention.q;
  there.k = (float *)d.append.k;
  there.inverse = on_device(inverse);
  float *rates_there = on_device(rates);
  cuda_rope_append(&cx, &there, &d.append, &d.step, shape.ntk_from ? rates_there : nullptr);
  CHECK(cx.error);
  CHECK(cudaStreamSynchronize(cx.stream));
  std::vector<float> q(b.q.size()), k(b.k.size());
  CHECK(cudaMemcpy(q.data(), there.q, q.size() * sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(k.data(), there.k, k.size() * sizeof(float), cudaMemcpyDeviceToHost));
  bool same_q = !memcmp(q.data(), b.q.data(), q.size() * sizeof(float));
  bool same_k = !memcmp(k.data(), b.k.data(), k.size() * sizeof(float)), same_blocks = true;
  for (size_t i = 0; i < b.blocks.size(); i++) {
    std::vector<uint8_t> got(b.memory[i].size());
    if (!b.blocks[i])
      continue;
    CHECK(cudaMemcpy(got.data(), d.blocks[i], got.size(), cudaMemcpyDeviceToHost));
    same_blocks = same_blocks && got == b.memory[i];
  }
  bool same = same_q && same_k && same_blocks && cuda_rope_append_fits(&there, &d.append);
  printf("%s  %s rope and append, %s%s%s%s\n", same ? "ok    " : "FAILED", c.fast ? "fast " : "exact", shape.name,
         same_q ? "" : ": queries differ", same_k ? "" : ": keys differ", same_blocks ? "" : ": blocks differ");
  CHECK(cudaFree((void *)there.inverse));
  CHECK(cudaFree(rates_there));
  release(d, nullptr);
  return same;
}

/* Rope, append and attention of rows of one token as one kernel: with the bits of the three, which other cases prove. */
static bool run_turn(const test_case &c, const rope_case &shape)
{
  attention_random = 7;
  both_sides b = make_sides(c);
  cuda_context cx = context_of(true);
  cuda_attention_setup(&cx);
  device_side d = device_of(c, b);
  ops_room room = room_of(c, b, d.step);
  cx.scratch_bytes = cuda_attention_scratch(&cx, &room, c.op.heads);
  CHECK(cudaMalloc(&cx.scratch, cx.scratch_bytes));
  std::vector<float> inverse(shape.dims / 2);
  for (int i = 0; i < shape.dims / 2; i++)
    inverse[i] = powf(10000.0f, -2.0f * i / shape.dims);
  op_rope rope = {(float *)d.attention.q, (float *)d.append.k, c.op.heads,   c.op.kv_heads,     c.op.key_dim, shape.dims,
                  on_device(inverse),     0.5f,                shape.mscale, shape.traditional, 0,            0,
                  0,                      DT_F32};
  std::vector<float> out[2];
  std::vector<std::vector<uint8_t>> blocks[2];
  auto keep = [&](int which) {
    CHECK(cx.error);
    CHECK(cudaStreamSynchronize(cx.stream));
    out[which].resize(b.out.size());
    CHECK(cudaMemcpy(out[which].data(), d.attention.out, b.out.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < b.blocks.size(); i++) {
      blocks[which].emplace_back(b.blocks[i] ? b.memory[i].size() : 0);
      if (b.blocks[i])
        CHECK(cudaMemcpy(blocks[which][i].data(), d.blocks[i], b.memory[i].size(), cudaMemcpyDeviceToHost));
    }
  };
  CHECK(cudaMemset(d.attention.out, 0xff, b.out.size() * sizeof(float)));
  bool fits = cuda_fast_rope_attention(&cx, &rope, &d.append, &d.attention, &d.step);
  keep(0); /* first: it leaves q and k as they are */
  for (size_t i = 0; i < b.blocks.size(); i++)
    if (b.blocks[i])
      CHECK(cudaMemcpy(d.blocks[i], b.memory[i].data(), b.memory[i].size(), cudaMemcpyHostToDevice));
  CHECK(cudaDeviceSynchronize());
  cuda_rope_append(&cx, &rope, &d.append, &d.step, nullptr);
  cuda_fast_attention(&cx, &d.attention, &d.step);
  keep(1);
  bool same_out = !memcmp(out[0].data(), out[1].data(), out[0].size() * sizeof(float));
  bool same = fits && same_out && blocks[0] == blocks[1];
  printf("%s  fast  rope, append and attention, %s, %s%s%s%s\n", same ? "ok    " : "FAILED", c.name, shape.name,
         fits ? "" : ": not taken", same_out ? "" : ": outputs differ", blocks[0] == blocks[1] ? "" : ": blocks differ");
  CHECK(cudaFree((void *)rope.inverse));
  release(d, cx.scratch);
  CHECK(cudaStreamDestroy(cx.stream));
  return same;
}

static void run_turns(int *passed, int *failed)
{
  static const int positions[] = {0, 1, 63, 64, 100, 255, 256, 700, 1023};
  static const struct {
    const char *name;
    op_attention op;
  } ops[] = {{"32 heads on 8", op_of(32, 8, 128, 128)},
             {"7 heads on 1", op_of(7, 1, 80, 80)},
             {"keys of 192, values of 128", op_of(4, 4, 192, 128)},
             {"dims 256", op_of(4, 2, 256, 256)},
             {"a ring", windowed(op_of(8, 2, 64, 64), 100, 4)},
             {"softcap", capped(op_of(16, 1, 64, 64), 20)}};
  for (const auto &o : ops)
    for (int position : positions)
      for (int kind = 0; kind < 3; kind++) {
        rope_case shapes[] = {{"all dims", o.op.key_dim, false, 1, 0},
                              {"half of them, in pairs", o.op.key_dim / 2, true, 1, 0},
                              {"half of them, times 1.25", o.op.key_dim / 2, false, 1.25f, 0}};
        test_case c = {o.name, true, o.op, {{ROW_STEP, position, 1, position / 2}}, false, 0};
        (run_turn(c, shapes[kind]) ? *passed : *failed)++;
        if (position)
          continue;
        c.name = "many rows";
        for (int n = 1; n < 40; n++)
          c.rows.push_back({ROW_STEP, n * n, 1, n});
        (run_turn(c, shapes[kind]) ? *passed : *failed)++;
      }
}

static void run_ropes(int *passed, int *failed)
{
  static const rope_case shapes[] = {{"all dims", 64, false, 1, 0},
                                     {"some dims, traditional", 24, true, 1, 0},
                                     {"some dims, mscale", 40, false, 1.19f, 0},
                                     {"a growing base", 64, false, 1, 100}};
  for (bool fast : {false, true})
    for (const rope_case &shape : shapes)
      for (int bits : {0, 4}) {
        test_case c = {shape.name,
                       fast,
                       op_of(6, 2, 64, 48),
                       {{ROW_STEP, 300, 1, 200}, {ROW_READ, 40, 60, 100}, {ROW_STEP, 5, 1, 5}},
                       false};
        if (bits)
          c.op = quantised(op_of(6, 2, 64, 32), bits, 32, 200);
        (run_rope(c, shape) ? *passed : *failed)++;
      }
}

/* ---- quantising a plain block ---- */

static bool run_quantise(bool fast, int bits, int group, int count, ops_dtype type)
{
  ops_kv_shape shape = {3, 128, 64, {bits, group, 0, type, type}}, plain = shape;
  plain.quant.bits = 0;
  size_t from = fast ? fast_kv_block_bytes(&plain) : ref_kv_block_bytes(&plain), to = ref_kv_block_bytes(&shape);
  std::vector<uint8_t> block(from), packed(to, 0xff), got(to);
  for (size_t i = 0; i < from / (fast ? 2 : 4); i++) {
    float x = random_float(2);
    uint16_t half = fast_half(x);
    memcpy(&block[i * (fast ? 2 : 4)], fast ? (void *)&half : (void *)&x, fast ? 2 : 4);
  }
  std::vector<float> scratch(4096);
  ops_context host = {};
  host.scratch = scratch.data();
  uint8_t *in = on_device(block), *out = on_device(packed);
  (fast ? fast_kv_quantise : ref_kv_quantise)(&host, &shape, block.data(), packed.data(), count);
  cuda_context cx = context_of(fast);
  cuda_kv_quantise(&cx, &shape, in, out, count);
  CHECK(cx.error);
  CHECK(cudaStreamSynchronize(cx.stream));
  CHECK(cudaMemcpy(got.data(), out, to, cudaMemcpyDeviceToHost));
  bool same = got == packed && cuda_kv_block_bytes(fast, &shape) == to && cuda_kv_block_bytes(fast, &plain) == from;
  size_t at = 0;
  while (at < to && got[at] == packed[at])
    at++;
  printf("%s  %s quantise %d bits, groups of %d, %d positions", same ? "ok    " : "FAILED", fast ? "fast " : "exact",
         bits, group, count);
  if (!same)
    printf(": byte %zu of %zu", at, to);
  printf("\n");
  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
  return same;
}

/* ---- the table ---- */

static std::vector<test_case> all_cases(bool large)
{
  std::vector<test_case> cases;
  op_attention llama = op_of(32, 8, 128, 128), tiny = op_of(4, 2, 16, 16);
  std::vector<test_row> first = {{ROW_READ, 0, 37, 37}}, one = {{ROW_STEP, 100, 1, 100}};
  std::vector<test_row> mixed = {{ROW_STEP, 300, 1, 200},  {ROW_READ, 0, 37, 37},  {ROW_STEP, 0, 1, 0},
                                 {ROW_READ, 130, 50, 180}, {ROW_STEP, 63, 1, 20},  {ROW_STEP, 255, 1, 255},
                                 {ROW_STEP, 256, 1, 255},  {ROW_READ, 600, 3, 603}};
  std::vector<test_row> few = {{ROW_STEP, 300, 1, 200}, {ROW_STEP, 0, 1, 0},     {ROW_READ, 130, 7, 180},
                               {ROW_STEP, 255, 1, 255}, {ROW_STEP, 256, 2, 255}, {ROW_STEP, 1000, 1, 30}};
  for (bool fast : {false, true}) {
    auto add = [&](const char *name, op_attention a, std::vector<test_row> rows, bool big = false, size_t scratch = 0) {
      cases.push_back({name, fast, a, rows, big, scratch});
      if (rows.size() == mixed.size() && rows[0].history == mixed[0].history) /* few tokens may have other kernels */
        cases.push_back({name, fast, a, few, big, scratch});
    };
    add("tiny, prompt", tiny, first);
    add("tiny, step", tiny, one);
    add("tiny, mixed", tiny, mixed);
    add("tiny, mixed, little scratch", tiny, mixed, false, 200000);
    add("dims 8, 6 heads on 2", op_of(6, 2, 8, 8), mixed);
    add("dims 80, 7 heads on 1", op_of(7, 1, 80, 80), mixed);
    add("dims 64, 14 heads on 2", op_of(14, 2, 64, 64), mixed);
    add("dims 64, 4 heads on 4", op_of(4, 4, 64, 64), mixed);
    add("dims 96, 9 heads on 1", op_of(9, 1, 96, 96), mixed);
    add("dims 256, 4 heads on 2", op_of(4, 2, 256, 256), mixed);
    add("keys of 192, values of 128", op_of(4, 4, 192, 128), mixed);
    add("keys of 13, values of 5", op_of(3, 1, 13, 5), mixed);
    add("keys of 40, values of 24", op_of(16, 2, 40, 24), mixed);
    add("128 dims, mixed", op_of(8, 2, 128, 128), mixed);
    add("softcap", capped(op_of(8, 2, 64, 64), 20), mixed);
    add("window 100", windowed(tiny, 100, 0), mixed);
    add("window 100, keep 4", windowed(tiny, 100, 4), mixed);
    add("window 100, keep 70", windowed(tiny, 100, 70), mixed);
    add("window 256, keep 4, by time", windowed(tiny, 256, 4, true), mixed);
    add("window 128 of 128 dims", windowed(op_of(8, 2, 128, 128), 128, 0), mixed);
    add("window 300, keep 4, 128 dims, softcap", capped(windowed(op_of(8, 2, 128, 128), 300, 4), 30), mixed);
    add("block-sparse", sparse(op_of(8, 2, 64, 64), 16, 3, 4), mixed);
    add("block-sparse in a window", sparse(windowed(op_of(4, 2, 16, 16), 200, 0), 16, 2, 3), mixed);
    for (int bits : {2, 3, 4, 5, 6, 8})
      add("quantised", quantised(op_of(4, 2, 64, 64), bits, 32), mixed);
    add("quantised from 200 on, bf16 scales", quantised(op_of(8, 2, 128, 64), 4, 64, 200, DT_BF16, DT_F16), mixed);
    add("quantised 8 bits, window, softcap", capped(windowed(quantised(op_of(4, 2, 64, 64), 8, 64), 100, 4), 30),
        mixed);
    add("llama, prompt of 100", llama, {{ROW_READ, 0, 100, 100}}, true);
    add("llama, 16 at 1000", llama, {{ROW_READ, 1000, 16, 1016}}, true);
    add("llama, step at 0", llama, {{ROW_STEP, 0, 1, 0}});
    add("llama, step at 700", llama, {{ROW_STEP, 700, 1, 500}});
    if (!large)
      continue;
    std::vector<test_row> batch, crowd;
    for (int i = 0; i < 8; i++)
      batch.push_back({ROW_STEP, 1 + 257 * i, 1, 1});
    for (int i = 0; i < 40; i++)
      crowd.push_back({ROW_STEP, 50 + 11 * i, 1, 1});
    crowd.push_back({ROW_READ, 20, 70, 90});
    add("llama, batch of 8", llama, batch, true);
    add("llama, 40 steps and a prompt", llama, crowd, true);
    add("llama, step at 8191", llama, {{ROW_STEP, 8191, 1, 8000}});
    add("llama, 700 at 300", llama, {{ROW_READ, 300, 700, 1000}}, true);
    add("llama, ring of 4096 at 9000", windowed(llama, 4096, 4), {{ROW_STEP, 9000, 1, 5000}});
    add("llama, window of 512, prompt of 1200", windowed(llama, 512, 0), {{ROW_READ, 0, 1200, 1200}}, true);
    add("71 heads on 1", op_of(71, 1, 64, 64), {{ROW_READ, 0, 80, 80}, {ROW_STEP, 400, 1, 80}}, true);
  }
  return cases;
}

int main(int argc, char **argv)
{
  bool large = true;
  for (int i = 1; i < argc; i++) {
    large = large && strcmp(argv[i], "--small");
    overlap = overlap || !strcmp(argv[i], "--overlap");
  }
  int passed = 0, failed = 0;
  for (bool fast : {false, true})
    for (int bits : {2, 3, 4, 5, 6, 8})
      for (int count : {64, 37})
        (run_quantise(fast, bits, 32, count, count == 64 ? DT_F32 : DT_BF16) ? passed : failed)++;
  run_ropes(&passed, &failed);
  run_turns(&passed, &failed);
  for (const test_case &c : all_cases(large))
    (run_case(c) ? passed : failed)++;
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
