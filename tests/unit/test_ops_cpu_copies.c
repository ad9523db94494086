/* Proves that the cpu backend's embed, select and regroup give what the reference gives, for every format of a table,
 * tokens that come as embeddings, positions with a table of their own, and any number of threads. */
#include "test_ops_cpu_trial.h"

enum { IDS = 50, WIDTH = 128, TOKENS = 300 };

static const ops_row rows[] = {{.first = 0, .count = 1, .position = 7},
                               {.first = 1, .count = 200, .position = 0},
                               {.first = 201, .count = 99, .position = 60}};

static void test_embed(void **state)
{
  static const struct {
    ops_quant quant;
    int bits, group;
    ops_dtype stored;
  } formats[] = {{Q_NONE, 0, 0, DT_F32},     {Q_NONE, 0, 0, DT_BF16},   {Q_NONE, 0, 0, DT_F16},
                 {Q_AFFINE, 4, 64, DT_BF16}, {Q_AFFINE, 3, 32, DT_F16}, {Q_AFFINE, 8, 128, DT_F32},
                 {Q_MXFP4, 4, 32, DT_F32},   {Q_MXFP8, 8, 32, DT_F32},  {Q_NVFP4, 4, 16, DT_F32}};
  uint64_t seed = 1;
  uint8_t *bytes = (uint8_t *)random_floats(&seed, (size_t)IDS * WIDTH * 3, 1);
  float *position_table = random_floats(&seed, (size_t)(TOKENS * WIDTH), 1);
  float *embeds = random_floats(&seed, (size_t)(TOKENS * WIDTH), 1);
  int32_t ids[TOKENS];
  uint8_t use[TOKENS];
  for (int i = 0; i < TOKENS; i++) {
    ids[i] = (int32_t)(next_random(&seed) % IDS);
    use[i] = next_random(&seed) % 5 == 0;
  }
  const ops_weight positions = {
      .quant = Q_NONE, .stored = DT_F32, .n = TOKENS, .k = WIDTH, .data = (const uint8_t *)position_table};
  for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
    for (int how = 0; how < 8; how++) {
      trial t = open_trial(&seed, "embed", (size_t)(TOKENS * WIDTH), 1, 0);
      ops_weight table = {.quant = formats[f].quant, .bits = formats[f].bits, .group = formats[f].group};
      table.stored = formats[f].stored;
      table.n = IDS;
      table.k = WIDTH;
      table.data = bytes;
      table.scales = bytes + (size_t)IDS * WIDTH * 4;
      table.biases = bytes + (size_t)IDS * WIDTH * 8;
      op_record r = {.kind = OP_embed, .embed = {.out = t.y, .table = &table, .scale = how & 1 ? 8.5f : 1}};
      r.embed.positions = how & 2 ? &positions : NULL;
      ops_step step = {.tokens = TOKENS, .ids = ids, .rows = 3, .row = rows};
      step.embeds = how & 4 ? embeds : NULL;
      step.use = how & 4 ? use : NULL;
      compare(*state, &r, &step, &t);
      close_trial(&t);
    }
  free(bytes);
  free(position_table);
  free(embeds);
}

static void test_select(void **state)
{
  static const int widths[] = {1, 67, 1000}, wanted[] = {0, 1, 3, 100};
  uint64_t seed = 2;
  for (int w = 0; w < 3; w++)
    for (int n = 0; n < 4; n++) {
      int32_t want[100];
      for (int i = 0; i < 100; i++)
        want[i] = i * 3;
      trial t = open_trial(&seed, "select", (size_t)(100 * widths[w]), 1, 0);
      float *x = random_floats(&seed, (size_t)(TOKENS * widths[w]), 1);
      op_record r = {.kind = OP_select, .select = {.x = x, .y = t.y, .width = widths[w]}};
      ops_step step = {.tokens = TOKENS, .wanted = wanted[n], .want = want};
      compare(*state, &r, &step, &t);
      free(x);
      close_trial(&t);
    }
}

static void test_regroup(void **state)
{
  static const int widths[] = {1, 33, 128};
  static const int32_t from[] = {5, 0, 3, 3, 6};
  uint64_t seed = 3;
  for (int w = 0; w < 3; w++)
    for (int wanted = 0; wanted < 2; wanted++) {
      trial t = open_trial(&seed, "regroup", (size_t)(TOKENS * 5 * widths[w]), 1, 0);
      float *x = random_floats(&seed, (size_t)(TOKENS * 7 * widths[w]), 1);
      op_record r = {.kind = OP_regroup, .wanted = wanted, .regroup = {.x = x, .y = t.y, .from = from, .n = 5}};
      r.regroup.width = widths[w];
      r.regroup.x_width = 7 * widths[w];
      ops_step step = {.tokens = TOKENS, .wanted = 11};
      compare(*state, &r, &step, &t);
      free(x);
      close_trial(&t);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_embed),
      cmocka_unit_test(test_select),
      cmocka_unit_test(test_regroup),
  };
  return cmocka_run_group_tests(tests, open_bench, close_bench);
}
