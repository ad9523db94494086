/* test_config.c - config.json as Python reads it, but strictly: every kind of wrong value names its key. */
#include "unit/format_files.h"

#include <limits.h>
#include <math.h>

#include "format/config.h"
#include "format/json_util.h"

static cfg *parse2(const char *text, const char *generation)
{
  cfg *c = NULL;
  tern_error err = {0};
  tern_status status = cfg_parse(text, strlen(text), generation, generation ? strlen(generation) : 0, &c, &err);
  if (status != TERN_OK)
    fail_msg("%s", err.text);
  return c;
}

static cfg *parse(const char *text)
{
  return parse2(text, NULL);
}

static void expect_parse(const char *text, size_t n, tern_status want, const char *says)
{
  cfg *c = NULL;
  tern_error err = {0};
  tern_status status = cfg_parse(text, n, NULL, 0, &c, &err);
  if (status == TERN_OK)
    cfg_close(c);
  assert_error(&err, status, want, says);
}

#define EXPECT_PARSE(text, want, says) expect_parse(text, strlen(text), want, says)

/* ---- files ---- */

static void files_are_opened(void **state)
{
  (void)state;
  cfg *c;
  tern_error err = {0};
  assert_error(&err, cfg_open(folder, &c, &err), TERN_E_NOT_FOUND, "config.json: cannot open");
  put_text("config.json", "{\"model_type\":\"llama\",\"eos_token_id\":1}");
  assert_int_equal(cfg_open(folder, &c, &err), TERN_OK);
  assert_string_equal(cfg_model_type(c), "llama");
  assert_true(cfg_has(c, CFG_ROOT));
  assert_false(cfg_has(c, CFG_TEXT));
  assert_false(cfg_has(c, CFG_GENERATION));
  cfg_close(c);
  put_text("generation_config.json", "{\"eos_token_id\":[2]}");
  assert_int_equal(cfg_open(folder, &c, &err), TERN_OK);
  assert_true(cfg_has(c, CFG_GENERATION));
  cfg_close(c);
  put_text("generation_config.json", "{\"eos_token_id\":[2}");
  assert_error(&err, cfg_open(folder, &c, &err), TERN_E_FORMAT, "generation_config.json: line 1, column");
  unlink(in_folder("generation_config.json"));
  put_text("config.json", "");
  assert_error(&err, cfg_open(folder, &c, &err), TERN_E_FORMAT, "config.json: line 1, column 1");
  assert_int_equal(truncate(in_folder("config.json"), (64 << 20) + 1), 0);
  assert_error(&err, cfg_open(folder, &c, &err), TERN_E_LIMIT, "config.json|67108865 bytes");
  unlink(in_folder("config.json"));
  assert_int_equal(mkdir(in_folder("config.json"), 0777), 0);
  assert_error(&err, cfg_open(folder, &c, &err), TERN_E_IO, "config.json: not a regular file");
}

static void broken_files_are_named(void **state)
{
  (void)state;
  EXPECT_PARSE("{\"model_type\":\"a\",\n \"x\":,}", TERN_E_FORMAT, "config.json: line 2, column 6");
  EXPECT_PARSE("[]", TERN_E_FORMAT, "config.json: not a JSON object");
  EXPECT_PARSE("{\"a\":{\"b\":1,\"b\":2}}", TERN_E_FORMAT, "config.json: line 1, column 13|twice the key \"b\"");
  EXPECT_PARSE("{}", TERN_E_FORMAT, "config.json: model_type is missing");
  EXPECT_PARSE("{\"model_type\":null}", TERN_E_FORMAT, "config.json: model_type is missing");
  EXPECT_PARSE("{\"model_type\":7}", TERN_E_FORMAT, "config.json: model_type: must be a string, is 7");
  EXPECT_PARSE("{\"model_type\":\"a\",\"text_config\":[]}", TERN_E_FORMAT, "config.json: text_config: not an object");
  EXPECT_PARSE("{\"model_type\":\"a\",\"model_file\":\"m.py\"}", TERN_E_UNSUPPORTED,
               "config.json: model_file|Python code");
  EXPECT_PARSE("{\"model_type\":\"\xff\"}", TERN_E_FORMAT, "config.json: line 1|UTF-8");
  EXPECT_PARSE("{\"model_type\":\"a\"} x", TERN_E_FORMAT, "config.json: line 1, column 20");
  EXPECT_PARSE("\xef\xbb\xbf{\"model_type\":\"a\"}", TERN_E_FORMAT, "config.json: line 1");
  expect_parse("{\"model_type\":\"a\0\"}", 19, TERN_E_FORMAT, "config.json: line 1, column 17: a control character");
  cfg_close(parse("{\"model_type\":\"a\",\"auto_map\":{\"x\":\"y.py\"},\"model_file\":null,\"text_config\":null}"));
}

static void sizes_are_bounded(void **state)
{
  (void)state;
  enum { N = 3 << 20 };
  char *text = malloc(N + 64);
  assert_non_null(text);
  strcpy(text, "{\"model_type\":\"a\",\"x\":");
  size_t at = strlen(text);
  memset(text + at, '[', 64);
  text[at + 64] = '\0';
  EXPECT_PARSE(text, TERN_E_LIMIT, "config.json: nested deeper than 64");
  for (size_t i = 0; i + 2 < N - at; i += 2)
    memcpy(text + at + i, i ? ",0" : "[0", 2);
  expect_parse(text, N - 64, TERN_E_LIMIT, "config.json: more than 1048576 values");
  free(text);
  cfg_close(parse("{\"model_type\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"}"));
}

/* ---- Python's numbers ---- */

static void python_numbers_are_read(void **state)
{
  (void)state;
  cfg *c = parse("{\"model_type\":\"Infinity NaN\",\"l\":[0.0, Infinity,-Infinity ,1e5],\"x\":NaN,"
                 "\"big\":18446744073709551616,\"edge\":9223372036854775807,\"over\":-9223372036854775809,"
                 "\"Infinity\":\"\\\"Infinity\"}");
  assert_string_equal(cfg_model_type(c), "Infinity NaN");
  json_t *holder = json_object();
  json_object_set(holder, "l", (json_t *)(uintptr_t)cfg_get(c, CFG_ROOT, "l"));
  double *l;
  size_t n;
  tern_error err = {0};
  assert_int_equal(cfg_obj_floats(holder, "here", "l", true, &l, &n, &err), TERN_OK);
  json_decref(holder);
  assert_int_equal(n, 4);
  assert_true(isinf(l[1]) && l[1] > 0 && isinf(l[2]) && l[2] < 0 && l[3] == 1e5);
  mem_free(l);
  double x;
  assert_error(&err, cfg_value_float(cfg_get(c, CFG_ROOT, "x"), "here: x", &x, &err), TERN_E_FORMAT,
               "here: x: must be a number, is nan");
  assert_int_equal(cfg_value_float(cfg_get(c, CFG_ROOT, "big"), "big", &x, &err), TERN_OK);
  assert_true(x == 18446744073709551616.0);
  assert_int_equal(cfg_value_float(cfg_get(c, CFG_ROOT, "over"), "over", &x, &err), TERN_OK);
  assert_true(x == -9223372036854775808.0);
  int64_t i;
  assert_int_equal(cfg_value_int(cfg_get(c, CFG_ROOT, "edge"), "edge", 0, INT64_MAX, &i, &err), TERN_OK);
  assert_true(i == INT64_MAX);
  assert_string_equal(json_string_value(cfg_get(c, CFG_ROOT, "Infinity")), "\"Infinity");
  cfg_close(c);
}

/* What Python's parser refuses must not get in through the rewriting. */
static void near_misses_are_refused(void **state)
{
  (void)state;
  static const char *const values[] = {"Infinit", "Infinityx", "1Infinity", "--Infinity", "+Infinity",   "-NaN",
                                       "NaNNaN",  "xNaN",      "nan",       "infinity",   "InfinityNaN", "- Infinity",
                                       "1NaN",    "-",         "\"a\"NaN",  "NaN\"a\"",   "Infinity.0",  "00",
                                       "1.",      ".5",        "1e"};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    char text[100];
    snprintf(text, sizeof text, "{\"model_type\":\"a\",\"x\":%s}", values[i]);
    EXPECT_PARSE(text, TERN_E_FORMAT, "config.json: line 1, column");
    snprintf(text, sizeof text, "{\"model_type\":\"a\",\"x\":[%s]}", values[i]);
    EXPECT_PARSE(text, TERN_E_FORMAT, "config.json: line 1, column");
  }
}

/* ---- tables ---- */

typedef struct shape {
  int width, layers, heads;
  double eps, theta;
  bool tied, biased;
  const char *act, *name;
} shape;

static const cfg_field fields[] = {
    CFG_INT_REQUIRED(shape, width, "hidden_size|n_embd", 1, 1 << 20),
    CFG_INT_OR(shape, layers, "num_hidden_layers", 0, 0, 0),
    CFG_INT_OR(shape, heads, "num_attention_heads", -1, 1, 4096),
    CFG_FLOAT_OR(shape, eps, "rms_norm_eps", 1e-6, 0, 1),
    CFG_FLOAT_OR(shape, theta, "rope_theta", 10000, 0, 0),
    CFG_BOOL_OR(shape, tied, "tie_word_embeddings", true),
    CFG_BOOL_OR(shape, biased, "attention_bias", false),
    CFG_STRING_OR(shape, act, "hidden_act", "silu"),
    CFG_STRING_OR(shape, name, "name", NULL),
};

enum { FIELDS = sizeof fields / sizeof *fields };

static void tables_fill_structs(void **state)
{
  (void)state;
  cfg *c = parse("{\"model_type\":\"a\",\"hidden_size\":null,\"n_embd\":64.0,\"num_hidden_layers\":2147483647,"
                 "\"rms_norm_eps\":1,\"rope_theta\":-Infinity,\"tie_word_embeddings\":0,\"attention_bias\":true,"
                 "\"hidden_act\":null,\"text_config\":{\"hidden_size\":3,\"n_embd\":5,\"name\":\"\"}}");
  shape s;
  tern_error err = {0};
  assert_int_equal(cfg_read(c, CFG_ROOT, fields, FIELDS, &s, &err), TERN_OK);
  assert_int_equal(s.width, 64);
  assert_int_equal(s.layers, INT_MAX);
  assert_int_equal(s.heads, -1);
  assert_true(s.eps == 1 && isinf(s.theta));
  assert_true(!s.tied && s.biased);
  assert_string_equal(s.act, "silu");
  assert_null(s.name);
  assert_int_equal(cfg_read(c, CFG_TEXT, fields, FIELDS, &s, &err), TERN_OK);
  assert_int_equal(s.width, 3);
  assert_true(s.eps == 1e-6 && s.theta == 10000 && s.tied);
  assert_string_equal(s.name, "");
  cfg_close(c);
}

static void wrong_values_name_their_key(void **state)
{
  (void)state;
  static const struct {
    const char *member, *says;
  } cases[] = {
      {"\"other\":1", "config.json: hidden_size is missing"},
      {"\"hidden_size\":null", "config.json: hidden_size is missing"},
      {"\"hidden_size\":\"64\"",
       "config.json: hidden_size: must be a whole number from 1 to 1048576, is the string \"64\""},
      {"\"hidden_size\":true", "config.json: hidden_size: must be|is true"},
      {"\"hidden_size\":[64]", "config.json: hidden_size: must be|is a list"},
      {"\"hidden_size\":64.5", "config.json: hidden_size: must be|is 64.5"},
      {"\"hidden_size\":0", "config.json: hidden_size: must be|is 0"},
      {"\"hidden_size\":1048577", "config.json: hidden_size: must be|is 1048577"},
      {"\"hidden_size\":1e300", "config.json: hidden_size: must be|is 1"},
      {"\"hidden_size\":Infinity", "config.json: hidden_size: must be|is inf"},
      {"\"hidden_size\":NaN", "config.json: hidden_size: must be|is nan"},
      {"\"n_embd\":-7", "config.json: n_embd: must be|is -7"},
      {"\"hidden_size\":1,\"num_hidden_layers\":-1",
       "config.json: num_hidden_layers: must be a whole number from 0 to 2147483647, is -1"},
      {"\"hidden_size\":1,\"num_hidden_layers\":2147483648", "config.json: num_hidden_layers: must be|is 2147483648"},
      {"\"hidden_size\":1,\"num_hidden_layers\":99999999999999999999", "config.json: num_hidden_layers: must be"},
      {"\"hidden_size\":1,\"rms_norm_eps\":\"1e-5\"",
       "config.json: rms_norm_eps: must be a number, is the string \"1e-5\""},
      {"\"hidden_size\":1,\"rms_norm_eps\":1.5", "config.json: rms_norm_eps: must be a number from 0 to 1, is 1.5"},
      {"\"hidden_size\":1,\"rms_norm_eps\":true", "config.json: rms_norm_eps: must be a number, is true"},
      {"\"hidden_size\":1,\"rope_theta\":NaN", "config.json: rope_theta: must be a number, is nan"},
      {"\"hidden_size\":1,\"tie_word_embeddings\":2", "config.json: tie_word_embeddings: must be true or false, is 2"},
      {"\"hidden_size\":1,\"tie_word_embeddings\":\"true\"", "config.json: tie_word_embeddings: must be true or false"},
      {"\"hidden_size\":1,\"hidden_act\":{}", "config.json: hidden_act: must be a string, is an object"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[300];
    snprintf(text, sizeof text, "{\"model_type\":\"a\",%s,\"text_config\":{%s}}", cases[i].member, cases[i].member);
    cfg *c = parse(text);
    shape s;
    tern_error err = {0};
    assert_error(&err, cfg_read(c, CFG_ROOT, fields, FIELDS, &s, &err), TERN_E_FORMAT, cases[i].says);
    tern_status status = cfg_read(c, CFG_TEXT, fields, FIELDS, &s, &err);
    assert_error(&err, status, TERN_E_FORMAT, "config.json: text_config: ");
    cfg_close(c);
  }
}

static void what_nobody_read_is_listed(void **state)
{
  (void)state;
  cfg *c = parse("{\"model_type\":\"a\",\"z\":1,\"hidden_size\":1,\"n_embd\":2,\"b\":null,\"c\":{\"d\":1}}");
  shape s;
  tern_error err = {0};
  assert_int_equal(cfg_read(c, CFG_ROOT, fields, FIELDS, &s, &err), TERN_OK);
  assert_null(cfg_get(c, CFG_ROOT, "b"));
  assert_null(cfg_get(c, CFG_ROOT, "not there"));
  assert_null(cfg_get(c, CFG_TEXT, "z"));
  size_t cursor = 0;
  assert_string_equal(cfg_unread(c, CFG_ROOT, &cursor), "z");
  assert_string_equal(cfg_unread(c, CFG_ROOT, &cursor), "c");
  assert_null(cfg_unread(c, CFG_ROOT, &cursor));
  assert_non_null(cfg_get(c, CFG_ROOT, "c"));
  cursor = 0;
  assert_string_equal(cfg_unread(c, CFG_ROOT, &cursor), "z");
  assert_null(cfg_unread(c, CFG_ROOT, &cursor));
  cursor = 0;
  assert_string_equal(cfg_key(c, CFG_ROOT, &cursor), "model_type");
  for (int i = 0; i < 5; i++)
    assert_non_null(cfg_key(c, CFG_ROOT, &cursor));
  assert_null(cfg_key(c, CFG_ROOT, &cursor));
  cursor = 0;
  assert_null(cfg_key(c, CFG_TEXT, &cursor));
  cfg_close(c);
}

/* ---- objects and lists ---- */

static void members_of_objects_are_read(void **state)
{
  (void)state;
  cfg *c = parse("{\"model_type\":\"a\",\"rope_scaling\":{\"factor\":8,\"type\":\"yarn\",\"truncate\":false,\"n\":-3,"
                 "\"list\":[1,2.0,3],\"names\":[\"x\",\"y\"],\"bad\":[1,\"x\"],\"null\":null}}");
  const json_t *o = cfg_get(c, CFG_ROOT, "rope_scaling");
  const char *where = "config.json: rope_scaling";
  tern_error err = {0};
  double f;
  int i;
  bool b;
  const char *s;
  assert_int_equal(cfg_obj_float(o, where, "factor", true, 0, &f, &err), TERN_OK);
  assert_true(f == 8);
  assert_int_equal(cfg_obj_float(o, where, "null", false, 2.5, &f, &err), TERN_OK);
  assert_true(f == 2.5);
  assert_int_equal(cfg_obj_int(o, where, "n", true, 0, &i, &err), TERN_OK);
  assert_int_equal(i, -3);
  assert_int_equal(cfg_obj_bool(o, where, "truncate", false, true, &b, &err), TERN_OK);
  assert_false(b);
  assert_int_equal(cfg_obj_string(o, where, "type", true, NULL, &s, &err), TERN_OK);
  assert_string_equal(s, "yarn");
  assert_int_equal(cfg_obj_string(NULL, where, "type", false, "default", &s, &err), TERN_OK);
  assert_string_equal(s, "default");
  assert_error(&err, cfg_obj_string(NULL, where, "type", true, "x", &s, &err), TERN_E_FORMAT,
               "config.json: rope_scaling: type is missing");
  assert_error(&err, cfg_obj_float(o, where, "type", true, 0, &f, &err), TERN_E_FORMAT,
               "config.json: rope_scaling: type: must be a number, is the string \"yarn\"");
  int *ints;
  double *floats;
  const char **names;
  size_t n;
  assert_int_equal(cfg_obj_ints(o, where, "list", true, &ints, &n, &err), TERN_OK);
  assert_true(n == 3 && ints[1] == 2);
  mem_free(ints);
  assert_int_equal(cfg_obj_floats(o, where, "list", true, &floats, &n, &err), TERN_OK);
  assert_true(n == 3 && floats[2] == 3);
  mem_free(floats);
  assert_int_equal(cfg_obj_strings(o, where, "names", true, &names, &n, &err), TERN_OK);
  assert_int_equal(n, 2);
  assert_string_equal(names[1], "y");
  mem_free(names);
  assert_int_equal(cfg_obj_ints(o, where, "null", false, &ints, &n, &err), TERN_OK);
  assert_true(!ints && n == 0);
  assert_error(&err, cfg_obj_ints(o, where, "null", true, &ints, &n, &err), TERN_E_FORMAT,
               "rope_scaling: null is missing");
  assert_error(&err, cfg_obj_ints(o, where, "factor", true, &ints, &n, &err), TERN_E_FORMAT,
               "rope_scaling: factor: must be a list, is 8");
  assert_error(&err, cfg_obj_ints(o, where, "bad", true, &ints, &n, &err), TERN_E_FORMAT,
               "rope_scaling: bad[1]: must be a whole number|is the string \"x\"");
  assert_error(&err, cfg_obj_strings(o, where, "bad", true, &names, &n, &err), TERN_E_FORMAT,
               "rope_scaling: bad[0]: must be a string, is 1");
  shape sh;
  assert_error(&err, cfg_read_object(o, where, fields, FIELDS, &sh, &err), TERN_E_FORMAT,
               "config.json: rope_scaling: hidden_size is missing");
  cfg_close(c);
}

/* ---- token ids ---- */

static void expect_eos(const char *config, const char *generation, const char *want)
{
  cfg *c = parse2(config, generation);
  int32_t *ids;
  size_t n;
  tern_error err = {0};
  assert_int_equal(cfg_eos_ids(c, &ids, &n, &err), TERN_OK);
  char got[100] = "";
  for (size_t i = 0; i < n; i++)
    snprintf(got + strlen(got), sizeof got - strlen(got), "%d ", ids[i]);
  assert_string_equal(got, want);
  mem_free(ids);
  cfg_close(c);
}

static void end_ids_are_united(void **state)
{
  (void)state;
  expect_eos("{\"model_type\":\"a\"}", NULL, "");
  expect_eos("{\"model_type\":\"a\",\"eos_token_id\":7}", NULL, "7 ");
  expect_eos("{\"model_type\":\"a\",\"eos_token_id\":[7,8,7]}", "{}", "7 8 ");
  expect_eos("{\"model_type\":\"a\",\"eos_token_id\":[7,8]}", "{\"eos_token_id\":9}", "9 7 8 ");
  expect_eos("{\"model_type\":\"a\",\"text_config\":{\"eos_token_id\":[1]}}", "{\"eos_token_id\":[2,1]}", "2 1 ");
  expect_eos("{\"model_type\":\"a\",\"eos_token_id\":null}", "{\"eos_token_id\":[]}", "");
  static const struct {
    const char *config, *generation, *says;
  } cases[] = {
      {"{\"model_type\":\"a\",\"eos_token_id\":\"</s>\"}", "{}", "config.json: eos_token_id: must be a whole number"},
      {"{\"model_type\":\"a\",\"eos_token_id\":-1}", "{}", "config.json: eos_token_id: must be|is -1"},
      {"{\"model_type\":\"a\",\"eos_token_id\":[1,null]}", "{}", "config.json: eos_token_id: must be|is null"},
      {"{\"model_type\":\"a\"}", "{\"eos_token_id\":[[1]]}", "generation_config.json: eos_token_id: must be|is a list"},
      {"{\"model_type\":\"a\",\"text_config\":{\"eos_token_id\":false}}", "{}",
       "config.json: text_config: eos_token_id: must be|is false"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cfg *c = parse2(cases[i].config, cases[i].generation);
    int32_t *ids;
    size_t n;
    tern_error err = {0};
    assert_error(&err, cfg_eos_ids(c, &ids, &n, &err), TERN_E_FORMAT, cases[i].says);
    cfg_close(c);
  }
}

static void the_first_id_is_found(void **state)
{
  (void)state;
  static const struct {
    const char *config, *generation;
    int want;
  } cases[] = {
      {"{\"model_type\":\"a\"}", NULL, -1},
      {"{\"model_type\":\"a\",\"bos_token_id\":null}", "{\"bos_token_id\":4}", 4},
      {"{\"model_type\":\"a\",\"bos_token_id\":0}", "{\"bos_token_id\":4}", 0},
      {"{\"model_type\":\"a\",\"text_config\":{\"bos_token_id\":3}}", "{\"bos_token_id\":4}", 3},
  };
  tern_error err = {0};
  int32_t id;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cfg *c = parse2(cases[i].config, cases[i].generation);
    assert_int_equal(cfg_bos_id(c, &id, &err), TERN_OK);
    assert_int_equal(id, cases[i].want);
    cfg_close(c);
  }
  cfg *c = parse("{\"model_type\":\"a\",\"bos_token_id\":[1]}");
  assert_error(&err, cfg_bos_id(c, &id, &err), TERN_E_FORMAT, "config.json: bos_token_id: must be|is a list");
  cfg_close(c);
}

/* ---- harm ---- */

static const char WHOLE[] =
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"eos_token_id\":[1,2],\"x\":[Infinity,-1.5e3],"
    "\"text_config\":{\"n_embd\":8,\"name\":\"\\u00e9\"},\"rope_theta\":NaN,\"tie_word_embeddings\":1}";

static tern_status use_all(const char *text, size_t n, tern_error *err)
{
  cfg *c = NULL;
  TRY(cfg_parse(text, n, "{\"eos_token_id\":3}", 18, &c, err));
  shape s;
  int32_t *ids = NULL;
  size_t count;
  tern_status status = cfg_read(c, CFG_TEXT, fields, FIELDS, &s, err);
  if (status == TERN_OK)
    status = cfg_eos_ids(c, &ids, &count, err);
  mem_free(ids);
  cfg_close(c);
  return status;
}

static tern_status use_whole(tern_error *err)
{
  return use_all(WHOLE, sizeof WHOLE - 1, err);
}

static tern_status open_files(tern_error *err)
{
  cfg *c = NULL;
  TRY(cfg_open(folder, &c, err));
  cfg_close(c);
  return TERN_OK;
}

static void allocation_failures_are_reported(void **state)
{
  (void)state;
  with_failing_allocations(use_whole);
  empty_folder();
  put_text("config.json", WHOLE);
  put_text("generation_config.json", "{\"eos_token_id\":3}");
  with_failing_allocations(open_files);
}

static void damaged_text_does_no_harm(void **state)
{
  (void)state;
  uint8_t bad[sizeof WHOLE + 16];
  chance c = {2};
  int refused = 0;
  for (int round = 0; round < 50000; round++) {
    size_t n = damage(&c, (const uint8_t *)WHOLE, sizeof WHOLE - 1, bad);
    bad[n] = '\0';
    tern_error err = {0};
    tern_status status = use_all((const char *)bad, n, &err);
    if (status == TERN_OK)
      continue;
    assert_one_line(&err, status);
    refused++;
  }
  assert_in_range(refused, 20000, 49000);
}

/* Digits of numbers are written as such; strings that only look like them stay, wherever they stand. */
static void digits_are_written(void **state)
{
  static const char *const texts[][2] = {
      {"{\"a\": \"\\u0000int:12\", \"b\": [\"\\u0000int:-3\"]}", "{\"a\": 12, \"b\": [-3]}"},
      {"{\"a\": \"\\u0000int:5,\"}", NULL},
      {"{\"a\": \"\\u0000int:\"}", NULL},
      {"{\"a\": \"x\\\"\\u0000int:5\"}", NULL},
      {"{\"a\": \"\\u0000int:5\\\"\"}", NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char text[128];
    strcpy(text, texts[i][0]);
    jsonu_write_digits(text);
    assert_string_equal(text, texts[i][1] ? texts[i][1] : texts[i][0]);
  }
}

/* As many digits as Python's int reads, the sign aside. */
static void digits_are_counted(void **state)
{
  (void)state;
  for (int minus = 0; minus < 2; minus++)
    for (int n = 4300; n <= 4301; n++) {
      char text[4400] = "{\"a\": ";
      size_t at = strlen(text);
      bool any = false;
      json_t *out = NULL;
      tern_error err = {0};
      if (minus)
        text[at++] = '-';
      memset(text + at, '7', (size_t)n);
      strcpy(text + at + n, "}");
      assert_int_equal(jsonu_parse_digits("x", text, strlen(text), &any, &out, &err), TERN_OK);
      assert_int_equal(any, n == 4300);
      json_decref(out);
    }
}

int main(void)
{
  json_set_alloc_funcs(mem_alloc, mem_free); /* so that its allocations can be made to fail as well */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_are_opened),
      cmocka_unit_test(broken_files_are_named),
      cmocka_unit_test(sizes_are_bounded),
      cmocka_unit_test(python_numbers_are_read),
      cmocka_unit_test(near_misses_are_refused),
      cmocka_unit_test(tables_fill_structs),
      cmocka_unit_test(wrong_values_name_their_key),
      cmocka_unit_test(what_nobody_read_is_listed),
      cmocka_unit_test(members_of_objects_are_read),
      cmocka_unit_test(end_ids_are_united),
      cmocka_unit_test(the_first_id_is_found),
      cmocka_unit_test(allocation_failures_are_reported),
      cmocka_unit_test(damaged_text_does_no_harm),
      cmocka_unit_test(digits_are_written),
      cmocka_unit_test(digits_are_counted),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
