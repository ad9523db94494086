/* test_tok.c - the tokenizer without its reference: what is refused and how the line reads, roles, limits, allocation
 * failures, threads. What is accepted is compared with the reference by tests/text/test_tokenizer.py. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "text/tok_impl.h"

/* A small tokenizer in the manner of Llama 2, with room for a replaced part: PARTS(normalizer, pre_tokenizer,
 * post_processor, decoder, added_tokens, model). */
#define PARTS(n, p, q, d, a, m)                                                                                        \
  "{\"version\":\"1.0\",\"truncation\":{\"x\":[{}]},\"padding\":null,\"added_tokens\":" a ",\"normalizer\":" n         \
  ",\"pre_tokenizer\":" p ",\"post_processor\":" q ",\"decoder\":" d ",\"model\":" m "}"
#define ADDED(text, id, special)                                                                                       \
  "{\"id\":" id ",\"content\":\"" text                                                                                 \
  "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"                                   \
  "\"special\":" special "}"
#define MODEL                                                                                                          \
  "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,"               \
  "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"a\":2,\"b\":3,\"\u2581\":4,\"ab\":5,\"\u2581ab\":6,\"<0xC3>\":7,\"<0xA9>\":8},"  \
  "\"merges\":[\"a b\",\"\u2581 ab\"]}"
#define NORMALIZER                                                                                                     \
  "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},"                             \
  "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]}"
#define TEMPLATE                                                                                                       \
  "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"                    \
  "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],"  \
  "\"tokens\":[\"<s>\"]}}}"
#define DECODER                                                                                                        \
  "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"}," \
  "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
#define TOKENS "[" ADDED("<s>", "1", "true") "," ADDED("<new>", "77", "false") "]"

static const char llama[] = PARTS(NORMALIZER, "null", TEMPLATE, DECODER, TOKENS, MODEL);

static tok *open_text(const char *json)
{
  tok *t = NULL;
  tern_error err = {0};
  if (tok_open_bytes(true, json, strlen(json), &t, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return t;
}

static void check_encode(const tok *t, const char *text, bool special, const int32_t *want, size_t n_want)
{
  int32_t *ids = NULL;
  size_t n = 0;
  tern_error err = {0};
  if (tok_encode(t, text, strlen(text), special, &ids, &n, &err) != TERN_OK)
    fail_msg("%s: %s", text, err.text);
  assert_int_equal(n, n_want);
  if (n)
    assert_memory_equal(ids, want, n * sizeof *want);
  mem_free(ids);
}
#define ENCODES(t, text, special, ...)                                                                                 \
  check_encode(t, text, special, (const int32_t[]){__VA_ARGS__}, sizeof(const int32_t[]){__VA_ARGS__} / 4)

static void test_round(void **state)
{
  (void)state;
  tok *t = open_text(llama);
  ENCODES(t, "ab ab", true, 1, 6, 6);
  ENCODES(t, "ab ab", false, 6, 6);
  ENCODES(t, "\u00e9", false, 4, 7, 8);
  ENCODES(t, "zz", false, 4, 0);            /* fused */
  ENCODES(t, "<s>ab<new>", false, 1, 6, 9); /* the file's id 77 does not count: the next free one is 9 */
  int32_t none = 0;
  check_encode(t, "", false, &none, 0);
  assert_int_equal(tok_vocab_size(t), 10);
  assert_int_equal(tok_id(t, "<new>", 5), 9);
  assert_int_equal(tok_id(t, "nothing", 7), -1);
  assert_true(tok_is_special(t, 1));
  assert_false(tok_is_special(t, 9));
  assert_false(tok_is_special(t, -1));
  assert_false(tok_is_special(t, 1 << 30));
  size_t n;
  assert_null(tok_piece(t, 10, &n));
  assert_null(tok_piece(t, -5, &n));
  assert_int_equal(strncmp(tok_piece(t, 5, &n), "ab", 2), 0);
  assert_int_equal(n, 2);
  tok_close(t);
}

static void test_decode(void **state)
{
  (void)state;
  tok *t = open_text(llama);
  tern_error err = {0};
  char *text = NULL;
  size_t n;
  const int32_t ids[] = {1, 6, 7, 8, 500000, 7, 5};
  assert_int_equal(tok_decode(t, ids, 7, true, &text, &n, &err), TERN_OK);
  assert_string_equal(text, "ab\ufffd\ufffd\ufffdab"); /* 500000 vanishes, so the byte run is C3 A9 C3: not UTF-8 */
  assert_int_equal(n, strlen(text));
  mem_free(text);
  tok_close(t);
}

static void test_bad_input(void **state)
{
  (void)state;
  tok *t = open_text(llama);
  tern_error err = {0};
  int32_t *ids;
  size_t n;
  char *text;
  assert_int_equal(tok_encode(t, "ab0123456789\xff", 13, false, &ids, &n, &err), TERN_E_USAGE);
  assert_string_equal(err.text, "text: not UTF-8 at byte 12");
  assert_int_equal(tok_encode(t, "\xed\xa0\x80", 3, false, &ids, &n, NULL), TERN_E_USAGE);
  const int32_t bad[] = {5, -3};
  assert_int_equal(tok_decode(t, bad, 2, false, &text, &n, &err), TERN_E_USAGE);
  assert_string_equal(err.text, "ids: -3 at position 1 is no token id");
  tok_close(t);
}

static void test_refused(void **state)
{
  (void)state;
  static const struct {
    const char *json, *line;
  } cases[] = {
      {"", "not valid JSON"},
      {"[]", "not an object"},
      {"{\"model\":", "not valid JSON"},
      {"{}", "model.vocab: missing"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"Markov\",\"vocab\":{}}"), "unknown type 'Markov'"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"BPE\",\"vocab\":{\"a\":0}}"), "model.merges: missing"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"),
       "id 0 belongs to two pieces, 'b' and 'a'"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"BPE\",\"vocab\":{\"a\":4194304},\"merges\":[]}"),
       "an id above 4194303"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}"),
       "no whole number"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}"),
       "model.merges: entry 0 needs the piece 'b'"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}"),
       "two pieces with one space between"},
      {PARTS("null", "null", "null", "null", "[]",
             "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]}"),
       "not a pair"},
      {PARTS("null", "null", "null", "null", "[]",
             "{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}"),
       "model.dropout"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"BPE\",\"extra\":1,\"vocab\":{\"a\":0},\"merges\":[]}"),
       "model.extra: unknown key"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"Unigram\",\"unk_id\":3,\"vocab\":[[\"a\",0.5]]}"),
       "model.unk_id"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",1e999]]}"),
       "not [piece, score]"},
      {PARTS("null", "null", "null", "null", "[]", "{\"type\":\"WordPiece\",\"unk_token\":\"x\",\"vocab\":{\"a\":0}}"),
       "model.continuing_subword_prefix: missing"},
      {PARTS("{\"type\":\"Rot13\"}", "null", "null", "null", "[]", MODEL), "normalizer: unknown type 'Rot13'"},
      {PARTS("{\"type\":\"NFC\",\"speed\":1}", "null", "null", "null", "[]", MODEL), "NFC.speed: unknown key"},
      {PARTS("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}", "null", "null", "null", "[]",
             MODEL),
       "bad regular expression '('"},
      {PARTS("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"}", "null", "null", "null", "[]", MODEL),
       "precompiled_charsmap"},
      {PARTS("null", "{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Eaten\",\"invert\":false}",
             "null", "null", "[]", MODEL),
       "Split.behavior"},
      {PARTS("null", "{\"replacement\":\"_\"}", "null", "null", "[]", MODEL), "pre_tokenizer: no \"type\""},
      {PARTS("null", "null", "{\"type\":\"Sequence\",\"processors\":[" TEMPLATE "," TEMPLATE "]}", "null", "[]", MODEL),
       "a second processor that adds tokens"},
      {PARTS("null", "null", "null", "{\"type\":\"BPEDecoder\",\"suffix\":\"\"}", "[]", MODEL),
       "BPEDecoder.suffix: empty"},
      {PARTS("null", "null", "null", "null", "[{\"id\":1,\"content\":\"x\"}]", MODEL), "single_word: missing"},
      {"{\"version\":\"2.0\",\"model\":" MODEL "}", "version"},
      {"{\"colour\":\"red\",\"model\":" MODEL "}", "colour: unknown key"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tok *t = NULL;
    tern_error err = {0};
    if (tok_open_bytes(true, cases[i].json, strlen(cases[i].json), &t, &err) == TERN_OK) {
      tok_close(t);
      fail_msg("accepted: %s", cases[i].json);
    }
    if (!strstr(err.text, cases[i].line) || !strstr(err.text, "tokenizer.json") || strchr(err.text, '\n'))
      fail_msg("case %zu: '%s' does not say '%s'", i, err.text, cases[i].line);
  }
}

/* Nothing that is cut off or has one byte changed may crash; what still opens must still work. */
static void test_damage(void **state)
{
  (void)state;
  char *copy = mem_strndup(llama, sizeof llama - 1);
  int32_t *ids;
  size_t n;
  for (size_t i = 0; i < sizeof llama - 1; i++) {
    tok *t = NULL;
    tern_error err = {0};
    assert_int_not_equal(tok_open_bytes(true, llama, i, &t, &err), TERN_OK);
    assert_true(err.text[0]);
    for (int bit = 0; bit < 8; bit += 3) {
      copy[i] = (char)(llama[i] ^ 1 << bit);
      if (tok_open_bytes(true, copy, sizeof llama - 1, &t, &err) == TERN_OK) {
        if (tok_encode(t, "ab \u00e9<s>", 8, true, &ids, &n, &err) == TERN_OK)
          mem_free(ids);
        tok_close(t);
      }
    }
    copy[i] = llama[i];
  }
  mem_free(copy);
}

static void test_depth(void **state)
{
  (void)state;
  buf deep = {0};
  buf_adds(&deep, "{\"normalizer\":");
  for (int i = 0; i < 100000; i++)
    buf_addc(&deep, '[');
  tok *t = NULL;
  tern_error err = {0};
  assert_int_equal(tok_open_bytes(true, deep.data, deep.length, &t, &err), TERN_E_FORMAT);
  assert_non_null(strstr(err.text, "nested deeper"));
  buf_free(&deep);
}

/* A pattern that backtracks without end is given up, in time. */
static void test_endless_pattern(void **state)
{
  (void)state;
  tok *t = open_text(PARTS("null",
                           "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a|a|aa)+$\"},\"behavior\":\"Isolated\","
                           "\"invert\":false}",
                           "null", "null", "[]", MODEL));
  char text[200];
  memset(text, 'a', sizeof text);
  text[199] = 'b';
  int32_t *ids;
  size_t n;
  tern_error err = {0};
  assert_int_equal(tok_encode(t, text, sizeof text, false, &ids, &n, &err), TERN_E_LIMIT);
  assert_non_null(strstr(err.text, "gave up"));
  tok_close(t);
}

/* Long words of any kind must not take quadratic time; 2 MB here would take hours. */
static void test_long_words(void **state)
{
  (void)state;
  tok *t = open_text(llama);
  size_t size = 2 << 20;
  char *text = mem_alloc(size);
  for (int kind = 0; kind < 3; kind++) {
    for (size_t i = 0; i < size; i++)
      text[i] = kind == 0 ? 'a' : kind == 1 ? "ab"[i % 2] : 'z';
    int32_t *ids;
    size_t n;
    assert_int_equal(tok_encode(t, text, size, false, &ids, &n, NULL), TERN_OK);
    assert_int_equal(n, kind == 0 ? size + 1 : kind == 1 ? size / 2 : 2);
    mem_free(ids);
  }
  mem_free(text);
  tok_close(t);
}

static bool count_down(void *left)
{
  return --*(int *)left > 0;
}

/* A text of many words and one of a single long word are given up at whatever question, with nothing left behind, and
 * no more often than a text's size asks for. */
static void test_given_up(void **state)
{
  static const char words[] = PARTS("null", "{\"type\":\"WhitespaceSplit\"}", "null", "null", "[]", MODEL);
  static const char split[] =
      PARTS("null", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a|b\"},\"behavior\":\"Isolated\",\"invert\":false}",
            "null", "null", "[]", MODEL);
  static const char unigram[] = PARTS("null", "null", "null", "null", "[]",
                                      "{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":false,"
                                      "\"vocab\":[[\"<unk>\",0.0],[\"a\",-1.0],[\"ab\",-1.5],[\" \",-1.0]]}");
  const char *const kinds[] = {llama, words, split, unigram};
  const size_t size = 1 << 19;
  char *text = mem_alloc(size);
  (void)state;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    tok *t = open_text(kinds[k]);
    for (size_t i = 0; i < size; i++)
      text[i] = k == 1 ? "ab "[i % 3] : "ab"[i % 2];
    int left = 1 << 30, asked = 0;
    tok_ask ask = {count_down, &left};
    int32_t *ids = NULL, *same;
    size_t n, n_same;
    assert_int_equal(tok_encode_while(t, &ask, text, size, false, &ids, &n, NULL), TERN_OK);
    asked = (1 << 30) - left;
    assert_in_range(asked, 3, 100);
    assert_int_equal(tok_encode(t, text, size, false, &same, &n_same, NULL), TERN_OK);
    assert_int_equal(n, n_same);
    assert_memory_equal(ids, same, n * sizeof *ids);
    mem_free(ids);
    mem_free(same);
    const int at[] = {1, 2, asked / 2, asked};
    for (size_t q = 0; q < sizeof at / sizeof *at; q++) {
      int i = at[q];
      tern_error err = {0};
      left = i;
      assert_int_equal(tok_encode_while(t, &ask, text, size, false, &ids, &n, &err), TERN_E_CANCELLED);
      assert_int_equal(left, 0); /* not asked again */
    }
    tok_close(t);
  }
  mem_free(text);
}

/* Every allocation of opening and encoding fails once. */
static void test_no_memory(void **state)
{
  (void)state;
  static const char text[] = "ab \u00e9 zz<s> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  tern_error err;
  bool opened = false;
  for (int64_t i = 1; !opened; i++) {
    tok *t = NULL;
    mem_fail_after(i);
    tern_status status = tok_open_bytes(true, llama, sizeof llama - 1, &t, &err);
    mem_fail_after(-1);
    opened = status == TERN_OK;
    if (opened)
      tok_close(t);
    else
      assert_int_equal(status, TERN_E_NOMEM);
  }
  tok *t = open_text(llama);
  bool done = false;
  for (int64_t i = 1; !done; i++) {
    int32_t *ids = NULL;
    size_t n = 0;
    char *back = NULL;
    mem_fail_after(i);
    tern_status status = tok_encode(t, text, sizeof text - 1, true, &ids, &n, &err);
    if (status == TERN_OK)
      status = tok_decode(t, ids, n, false, &back, NULL, &err);
    mem_fail_after(-1);
    done = status == TERN_OK;
    assert_true(done || status == TERN_E_NOMEM);
    mem_free(ids);
    mem_free(back);
  }
  tok_close(t);
}

static void *encode_often(void *user)
{
  for (int i = 0; i < 300; i++)
    ENCODES(user, "ab ab \u00e9<s>", true, 1, 6, 6, 4, 7, 8, 1);
  return NULL;
}

static void test_threads(void **state)
{
  (void)state;
  tok *t = open_text(llama);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  tok_close(t);
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/tern-test-tok-XXXXXX";

static void write_file(const char *name, const char *text)
{
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (!text) {
    remove(path);
    return;
  }
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void test_files(void **state)
{
  (void)state;
  assert_non_null(mkdtemp(folder));
  tok *t = NULL;
  tern_error err = {0};
  assert_int_equal(tok_open(folder, &t, &err), TERN_E_NOT_FOUND);
  assert_non_null(strstr(err.text, folder));
  write_file("tokenizer.json", llama);
  write_file("tokenizer_config.json",
             "{\"bos_token\":{\"content\":\"<s>\",\"lstrip\":false},\"eos_token\":\"ab\","
             "\"pad_token\":null,\"added_tokens_decoder\":{\"11\":{\"content\":\"<late>\","
             "\"special\":true},\"10\":{\"content\":\"<early>\"},\"1\":{\"content\":\"<s>\"}}}");
  write_file("special_tokens_map.json", "{\"bos_token\":\"<other>\",\"unk_token\":\"<gone>\"}");
  assert_int_equal(tok_open(folder, &t, &err), TERN_OK);
  assert_string_equal(tok_role_text(t, TOK_BOS), "<s>");
  assert_int_equal(tok_role_id(t, TOK_BOS), 1);
  assert_int_equal(tok_role_id(t, TOK_EOS), 5);
  assert_true(tok_is_special(t, 5)); /* a role's token is special, whoever forgot to say so */
  assert_string_equal(tok_role_text(t, TOK_UNK), "<gone>");
  assert_int_equal(tok_role_id(t, TOK_UNK), -1);
  assert_null(tok_role_text(t, TOK_PAD));
  assert_int_equal(tok_role_id(t, TOK_PAD), -1);
  assert_int_equal(tok_id(t, "<early>", 7), 10);
  assert_int_equal(tok_id(t, "<late>", 6), 11);
  assert_true(tok_is_special(t, 11));
  tok_close(t);
  write_file("tokenizer_config.json", "{\"bos_token\":7}");
  assert_int_equal(tok_open(folder, &t, &err), TERN_E_FORMAT);
  assert_non_null(strstr(err.text, "tokenizer_config.json: bos_token"));
  write_file("tokenizer_config.json", "{\"bos_token\"");
  assert_int_equal(tok_open(folder, &t, &err), TERN_E_FORMAT);
  assert_non_null(strstr(err.text, "tokenizer_config.json: not valid JSON"));
  const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"};
  for (size_t i = 0; i < 3; i++)
    write_file(names[i], NULL);
  rmdir(folder);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round),      cmocka_unit_test(test_decode),          cmocka_unit_test(test_bad_input),
      cmocka_unit_test(test_refused),    cmocka_unit_test(test_damage),          cmocka_unit_test(test_depth),
      cmocka_unit_test(test_long_words), cmocka_unit_test(test_endless_pattern), cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_threads),    cmocka_unit_test(test_files),           cmocka_unit_test(test_given_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
