/* test_import.c - the import as a whole on a tiny model: what appears, what is refused, and that a failure of any kind
 * (allocation, disk, interruption, bad input) leaves nothing behind. Values are checked against independent code by
 * tests/convert. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/mem.h"
#include "convert/ggml_blocks.h"
#include "convert/import.h"
#include "convert/outdir.h"
#include "gguf_build.h"

static char folder[] = "/tmp/tern-import-XXXXXX";
static char file[64], out[64];

static int setup(void **state)
{
  (void)state;
  if (!mkdtemp(folder))
    return -1;
  snprintf(file, sizeof file, "%s/m.gguf", folder);
  snprintf(out, sizeof out, "%s/model", folder);
  return 0;
}

static size_t entries(const char *path)
{
  DIR *d = opendir(path);
  size_t n = 0;
  if (!d)
    return 0;
  while (readdir(d))
    n++;
  closedir(d);
  return n - 2;
}

static void remove_out(void)
{
  DIR *d = opendir(out);
  if (!d)
    return;
  for (const struct dirent *e; (e = readdir(d));)
    unlinkat(dirfd(d), e->d_name, 0);
  closedir(d);
  rmdir(out);
}

static int teardown(void **state)
{
  (void)state;
  remove_out();
  unlink(file);
  return rmdir(folder);
}

enum { WIDTH = 64, VOCAB = 260 };

/* One layer of llama, two heads of 32, over a byte-level vocabulary of the bytes' letters and one merge. */
static void build_model(gb *g, uint32_t q_type, size_t q_bytes, char fill)
{
  static char letters[256][4];
  static const char *tokens[VOCAB];
  static int32_t types[VOCAB];
  for (unsigned i = 0, other = 256; i < 256; i++) { /* GPT-2's byte alphabet, in byte order */
    bool printable = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
    uint32_t c = printable ? i : other++;
    size_t n = c < 128 ? 1 : 2;
    if (n == 1) {
      letters[i][0] = (char)c;
    } else {
      letters[i][0] = (char)(0xc0 | c >> 6);
      letters[i][1] = (char)(0x80 | (c & 63));
    }
    letters[i][n] = '\0';
    tokens[i] = letters[i];
    types[i] = 1;
  }
  tokens[256] = "th";
  types[256] = 1;
  tokens[257] = "<|im_end|>";
  types[257] = 3;
  tokens[258] = "<user>";
  types[258] = 4;
  tokens[259] = "[PAD259]";
  types[259] = 5;
  static const char *const merges[] = {"t h"};
  gb_put_string(g, "general.architecture", "llama");
  gb_put_u32(g, "llama.block_count", 1);
  gb_put_u32(g, "llama.context_length", 128);
  gb_put_u32(g, "llama.embedding_length", WIDTH);
  gb_put_u32(g, "llama.feed_forward_length", 96);
  gb_put_u32(g, "llama.attention.head_count", 2);
  gb_put_u32(g, "llama.attention.head_count_kv", 1);
  gb_put_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  gb_put_string(g, "tokenizer.ggml.model", "gpt2");
  gb_put_string(g, "tokenizer.ggml.pre", "gpt-2");
  gb_put_strings(g, "tokenizer.ggml.tokens", tokens, VOCAB);
  gb_put_i32s(g, "tokenizer.ggml.token_type", types, VOCAB);
  gb_put_strings(g, "tokenizer.ggml.merges", merges, 1);
  gb_put_u32(g, "tokenizer.ggml.eos_token_id", 257);
  gb_ones(g, "token_embd.weight", WIDTH, VOCAB);
  gb_ones(g, "output_norm.weight", WIDTH, 0);
  gb_ones(g, "blk.0.attn_norm.weight", WIDTH, 0);
  gb_ones(g, "blk.0.ffn_norm.weight", WIDTH, 0);
  gb_tensor(g, "blk.0.attn_q.weight", WIDTH, 64, q_type, q_bytes, fill);
  gb_ones(g, "blk.0.attn_k.weight", WIDTH, 32);
  gb_ones(g, "blk.0.attn_v.weight", WIDTH, 32);
  gb_ones(g, "blk.0.attn_output.weight", 64, WIDTH);
  gb_ones(g, "blk.0.ffn_gate.weight", WIDTH, 96);
  gb_ones(g, "blk.0.ffn_up.weight", WIDTH, 96);
}

/* ... and the last tensor, which cases leave out or replace. */
static void finish_model(gb *g, buf *bytes)
{
  gb_ones(g, "blk.0.ffn_down.weight", 96, WIDTH);
  gb_finish(g, 3, bytes);
  gb_save(file, bytes, bytes->length);
}

static void good_model(void)
{
  gb g = {0};
  buf bytes = {0};
  build_model(&g, GGML_Q4_0, 64 * 2 * 18, 0x11);
  finish_model(&g, &bytes);
  buf_free(&bytes);
}

static void expect_nothing_left(void)
{
  assert_int_equal(entries(folder), 1); /* the GGUF */
}

static void whole_directory_appears(void **state)
{
  (void)state;
  good_model();
  import_report r = {0};
  tern_error err = {0};
  assert_int_equal(import_gguf(file, out, &r, &err), TERN_OK);
  assert_int_equal(entries(out), 5);
  assert_int_equal(entries(folder), 2);
  assert_string_equal(r.model_type, "llama");
  assert_string_equal(r.dtype, "float16");
  assert_int_equal(r.tensors_in, 11);
  assert_int_equal(r.tensors_out, 13);
  assert_int_equal(r.n_kinds, 2);
  /* A directory with something in it stays as it is. */
  assert_int_equal(import_gguf(file, out, &r, &err), TERN_E_IO);
  assert_non_null(strstr(err.text, out));
  assert_int_equal(entries(out), 5);
  assert_int_equal(entries(folder), 2);
  remove_out();
  /* An empty one is filled; a trailing slash changes nothing. */
  char slash[80];
  snprintf(slash, sizeof slash, "%s/", out);
  assert_int_equal(mkdir(out, 0700), 0);
  assert_int_equal(import_gguf(file, slash, NULL, &err), TERN_OK);
  assert_int_equal(entries(out), 5);
  remove_out();
}

static void every_failed_allocation_leaves_nothing(void **state)
{
  (void)state;
  good_model();
  tern_status status = TERN_E_NOMEM;
  for (int n = 0; status != TERN_OK; n++) {
    tern_error err = {0};
    mem_fail_after(n);
    status = import_gguf(file, out, NULL, &err);
    mem_fail_after(-1);
    assert_true(status == TERN_OK || status == TERN_E_NOMEM);
    if (status != TERN_OK)
      expect_nothing_left();
    assert_true(n < 5000);
  }
  remove_out();
}

/* A full disk looks like a write that fails: a limit on file size makes one at any place. */
static void full_disk_leaves_nothing(void **state)
{
  (void)state;
  good_model();
  struct rlimit old, limit;
  void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  static const rlim_t sizes[] = {0, 100, 2000, 20000, 70000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    tern_error err = {0};
    limit = (struct rlimit){.rlim_cur = sizes[i], .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    tern_status status = import_gguf(file, out, NULL, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, TERN_E_IO);
    expect_nothing_left();
  }
  signal(SIGXFSZ, was);
}

static void interruption_leaves_nothing(void **state)
{
  (void)state;
  good_model();
  volatile sig_atomic_t cancel = 1;
  import_options options = {.cancel = &cancel};
  tern_error err = {0};
  assert_int_equal(import_gguf_with(file, out, &options, NULL, &err), TERN_E_CANCELLED);
  expect_nothing_left();
}

static void unusable_target(void **state)
{
  (void)state;
  good_model();
  tern_error err = {0};
  char path[96];
  snprintf(path, sizeof path, "%s/no/such/place", folder);
  assert_int_equal(import_gguf(file, path, NULL, &err), TERN_E_NOT_FOUND);
  assert_int_equal(import_gguf(file, file, NULL, &err), TERN_E_IO);
  assert_int_equal(import_gguf(file, "", NULL, &err), TERN_E_USAGE);
  expect_nothing_left();
}

/* Bad models: what is added to or changed in the good one, and what the line must name. */
static void expect_refused(gb *g, tern_status status, const char *text)
{
  buf bytes = {0};
  tern_error err = {0};
  finish_model(g, &bytes);
  assert_int_equal(import_gguf(file, out, NULL, &err), status);
  if (!strstr(err.text, text) || !strstr(err.text, file))
    fail_msg("\"%s\" does not name the file and \"%s\"", err.text, text);
  expect_nothing_left();
  buf_free(&bytes);
}

static void names_what_it_refuses(void **state)
{
  (void)state;
  const size_t q4 = 64 * 2 * 18;
  gb g = {0};
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_ones(&g, "blk.0.attn_sinks.weight", 2, 0);
  expect_refused(&g, TERN_E_UNSUPPORTED, "tensor blk.0.attn_sinks.weight");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_ones(&g, "blk.1.ffn_norm.weight", WIDTH, 0);
  expect_refused(&g, TERN_E_UNSUPPORTED, "tensor blk.1.ffn_norm.weight");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_ones(&g, "blk.00.ffn_norm.weight", WIDTH, 0);
  expect_refused(&g, TERN_E_UNSUPPORTED, "tensor blk.00.ffn_norm.weight");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_ones(&g, "output.weight", WIDTH, VOCAB - 1);
  expect_refused(&g, TERN_E_FORMAT, "tensor output.weight: shape [64, 259] where [64, 260] is expected");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_ones(&g, "blk.0.attn_q.bias", 64, 0);
  expect_refused(&g, TERN_E_FORMAT, "tensor blk.0.attn_k.bias is missing");
  build_model(&g, 18, 64 * 64, 0x11); /* IQ3_XXS */
  expect_refused(&g, TERN_E_FORMAT, "tensor blk.0.attn_q.weight: rows of 64 values are not whole IQ3_XXS blocks");
  build_model(&g, 24, 64 * 64, 0x11); /* I8 */
  expect_refused(&g, TERN_E_UNSUPPORTED, "tensor blk.0.attn_q.weight: type I8 cannot be imported");
  build_model(&g, GGML_Q4_0, q4, (char)0xff); /* every scale a NaN */
  expect_refused(&g, TERN_E_FORMAT, "tensor blk.0.attn_q.weight: a block scale is not finite");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_put_u32(&g, "llama.expert_count", 8);
  expect_refused(&g, TERN_E_UNSUPPORTED, "key llama.expert_count");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_put_u32(&g, "llama.wavelet_order", 8);
  expect_refused(&g, TERN_E_UNSUPPORTED, "key llama.wavelet_order");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_put_u32(&g, "llama.rope.dimension_count", 16);
  expect_refused(&g, TERN_E_UNSUPPORTED, "key llama.rope.dimension_count");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_put_string(&g, "llama.rope.scaling.type", "longrope");
  expect_refused(&g, TERN_E_UNSUPPORTED, "longrope");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_ones(&g, "rope_freqs.weight", 16, 0);
  ((float *)(void *)(g.data.data + g.data.length - 64))[3] = 3; /* no llama3 curve */
  expect_refused(&g, TERN_E_UNSUPPORTED, "tensor rope_freqs.weight");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_put_u32(&g, "tokenizer.ggml.bos_token_id", VOCAB);
  expect_refused(&g, TERN_E_FORMAT, "key tokenizer.ggml.bos_token_id: 260");
  build_model(&g, GGML_Q4_0, q4, 0x11);
  gb_put_u32(&g, "tokenizer.ggml.spellbook", 1);
  expect_refused(&g, TERN_E_UNSUPPORTED, "key tokenizer.ggml.spellbook");
  gb_put_string(&g, "general.architecture", "mamba");
  expect_refused(&g, TERN_E_UNSUPPORTED, "architecture mamba cannot be imported: llama, qwen2, qwen3 and gemma3 can");
  expect_refused(&g, TERN_E_FORMAT, "key general.architecture is missing");
}

/* ---- blocks ---- */

static void packing_is_a_bit_stream(void **state)
{
  (void)state;
  uint8_t q[64], packed[64];
  for (uint32_t bits = 4; bits <= 8; bits++) {
    for (int i = 0; i < 64; i++)
      q[i] = (uint8_t)((i * 37 + 11) & ((1u << bits) - 1));
    affine_pack(q, 64, bits, packed);
    for (size_t i = 0; i < 64; i++) {
      uint32_t value = 0;
      for (uint32_t b = 0; b < bits; b++) {
        size_t at = i * bits + b;
        value |= (uint32_t)(packed[at / 8] >> at % 8 & 1) << b;
      }
      assert_int_equal(value, q[i]);
    }
  }
}

static void offsets_are_exact(void **state)
{
  (void)state;
  static const struct {
    ggml_type type;
    int offset;
  } types[] = {{GGML_Q4_0, 8}, {GGML_Q5_0, 16}, {GGML_Q8_0, 128}};
  /* Every finite float16 scale: the bias is the real number -offset * d, and scale*q + bias has no rounding at all. */
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (uint32_t h = 0; h < 0x10000; h++) {
      if ((h & 0x7c00) == 0x7c00)
        continue;
      uint8_t block[34] = {(uint8_t)h, (uint8_t)(h >> 8)};
      float scale, bias;
      ggml_affine_scales(types[t].type, block, 32, &scale, &bias);
      double d = (double)f16_to_f32((uint16_t)h);
      assert_true((double)scale == d && (double)bias == -types[t].offset * d);
      for (int q = 0; q < 2 * types[t].offset; q += 5) {
        float product = scale * (float)q, sum = product + bias;
        assert_true((double)product == d * q && (double)sum == d * (q - types[t].offset));
      }
    }
}

/* Who lists the folder meanwhile must not take it for a model. */
static void the_temporary_name_begins_with_a_dot(void **state)
{
  (void)state;
  outdir o = {0};
  tern_error err;
  size_t before = entries(folder);
  if (outdir_begin(out, &o, &err) != TERN_OK)
    fail_msg("%s", err.text);
  assert_memory_equal(o.temporary, folder, strlen(folder));
  assert_memory_equal(o.temporary + strlen(folder), "/.model.part-", 13);
  assert_int_equal(outdir_write(&o, "config.json", "{}", 2, &err), TERN_OK);
  assert_int_equal(outdir_commit(&o, &err), TERN_OK);
  assert_int_equal(entries(out), 1);
  remove_out();
  assert_int_equal(entries(folder), before);
}

static bool there(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0;
}

static void begin(outdir *o, const char *path)
{
  tern_error err = {0};
  if (outdir_begin(path, o, &err) != TERN_OK || outdir_write(o, "config.json", "{}", 2, &err) != TERN_OK)
    fail_msg("%s", err.text);
}

/* kill -9 in the middle leaves a folder, which the next import beside it takes away; one that lives keeps its own, for
 * the same target too, and so does whatever only looks alike. */
static void leftovers_are_reclaimed(void **state)
{
  (void)state;
  char foreign[300], other[300], left[2][300] = {{0}};
  size_t before = entries(folder);
  outdir alive, next;
  begin(&alive, out);
  snprintf(foreign, sizeof foreign, "%s/.model.part-of-it", folder);
  snprintf(other, sizeof other, "%s/other", folder);
  assert_int_equal(mkdir(foreign, 0777), 0);
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  pid_t child = fork();
  if (child == 0) {
    outdir mine[2];
    begin(&mine[0], out);
    begin(&mine[1], other);
    for (int i = 0; i < 2; i++)
      snprintf(left[i], sizeof left[i], "%s", mine[i].temporary);
    if (write(pipes[1], left, sizeof left) != sizeof left)
      _exit(1);
    for (;;)
      pause();
  }
  assert_int_equal(read(pipes[0], left, sizeof left), sizeof left);
  begin(&next, out); /* all three live */
  for (int i = 0; i < 2; i++)
    assert_true(there(left[i]));
  outdir_abandon(&next);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  for (int i = 0; i < 2; i++)
    assert_true(there(left[i]));
  begin(&next, out);
  for (int i = 0; i < 2; i++)
    assert_false(there(left[i]));
  assert_true(there(foreign));
  assert_true(there(alive.temporary));
  assert_int_equal(entries(alive.temporary), 1);
  tern_error err = {0};
  if (outdir_commit(&alive, &err) != TERN_OK)
    fail_msg("%s", err.text);
  assert_int_equal(entries(out), 1);
  outdir_abandon(&next);
  remove_out();
  assert_int_equal(rmdir(foreign), 0);
  assert_int_equal(entries(folder), before);
  close(pipes[0]);
  close(pipes[1]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(leftovers_are_reclaimed),
      cmocka_unit_test(whole_directory_appears),
      cmocka_unit_test(every_failed_allocation_leaves_nothing),
      cmocka_unit_test(full_disk_leaves_nothing),
      cmocka_unit_test(interruption_leaves_nothing),
      cmocka_unit_test(unusable_target),
      cmocka_unit_test(names_what_it_refuses),
      cmocka_unit_test(packing_is_a_bit_stream),
      cmocka_unit_test(offsets_are_exact),
      cmocka_unit_test(the_temporary_name_begins_with_a_dot),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
