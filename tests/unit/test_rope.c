/* test_rope.c - the rope factory and the rotation against what the reference gives for every kind (golden/rope.json,
 * made by golden/make_rope.py), and the settings that must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "model/rope.h"
#include "ops/ref/ref.h"

/* The vector of make_rope.py, rounded to the type. */
static void fill(float *x, int dims, ops_dtype type)
{
  for (int i = 0; i < dims; i++)
    x[i] = ops_round(type, (float)((double)(i * 37 % 101) / 50 - 1));
}

static void check_rows(const char *name, const rope_table *table, const json_t *rows, const json_t *positions,
                       ops_dtype type)
{
  float x[256];
  for (size_t p = 0; p < json_array_size(positions); p++) {
    fill(x, table->dims, type);
    op_record r = {.kind = OP_rope};
    r.rope = (struct op_rope){.q = x,
                              .q_heads = 1,
                              .head_dim = table->dims,
                              .dims = table->dims,
                              .inverse = table->inverse,
                              .position_scale = table->position_scale,
                              .mscale = table->mscale,
                              .traditional = table->traditional,
                              .ntk_from = table->ntk_from,
                              .ntk_base = table->ntk_base,
                              .ntk_scale = table->ntk_scale,
                              .type = type};
    ops_row row = {.count = 1, .kind = ROW_STEP, .position = json_integer_value(json_array_get(positions, p))};
    ops_step step = {.tokens = 1, .rows = 1, .row = &row};
    ref_rope(NULL, &r, &step);
    const json_t *want = json_array_get(rows, p);
    assert_int_equal(json_array_size(want), table->dims);
    for (int i = 0; i < table->dims; i++) {
      uint32_t bits = (uint32_t)strtoul(json_string_value(json_array_get(want, (size_t)i)), NULL, 16);
      if (f32_bits(x[i]) != bits)
        fail_msg("%s at position %lld, dim %d: %08x, not %08x", name, (long long)row.position, i, f32_bits(x[i]), bits);
    }
  }
}

static rope_kind kind_of(const char *name)
{
  static const struct {
    const char *name;
    rope_kind kind;
  } kinds[] = {{"factory", ROPE_FACTORY},   {"ntk", ROPE_NTK}, {"ntk-alpha", ROPE_NTK_ALPHA},
               {"backward", ROPE_BACKWARD}, {"su", ROPE_SU},   {"linear", ROPE_LINEAR}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, name) == 0)
      return kinds[i].kind;
  fail_msg("no rope kind %s", name);
  return ROPE_SAME;
}

static void rotations_have_the_references_bits(void **state)
{
  (void)state;
  json_error_t fault;
  json_t *root = json_load_file(TERN_SOURCE_DIR "/tests/golden/rope.json", 0, &fault);
  assert_non_null(root);
  const json_t *positions = json_object_get(root, "positions"), *cases = json_object_get(root, "cases"), *c;
  assert_true(json_array_size(cases) > 10);
  size_t i;
  json_array_foreach(cases, i, c)
  {
    const json_t *scaling = json_object_get(c, "scaling");
    rope_config config = {.kind = kind_of(json_string_value(json_object_get(c, "kind"))),
                          .original_positions = (int)json_integer_value(json_object_get(c, "original")),
                          .base = json_number_value(json_object_get(c, "base")),
                          .dims = (int)json_integer_value(json_object_get(c, "dims")),
                          .traditional = json_is_true(json_object_get(c, "traditional")),
                          .scaling = json_is_null(scaling) ? NULL : scaling,
                          .max_positions = (int)json_integer_value(json_object_get(c, "max_positions"))};
    const char *name = json_string_value(json_object_get(c, "name"));
    rope_table table;
    tern_error err = {0};
    if (rope_make(&config, "rope_scaling", &table, &err) != TERN_OK)
      fail_msg("%s: %s", name, err.text);
    const json_t *rotated = json_object_get(c, "rotated");
    check_rows(name, &table, json_object_get(rotated, "float32"), positions, DT_F32);
    check_rows(name, &table, json_object_get(rotated, "bfloat16"), positions, DT_BF16);
    rope_free(&table);
  }
  json_decref(root);
}

static void unknown_settings_are_refused_by_name(void **state)
{
  (void)state;
  static const struct {
    const char *scaling, *named;
    rope_kind kind;
  } cases[] = {
      {"{\"type\":\"dynamic\",\"factor\":2}", "dynamic", ROPE_FACTORY},
      {"{\"type\":\"su\"}", "su", ROPE_FACTORY},
      {"{\"type\":7}", "type", ROPE_FACTORY},
      {"{\"type\":\"linear\"}", "factor", ROPE_FACTORY},
      {"{\"type\":\"linear\",\"factor\":\"2\"}", "factor", ROPE_FACTORY},
      {"{\"rope_type\":\"llama3\"}", "factor", ROPE_FACTORY},
      {"{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1,2],\"original_max_position_embeddings\":16}",
       "long_factor", ROPE_FACTORY},
      {"{\"type\":\"longrope\",\"long_factor\":2,\"original_max_position_embeddings\":16}", "short_factor",
       ROPE_FACTORY},
      {"{\"type\":\"proportional\",\"partial_rotary_factor\":1.5}", "partial_rotary_factor", ROPE_FACTORY},
      {"{\"type\":\"mrope\"}", "mrope_section", ROPE_FACTORY},
      {"{\"type\":\"yarn\",\"factor\":2}", "yarn", ROPE_LINEAR},
      {"{\"factor\":2}", "type", ROPE_LINEAR},
      {"{\"type\":\"yarn\",\"long_factor\":2}", "yarn", ROPE_SU},
      {"{\"type\":\"su\",\"short_factor\":2}", "long_factor", ROPE_SU},
      {"{\"type\":\"llama3\",\"factor\":2}", "llama3", ROPE_NTK},
      {"{\"type\":\"dynamic\"}", "factor", ROPE_NTK},
      {"{\"type\":\"dynamic\",\"factor\":2}", "alpha", ROPE_NTK_ALPHA},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *scaling = json_loads(cases[i].scaling, 0, NULL);
    assert_non_null(scaling);
    rope_config config = {.kind = cases[i].kind ? cases[i].kind : ROPE_FACTORY,
                          .base = 10000,
                          .dims = 32,
                          .scaling = scaling,
                          .max_positions = 4096};
    rope_table table;
    tern_error err = {0};
    assert_int_not_equal(rope_make(&config, "rope_scaling", &table, &err), TERN_OK);
    if (!strstr(err.text, cases[i].named))
      fail_msg("\"%s\" does not name %s", err.text, cases[i].named);
    json_decref(scaling);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rotations_have_the_references_bits),
      cmocka_unit_test(unknown_settings_are_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
