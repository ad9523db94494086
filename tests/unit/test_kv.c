/* test_kv.c - state slots: sharing, copying on write, recycling of rings, and what can be resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "cache/kv.h"
#include "ops/visible.h"

static ops_context cx;
static kv_store *store;
static kv_seq *one, *two;

static int set_up(void **state)
{
  (void)state;
  static const kv_slot slots[] = {
      {.kv_heads = 1, .key_dim = 2, .value_dim = 2},
      {.kv_heads = 1, .key_dim = 2, .value_dim = 2, .window = 100},
      {.kv_heads = 1, .key_dim = 2, .value_dim = 2, .window = 100, .keep = 4},
  };
  cx = (ops_context){.backend = ops_ref()};
  if (kv_store_open(&cx, slots, 3, &store, NULL) || kv_seq_open(store, &one, NULL) || kv_seq_open(store, &two, NULL))
    return -1;
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  kv_seq_close(one);
  kv_seq_close(two);
  kv_store_close(store);
  return 0;
}

/* Writes a mark for each position into each slot's blocks. */
static void write_positions(kv_seq *seq, int64_t first, int count, float mark)
{
  tern_error err = {0};
  if (kv_seq_prepare(seq, first, count, &err) != TERN_OK)
    fail_msg("%s", err.text);
  for (int slot = 0; slot < 3; slot++)
    for (int64_t p = first; p < first + count; p++)
      ((float *)kv_seq_views(seq)[slot].blocks[p / KV_BLOCK])[p % KV_BLOCK] = mark + (float)p;
}

static float value_at(const kv_seq *seq, int slot, int64_t p)
{
  return ((const float *)kv_seq_views(seq)[slot].blocks[p / KV_BLOCK])[p % KV_BLOCK];
}

static void reserve(kv_seq *seq, int64_t from, int64_t to)
{
  assert_int_equal(kv_seq_reserve(seq, from, to, 50, NULL), TERN_OK);
}

static void steps_take_only_what_was_reserved(void **state)
{
  (void)state;
  tern_error err;
  assert_int_equal(kv_seq_prepare(one, 0, 1, &err), TERN_E_INTERNAL);
  reserve(one, 0, 1000);
  mem_forbid(true);
  for (int64_t p = 0; p < 1000; p += 50)
    write_positions(one, p, 50, 0);
  mem_forbid(false);
  assert_int_equal(kv_seq_prepare(one, 1000, 100, &err), TERN_E_INTERNAL);
}

static void rings_let_go_of_what_nobody_sees(void **state)
{
  (void)state;
  reserve(one, 0, 1000);
  for (int64_t p = 0; p < 1000; p += 50)
    write_positions(one, p, 50, 0);
  const ops_kv_view *views = kv_seq_views(one);
  for (int64_t p = 0; p < 1000; p++)
    assert_true(value_at(one, 0, p) == (float)p);
  assert_null(views[1].blocks[0]);
  assert_null(views[1].blocks[11]); /* position 950 sees 851 on, and the slack begins at 819 */
  assert_non_null(views[1].blocks[12]);
  assert_non_null(views[2].blocks[0]);
  assert_null(views[2].blocks[1]);
  for (int64_t p = 900; p < 1000; p++)
    assert_true(value_at(one, 1, p) == (float)p);
  assert_true(kv_seq_can_resume(one, 1000));
  assert_true(kv_seq_can_resume(one, 950));
  assert_true(kv_seq_can_resume(one, 950 - KV_SLACK));
  assert_false(kv_seq_can_resume(one, 866));
  assert_true(kv_seq_can_resume(one, 0));
  assert_false(kv_seq_can_resume(one, 1001 + KV_BLOCK));
}

static void clones_share_until_one_writes(void **state)
{
  (void)state;
  reserve(one, 0, 300);
  for (int64_t p = 0; p < 100; p += 50)
    write_positions(one, p, 50, 0);
  assert_int_equal(kv_seq_clone(two, one, NULL), TERN_OK);
  assert_ptr_equal(kv_seq_views(one)[0].blocks[0], kv_seq_views(two)[0].blocks[0]);
  reserve(one, 100, 300);
  reserve(two, 100, 300);
  write_positions(one, 100, 30, 1000);
  write_positions(two, 100, 30, 5000);
  assert_ptr_equal(kv_seq_views(one)[0].blocks[0], kv_seq_views(two)[0].blocks[0]);
  for (int slot = 0; slot < 3; slot++) {
    for (int64_t p = 31; p < 100; p++) {
      assert_true(value_at(one, slot, p) == (float)p);
      assert_true(value_at(two, slot, p) == (float)p);
    }
    assert_true(value_at(one, slot, 120) == 1120);
    assert_true(value_at(two, slot, 120) == 5120);
  }
  kv_seq_truncate(one, 0);
  assert_true(value_at(two, 0, 50) == 50);
}

static void promises_are_kept_apart(void **state)
{
  (void)state;
  reserve(one, 0, 500);
  reserve(two, 0, 500);
  mem_forbid(true);
  for (int64_t p = 0; p < 500; p += 50) {
    write_positions(one, p, 50, 0);
    write_positions(two, p, 50, 0);
  }
  mem_forbid(false);
}

static void truncated_blocks_come_back(void **state)
{
  (void)state;
  reserve(one, 0, 640);
  size_t bytes = kv_store_bytes(store);
  for (int round = 0; round < 5; round++) {
    for (int64_t p = 0; p < 640; p += 40)
      write_positions(one, p, 40, (float)round);
    kv_seq_truncate(one, 0);
    reserve(one, 0, 640);
    assert_int_equal(kv_store_bytes(store), bytes);
  }
  assert_true(bytes <= kv_store_estimate(store, 640, 50));
}

/* Verification: write ahead, take it back, again and again within one reserve. */
static void scratch_positions_come_back(void **state)
{
  (void)state;
  reserve(one, 0, 400);
  for (int64_t p = 0; p < 250; p += 50)
    write_positions(one, p, 50, 0);
  for (int round = 0; round < 50; round++) {
    write_positions(one, 250, 40, (float)round);
    kv_seq_truncate(one, 250);
    assert_true(value_at(one, 0, 249) == 249);
  }
}

static void failing_allocations_leave_the_sequence(void **state)
{
  (void)state;
  reserve(one, 0, 100);
  write_positions(one, 0, 50, 0);
  for (int64_t n = 0;; n++) {
    mem_fail_after(n);
    tern_status status = kv_seq_reserve(one, 50, 2000, 50, NULL);
    mem_fail_after(-1);
    if (status == TERN_OK)
      break;
    assert_int_equal(status, TERN_E_NOMEM);
    assert_true(value_at(one, 0, 49) == 49);
  }
}

/* ---- quantised slots ---- */

static const kv_slot late = {
    .kv_heads = 1, .key_dim = 32, .value_dim = 32, .quant = {.bits = 8, .group = 32, .start = 100}};

static void open_late(kv_store **s, kv_seq **seqs)
{
  static ops_context quiet;
  quiet = (ops_context){.backend = ops_ref()};
  assert_int_equal(kv_store_open(&quiet, &late, 1, s, NULL), TERN_OK);
  for (int i = 0; i < 2; i++)
    assert_int_equal(kv_seq_open(*s, &seqs[i], NULL), TERN_OK);
}

static void close_late(kv_store *s, kv_seq **seqs)
{
  kv_seq_close(seqs[0]);
  kv_seq_close(seqs[1]);
  kv_store_close(s);
}

/* Many blocks at once are one allocation; if it, or one of what goes with it, fails, what is there stays usable. */
static void many_blocks_come_together(void **state)
{
  (void)state;
  ops_context own = {.backend = ops_ref()};
  const kv_slot slot = {.kv_heads = 8, .key_dim = 64, .value_dim = 64};
  const size_t bytes = (size_t)KV_BLOCK * 8 * 128 * sizeof(float);
  int failures = 0;
  for (int n = 0; n < 60; n++) {
    kv_store *s;
    kv_seq *seq;
    assert_int_equal(kv_store_open(&own, &slot, 1, &s, NULL), TERN_OK);
    assert_int_equal(kv_seq_open(s, &seq, NULL), TERN_OK);
    assert_int_equal(kv_seq_reserve(seq, 0, 64, 64, NULL), TERN_OK);
    mem_fail_after(n);
    tern_status status = kv_seq_reserve(seq, 0, 40 * KV_BLOCK, 64, NULL);
    mem_fail_after(-1);
    failures += status != TERN_OK;
    assert_int_equal(kv_seq_reserve(seq, 0, 40 * KV_BLOCK, 64, NULL), TERN_OK);
    assert_int_equal(kv_store_bytes(s), 41 * bytes);
    assert_int_equal(kv_seq_prepare(seq, 0, 40 * KV_BLOCK, NULL), TERN_OK);
    for (int i = 0; i < 40; i++)
      memset(kv_seq_views(seq)[0].blocks[i], i, bytes);
    for (int i = 0; i < 40; i++)
      assert_int_equal(((uint8_t *)kv_seq_views(seq)[0].blocks[i])[bytes - 1], i);
    kv_seq_close(seq);
    kv_store_close(s);
  }
  assert_in_range(failures, 30, 59);
}

static void starts_quantise_and_give_memory_back(void **state)
{
  (void)state;
  kv_store *s;
  kv_seq *seqs[2];
  tern_error err;
  open_late(&s, seqs);
  assert_int_equal(kv_seq_reserve(seqs[0], 0, 300, 50, NULL), TERN_OK);
  size_t most = kv_store_bytes(s), plain = (size_t)KV_BLOCK * 64 * sizeof(float), packed = (size_t)KV_BLOCK * (64 + 16);
  assert_int_equal(most, 3 * plain + 6 * packed);
  assert_true(most <= kv_store_estimate(s, 300, 50));
  assert_int_equal(kv_store_token_bytes(s), packed / KV_BLOCK);
  mem_forbid(true);
  assert_int_equal(kv_seq_prepare(seqs[0], 0, 100, &err), TERN_OK);
  float *first = kv_seq_views(seqs[0])[0].blocks[0];
  memset(first, 0, plain);
  memset(kv_seq_views(seqs[0])[0].blocks[1], 0, plain);
  assert_int_equal(kv_store_bytes(s), most);
  assert_int_equal(kv_seq_prepare(seqs[0], 100, 50, &err), TERN_OK);
  mem_forbid(false);
  assert_int_equal(kv_store_bytes(s), 6 * packed);
  assert_true(kv_seq_can_resume(seqs[0], 100));
  assert_true(kv_seq_can_resume(seqs[0], 0));
  assert_false(kv_seq_can_resume(seqs[0], 99));
  kv_seq_truncate(seqs[0], 120);
  assert_true(kv_seq_can_resume(seqs[0], 110));
  kv_seq_truncate(seqs[0], 50);
  assert_null(kv_seq_views(seqs[0])[0].blocks[0]);
  assert_int_equal(kv_seq_reserve(seqs[0], 0, 90, 50, NULL), TERN_OK);
  assert_int_equal(kv_seq_prepare(seqs[0], 0, 90, &err), TERN_OK);
  close_late(s, seqs);
}

static void steps_across_a_start_are_refused(void **state)
{
  (void)state;
  kv_store *s;
  kv_seq *seqs[2];
  tern_error err;
  open_late(&s, seqs);
  assert_int_equal(kv_seq_reserve(seqs[0], 0, 300, 50, NULL), TERN_OK);
  assert_int_equal(kv_seq_prepare(seqs[0], 0, 90, &err), TERN_OK);
  assert_int_equal(kv_seq_prepare(seqs[0], 90, 20, &err), TERN_E_INTERNAL);
  assert_int_equal(kv_seq_reserve(seqs[0], 90, 100, 50, NULL), TERN_OK); /* nothing promised past the start */
  assert_int_equal(kv_seq_prepare(seqs[0], 90, 10, &err), TERN_OK);
  assert_int_equal(kv_seq_prepare(seqs[0], 100, 1, &err), TERN_E_INTERNAL);
  close_late(s, seqs);
}

/* A clone keeps its plain rows when the other passes the start. */
static void clones_pass_the_start_alone(void **state)
{
  (void)state;
  kv_store *s;
  kv_seq *seqs[2];
  tern_error err;
  open_late(&s, seqs);
  assert_int_equal(kv_seq_reserve(seqs[0], 0, 300, 50, NULL), TERN_OK);
  assert_int_equal(kv_seq_prepare(seqs[0], 0, 100, &err), TERN_OK);
  float *shared = kv_seq_views(seqs[0])[0].blocks[0];
  memset(shared, 0, (size_t)KV_BLOCK * 64 * sizeof(float));
  memset(kv_seq_views(seqs[0])[0].blocks[1], 0, (size_t)KV_BLOCK * 64 * sizeof(float));
  shared[5] = 7;
  assert_int_equal(kv_seq_clone(seqs[1], seqs[0], NULL), TERN_OK);
  assert_int_equal(kv_seq_prepare(seqs[0], 100, 1, &err), TERN_OK);
  assert_ptr_not_equal(kv_seq_views(seqs[0])[0].blocks[0], shared);
  assert_ptr_equal(kv_seq_views(seqs[1])[0].blocks[0], shared);
  assert_true(shared[5] == 7);
  assert_true(kv_seq_can_resume(seqs[1], 50));
  assert_int_equal(kv_seq_clone(seqs[1], seqs[0], NULL), TERN_OK);
  assert_false(kv_seq_can_resume(seqs[1], 50));
  close_late(s, seqs);
}

/* ---- the order of keys ---- */

/* A ring as the reference keeps one: prompt in one piece, then one token at a time written in place. */
static int ring_order(int window, int keep, int split, int position, int out[])
{
  int n = 0, held[512], at = 0;
  for (int p = 0; p < split; p++)
    held[n++] = p;
  if (position < split)
    return -1;
  if (n > window) { /* the first one-token update trims: kept head, then the newest */
    int cut = n - window;
    memmove(held + keep, held + keep + cut, (size_t)(n - keep - cut) * sizeof *held);
    n = window;
  }
  at = n;
  for (int p = split; p <= position; p++) {
    if (n < window && at == n) {
      held[n++] = p;
      at = n;
      continue;
    }
    if (at == window)
      at = keep;
    held[at++] = p;
  }
  memcpy(out, held, (size_t)n * sizeof *held);
  return n;
}

static void steps_see_keys_in_ring_order(void **state)
{
  (void)state;
  for (int window = 5; window < 18; window++) {
    for (int keep = 0; keep <= 4; keep += 4) {
      for (int split = 0; split < 40; split++) {
        for (int position = split; position < split + 40; position++) {
          int want[512], n = ring_order(window, keep, split, position, want), got = 0;
          ops_range ranges[VISIBLE_MOST];
          int count = ops_visible(window, keep, position, split, ROW_STEP, ranges);
          for (int r = 0; r < count; r++)
            for (int64_t i = 0; i < ranges[r].count; i++, got++)
              assert_int_equal(ranges[r].first + i, want[got]);
          assert_int_equal(got, n);
        }
      }
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(steps_take_only_what_was_reserved, set_up, tear_down),
      cmocka_unit_test_setup_teardown(rings_let_go_of_what_nobody_sees, set_up, tear_down),
      cmocka_unit_test_setup_teardown(clones_share_until_one_writes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(promises_are_kept_apart, set_up, tear_down),
      cmocka_unit_test_setup_teardown(truncated_blocks_come_back, set_up, tear_down),
      cmocka_unit_test_setup_teardown(scratch_positions_come_back, set_up, tear_down),
      cmocka_unit_test_setup_teardown(failing_allocations_leave_the_sequence, set_up, tear_down),
      cmocka_unit_test(many_blocks_come_together),
      cmocka_unit_test(starts_quantise_and_give_memory_back),
      cmocka_unit_test(steps_across_a_start_are_refused),
      cmocka_unit_test(clones_pass_the_start_alone),
      cmocka_unit_test(steps_see_keys_in_ring_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
