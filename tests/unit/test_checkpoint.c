/* test_checkpoint.c - directories of shards: what is found, what contradicts itself, what is missing. */
#include "unit/format_files.h"

#include <jansson.h>
#include <sys/resource.h>

#include "base/map.h"
#include "format/checkpoint.h"

#define U8_AT(name, begin, end) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" #begin "," #end "]}"

static const char FIRST[] = "{" U8_AT("a", 0, 1) "," U8_AT("b", 1, 2) "}", SECOND[] = "{" U8_AT("c", 0, 1) "}";

static void lay_out(void)
{
  empty_folder();
  put_st("model-00002-of-00002.safetensors", SECOND, 1);
  put_st("model-00001-of-00002.safetensors", FIRST, 2);
  put_st("consolidated.safetensors", "{" U8_AT("x", 0, 1) "}", 1);
  put_text("model.safetensors.index.json", "{\"metadata\":{\"total_size\":3},\"weight_map\":{"
                                           "\"a\":\"model-00001-of-00002.safetensors\","
                                           "\"b\":\"model-00001-of-00002.safetensors\","
                                           "\"c\":\"model-00002-of-00002.safetensors\"}}");
}

static void shards_become_one(void **state)
{
  (void)state;
  lay_out();
  ckpt *c;
  tern_error err = {0};
  assert_int_equal(ckpt_open(folder, &c, &err), TERN_OK);
  assert_int_equal(ckpt_count(c), 3);
  assert_int_equal(ckpt_files(c), 2);
  assert_int_equal(ckpt_bytes(c), 3);
  static const char *const names[] = {"a", "b", "c"};
  for (size_t i = 0; i < 3; i++) {
    const st_tensor *t = ckpt_find(c, names[i]);
    assert_ptr_equal(t, ckpt_at(c, i));
    assert_int_equal(ckpt_index(c, t), i);
    assert_string_equal(ckpt_file(c, t),
                        i < 2 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors");
    assert_false(ckpt_marked(c, t));
    ckpt_mark(c, t);
    assert_true(ckpt_marked(c, t));
    assert_int_equal(*t->data, i == 2 ? 0 : i);
  }
  assert_null(ckpt_find(c, "x"));
  assert_int_equal(ckpt_file_at(c, 1)->n_tensors, 1);
  assert_false(ckpt_broken(c));
  assert_int_equal(ckpt_lock(c, &err), TERN_OK);
  ckpt_close(c);
  ckpt_close(NULL);
}

static void expect(tern_status want, const char *says)
{
  ckpt *c = NULL;
  tern_error err = {0};
  tern_status status = ckpt_open(folder, &c, &err);
  if (status == TERN_OK)
    ckpt_close(c);
  assert_error(&err, status, want, says);
}

static void contradictions_are_errors(void **state)
{
  (void)state;
  lay_out();
  put_st("model-00002-of-00002.safetensors", "{" U8_AT("b", 0, 1) "}", 1);
  expect(TERN_E_FORMAT,
         "tensor \"b\" is in two shards|model-00001-of-00002.safetensors|model-00002-of-00002.safetensors");

  lay_out();
  unlink(in_folder("model-00002-of-00002.safetensors"));
  expect(TERN_E_NOT_FOUND, "index.json|\"model-00002-of-00002.safetensors\"|tensor \"c\"|absent");

  lay_out();
  put_st("model-00002-of-00002.safetensors", "{" U8_AT("d", 0, 1) "}", 1);
  expect(TERN_E_FORMAT, "index.json|tensor \"c\"|model-00002-of-00002.safetensors|in no shard");

  lay_out();
  put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"model-00002-of-00002.safetensors\"}}");
  expect(TERN_E_FORMAT, "index.json|tensor \"a\"|should be in model-00002-of-00002|is in model-00001-of-00002");

  put_text("model.safetensors.index.json", "{\"weight_map\":{\"x\":\"consolidated.safetensors\"}}");
  expect(TERN_E_NOT_FOUND, "index.json|\"consolidated.safetensors\"|not a model*.safetensors");

  put_text("model.safetensors.index.json", "{\"weight_map\":{\"x\":\"model/../../model.safetensors\"}}");
  expect(TERN_E_NOT_FOUND, "index.json|not a model*.safetensors");

  static const struct {
    const char *text, *says;
  } broken[] = {
      {"{\"weight_map\":{\"a\":1}}", "index.json: weight_map: \"a\"|not a string"},
      {"{\"weight_map\":[]}", "index.json: weight_map is not an object"},
      {"{}", "index.json: weight_map is not an object"},
      {"[]", "index.json: not a JSON object"},
      {"{", "index.json: line 1"},
      {"", "index.json: line 1"},
  };
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    put_text("model.safetensors.index.json", broken[i].text);
    expect(TERN_E_FORMAT, broken[i].says);
  }

  lay_out();
  put_st("model-00002-of-00002.safetensors", SECOND, 0);
  expect(TERN_E_FORMAT, "model-00002-of-00002.safetensors: tensor \"c\": truncated");
}

static void an_index_may_say_less(void **state)
{
  (void)state;
  lay_out();
  put_text("model.safetensors.index.json", "{\"weight_map\":{}}");
  ckpt *c;
  tern_error err = {0};
  assert_int_equal(ckpt_open(folder, &c, &err), TERN_OK);
  assert_int_equal(ckpt_count(c), 3);
  ckpt_close(c);
}

static void missing_weights_say_what_is_there(void **state)
{
  (void)state;
  static const struct {
    const char *file, *says;
  } cases[] = {
      {"pytorch_model.bin", "no model*.safetensors|PyTorch *.bin|mlx_lm.convert"},
      {"consolidated.00.pth", "no model*.safetensors|*.pth"},
      {"weights.npz", "no model*.safetensors|*.npz"},
      {"consolidated.safetensors", "no model*.safetensors|other *.safetensors"},
      {"m-Q4.gguf", "no model*.safetensors|GGUF|tern import"}, /* beside those before it: the first advice wins */
  };
  empty_folder();
  expect(TERN_E_NOT_FOUND, "no model*.safetensors in it");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_text(cases[i].file, "");
    expect(TERN_E_NOT_FOUND, cases[i].says);
    if (i < 3)
      unlink(in_folder(cases[i].file));
  }
  ckpt *c;
  tern_error err = {0};
  assert_error(&err, ckpt_open(in_folder("absent"), &c, &err), TERN_E_NOT_FOUND, "absent|cannot open");
  assert_error(&err, ckpt_open(in_folder("m-Q4.gguf"), &c, &err), TERN_E_IO, "m-Q4.gguf|cannot open");
  empty_folder();
  assert_int_equal(mkdir(in_folder("model.safetensors"), 0777), 0);
  expect(TERN_E_IO, "model.safetensors: not a regular file");
}

static void a_shrinking_shard_is_named(void **state)
{
  (void)state;
  map_guard_install();
  lay_out();
  put_st("model-00002-of-00002.safetensors", "{\"c\":{\"dtype\":\"U8\",\"shape\":[65536],\"data_offsets\":[0,65536]}}",
         65536);
  ckpt *c;
  tern_error err = {0};
  assert_int_equal(ckpt_open(folder, &c, &err), TERN_OK);
  assert_int_equal(ckpt_check(c, &err), TERN_OK);
  assert_int_equal(truncate(in_folder("model-00002-of-00002.safetensors"), 10), 0);
  volatile uint8_t last = ckpt_find(c, "c")->data[65535];
  assert_int_equal(last, 0);
  assert_true(ckpt_broken(c));
  assert_error(&err, ckpt_check(c, &err), TERN_E_IO, "model-00002-of-00002.safetensors|shrank");
  ckpt_close(c);
}

static void a_lock_that_is_refused_says_the_limit(void **state)
{
  (void)state;
  lay_out();
  struct rlimit old, tight;
  assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
  tight = old;
  tight.rlim_cur = 0;
  assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &tight), 0);
  ckpt *c;
  tern_error err = {0};
  assert_int_equal(ckpt_open(folder, &c, &err), TERN_OK);
  tern_status status = ckpt_lock(c, &err);
  if (status != TERN_OK) /* root may lock whatever the limit is */
    assert_error(&err, status, TERN_E_IO, "mlock of 3 bytes|ulimit -l|model-00001-of-00002.safetensors");
  else
    assert_int_equal(geteuid(), 0);
  assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
  ckpt_close(c);
}

static tern_status open_and_close(tern_error *err)
{
  ckpt *c = NULL;
  TRY(ckpt_open(folder, &c, err));
  ckpt_close(c);
  return TERN_OK;
}

static void allocation_failures_are_reported(void **state)
{
  (void)state;
  lay_out();
  with_failing_allocations(open_and_close);
}

static void damaged_indexes_do_no_harm(void **state)
{
  (void)state;
  lay_out();
  static const char good[] = "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\"}}";
  uint8_t bad[200];
  chance c = {3};
  for (int round = 0; round < 3000; round++) {
    put_file(in_folder("model.safetensors.index.json"), bad, damage(&c, (const uint8_t *)good, sizeof good - 1, bad));
    tern_error err = {0};
    tern_status status = open_and_close(&err);
    if (status != TERN_OK)
      assert_one_line(&err, status);
  }
}

int main(void)
{
  json_set_alloc_funcs(mem_alloc, mem_free); /* so that its allocations can be made to fail as well */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shards_become_one),
      cmocka_unit_test(contradictions_are_errors),
      cmocka_unit_test(an_index_may_say_less),
      cmocka_unit_test(missing_weights_say_what_is_there),
      cmocka_unit_test(a_shrinking_shard_is_named),
      cmocka_unit_test(a_lock_that_is_refused_says_the_limit),
      cmocka_unit_test(allocation_failures_are_reported),
      cmocka_unit_test(damaged_indexes_do_no_harm),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
