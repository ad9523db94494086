/* test_quant_config.c - quantisation options: what each entry means, what is refused, and shapes against them. */
#include "unit/format_files.h"

#include <jansson.h>

#include "format/quant_config.h"

/* Reads {"model_type":"a", members}. */
static tern_status open_members(const char *members, quant_config **out, tern_error *err)
{
  char text[1000];
  snprintf(text, sizeof text, "{\"model_type\":\"a\"%s%s}", *members ? "," : "", members);
  cfg *c = NULL;
  TRY(cfg_parse(text, strlen(text), NULL, 0, &c, err));
  tern_status status = quant_open(c, out, err);
  cfg_close(c); /* before the result is used */
  return status;
}

static quant_config *open_good(const char *members)
{
  quant_config *q = NULL;
  tern_error err = {0};
  if (open_members(members, &q, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return q;
}

static void expect_params(quant_params p, quant_mode mode, int group_size, int bits)
{
  assert_int_equal(p.mode, mode);
  assert_int_equal(p.group_size, group_size);
  assert_int_equal(p.bits, bits);
}

static void globals_are_read(void **state)
{
  (void)state;
  static const struct {
    const char *members;
    bool present;
    quant_mode mode;
    int group_size, bits;
    const char *source;
  } cases[] = {
      {"", false, 0, 0, 0, ""},
      {"\"quantization\":null", false, 0, 0, 0, ""},
      {"\"quantization_config\":{}", false, 0, 0, 0, ""},
      {"\"quantization_config\":null,\"quantize_activations\":false", false, 0, 0, 0, ""},
      {"\"text_config\":{\"quantization\":{\"bits\":4}}", false, 0, 0, 0, ""},
      {"\"quantization\":{\"group_size\":64,\"bits\":4}", true, QUANT_AFFINE, 64, 4, "quantization"},
      {"\"quantization\":{\"group_size\":128,\"bits\":3,\"mode\":\"affine\"}", true, QUANT_AFFINE, 128, 3,
       "quantization"},
      {"\"quantization\":{\"group_size\":null,\"bits\":null}", true, QUANT_AFFINE, 64, 4, "quantization"},
      {"\"quantization\":{\"group_size\":null,\"bits\":null,\"mode\":\"mxfp8\"}", true, QUANT_MXFP8, 32, 8,
       "quantization"},
      {"\"quantization\":{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"}", true, QUANT_MXFP4, 32, 4, "quantization"},
      {"\"quantization\":{\"group_size\":16,\"bits\":4,\"mode\":\"nvfp4\"}", true, QUANT_NVFP4, 16, 4, "quantization"},
      {"\"quantization_config\":{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[]}", true, QUANT_MXFP4, 32, 4,
       "quant_method mxfp4"},
      {"\"text_config\":{\"quantization_config\":{\"quant_method\":\"mxfp4\"}}", true, QUANT_MXFP4, 32, 4,
       "quant_method mxfp4"},
      /* `quantization` rules, whatever the older key says */
      {"\"quantization\":{\"group_size\":32,\"bits\":8},\"quantization_config\":{\"group_size\":32,\"bits\":8}", true,
       QUANT_AFFINE, 32, 8, "quantization"},
      {"\"quantization\":{\"group_size\":32,\"bits\":8},\"quantization_config\":{\"quant_method\":\"fp8\"}", true,
       QUANT_AFFINE, 32, 8, "quantization"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    quant_config *q = open_good(cases[i].members);
    assert_int_equal(quant_present(q), cases[i].present);
    assert_string_equal(quant_source(q), cases[i].source);
    if (cases[i].present)
      expect_params(quant_globals(q), cases[i].mode, cases[i].group_size, cases[i].bits);
    quant_close(q);
  }
  quant_close(NULL);
}

static void every_affine_width_and_group_is_known(void **state)
{
  (void)state;
  static const int widths[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 64, -4};
  static const int groups[] = {0, 16, 32, 48, 64, 128, 256, -64};
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
      int bits = widths[w], group = groups[g];
      bool good = ((bits >= 2 && bits <= 6) || bits == 8) && (group == 32 || group == 64 || group == 128);
      char members[100];
      snprintf(members, sizeof members, "\"quantization\":{\"group_size\":%d,\"bits\":%d}", group, bits);
      quant_config *q = NULL;
      tern_error err = {0};
      tern_status status = open_members(members, &q, &err);
      if (good)
        assert_int_equal(status, TERN_OK);
      else
        assert_error(&err, status, TERN_E_UNSUPPORTED,
                     "config.json: quantization: affine with bits|it needs bits 2, 3, 4");
      if (status == TERN_OK)
        quant_close(q);
    }
}

static void wrong_options_are_named(void **state)
{
  (void)state;
#define G "\"quantization\":{\"group_size\":64,\"bits\":4"
  static const struct {
    const char *members;
    tern_status status;
    const char *says;
  } cases[] = {
      {"\"quantization\":[]", TERN_E_FORMAT, "config.json: quantization: not an object"},
      {"\"quantization\":{}", TERN_E_FORMAT, "config.json: quantization: group_size is missing"},
      {"\"quantization\":{\"group_size\":64}", TERN_E_FORMAT, "config.json: quantization: bits is missing"},
      {"\"quantization\":{\"bits\":4}", TERN_E_FORMAT, "config.json: quantization: group_size is missing"},
      {"\"quantization\":{\"group_size\":\"64\",\"bits\":4}", TERN_E_FORMAT, "quantization: group_size: must be"},
      {"\"quantization\":{\"group_size\":64,\"bits\":4.5}", TERN_E_FORMAT, "quantization: bits: must be|is 4.5"},
      {G ",\"mode\":\"int4\"}", TERN_E_UNSUPPORTED, "config.json: quantization: unknown mode \"int4\""},
      {G ",\"mode\":4}", TERN_E_FORMAT, "config.json: quantization: mode: must be a string"},
      {G ",\"mode\":\"mxfp4\"}", TERN_E_UNSUPPORTED,
       "mxfp4 with bits 4 and group_size 64: it needs bits 4 and group_size 32"},
      {G ",\"mode\":\"nvfp4\"}", TERN_E_UNSUPPORTED, "nvfp4 with bits 4 and group_size 64"},
      {G ",\"mode\":\"mxfp8\"}", TERN_E_UNSUPPORTED, "mxfp8 with bits 4 and group_size 64"},
      {G ",\"quant_method\":\"x\"}", TERN_E_FORMAT,
       "config.json: quantization: quant_method: neither a known key|\"x\""},
      {G ",\"lm_head\":8}", TERN_E_FORMAT, "config.json: quantization: lm_head: neither|is 8"},
      {G ",\"lm_head\":{\"bits\":7}}", TERN_E_UNSUPPORTED, "config.json: quantization: lm_head: affine with bits 7"},
      {G ",\"lm_head\":{\"bits\":4,\"axis\":0}}", TERN_E_UNSUPPORTED, "quantization: lm_head: unknown key \"axis\""},
      {G ",\"lm_head\":{\"mode\":\"x\"}}", TERN_E_UNSUPPORTED, "quantization: lm_head: unknown mode \"x\""},
      {G ",\"lm_head\":{\"quantize_input\":true}}", TERN_E_UNSUPPORTED, "quantization: lm_head: quantize_input"},
      {G ",\"lm_head\":{\"quantize_input\":\"yes\"}}", TERN_E_FORMAT, "quantization: lm_head: quantize_input: must be"},
      {"\"quantize_activations\":true", TERN_E_UNSUPPORTED, "config.json: quantize_activations"},
      {"\"quantization_config\":7", TERN_E_FORMAT, "config.json: quantization_config: not an object"},
      {"\"quantization_config\":{\"bits\":4,\"group_size\":64}", TERN_E_FORMAT,
       "config.json: quantization_config: quant_method is missing"},
      {"\"text_config\":{\"quantization_config\":{\"quant_method\":\"fp8\"}}", TERN_E_UNSUPPORTED,
       "config.json: text_config: quantization_config: quant_method \"fp8\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    quant_config *q = NULL;
    tern_error err = {0};
    tern_status status = open_members(cases[i].members, &q, &err);
    assert_error(&err, status, cases[i].status, cases[i].says);
  }
  static const char *const methods[] = {"awq", "gptq", "fp8", "compressed-tensors", "bitsandbytes", "mxfp4 "};
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    char members[100], says[100];
    snprintf(members, sizeof members, "\"quantization_config\":{\"quant_method\":\"%s\",\"bits\":4}", methods[i]);
    snprintf(says, sizeof says, "config.json: quantization_config: quant_method \"%s\"", methods[i]);
    quant_config *q = NULL;
    tern_error err = {0};
    tern_status status = open_members(members, &q, &err);
    assert_error(&err, status, TERN_E_UNSUPPORTED, says);
  }
}

static const char MIXED[] = "\"quantization\":{\"group_size\":32,\"bits\":8,\"mode\":\"mxfp8\","
                            "\"wide\":{\"bits\":6},\"fine\":{\"group_size\":32},\"four\":{\"mode\":\"mxfp4\"},"
                            "\"nv\":{\"mode\":\"nvfp4\",\"quantize_input\":false},\"same\":true,\"dense\":false,"
                            "\"empty\":{},\"null\":null,\"old.name\":{\"bits\":3}}";

static void entries_replace_the_globals(void **state)
{
  (void)state;
  quant_config *q = open_good(MIXED);
  static const struct {
    const char *path, *other;
    quant_mode mode;
    int group_size, bits;
  } cases[] = {
      {"elsewhere", NULL, QUANT_MXFP8, 32, 8},  {"wide", NULL, QUANT_AFFINE, 64, 6},
      {"fine", NULL, QUANT_AFFINE, 32, 4},      {"four", NULL, QUANT_MXFP4, 32, 4},
      {"nv", NULL, QUANT_NVFP4, 16, 4},         {"same", NULL, QUANT_MXFP8, 32, 8},
      {"new", "old.name", QUANT_AFFINE, 64, 3}, {"fine", "old.name", QUANT_AFFINE, 32, 4},
      {"new", "newer", QUANT_MXFP8, 32, 8},
  };
  tern_error err = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool quantised = false;
    quant_params p = {0};
    assert_int_equal(quant_find(q, cases[i].path, cases[i].other, true, &quantised, &p, &err), TERN_OK);
    assert_true(quantised);
    expect_params(p, cases[i].mode, cases[i].group_size, cases[i].bits);
  }
  bool quantised = true;
  quant_params p;
  static const char *const dense[] = {"elsewhere", "dense", "empty", "null"};
  for (size_t i = 0; i < 4; i++) {
    assert_int_equal(quant_find(q, dense[i], NULL, false, &quantised, &p, &err), TERN_OK);
    assert_false(quantised);
    tern_status status = quant_find(q, dense[i], NULL, true, &quantised, &p, &err);
    if (i > 0)
      assert_error(&err, status, TERN_E_FORMAT, "config.json: quantization|said not to be quantised, but its .scales");
  }
  assert_error(&err, quant_find(q, "x", "dense", true, &quantised, &p, &err), TERN_E_FORMAT, "dense: said not to be");
  assert_error(&err, quant_find(q, "same", NULL, false, &quantised, &p, &err), TERN_E_FORMAT,
               "config.json: quantization: same: said to be quantised, but its .scales is missing");
  quant_close(q);
}

static void unused_entries_are_listed(void **state)
{
  (void)state;
  quant_config *q = open_good("\"quantization\":{\"group_size\":32,\"bits\":8,\"a\":true,\"b\":false,\"c\":true}");
  bool quantised;
  quant_params p;
  tern_error err = {0};
  assert_int_equal(quant_find(q, "z", "b", false, &quantised, &p, &err), TERN_OK);
  size_t cursor = 0;
  assert_string_equal(quant_unused(q, &cursor), "a");
  assert_string_equal(quant_unused(q, &cursor), "c");
  assert_null(quant_unused(q, &cursor));
  quant_close(q);
}

static void scales_without_options_are_refused(void **state)
{
  (void)state;
  quant_config *q = open_good("");
  bool quantised = true;
  quant_params p;
  tern_error err = {0};
  assert_int_equal(quant_find(q, "m", NULL, false, &quantised, &p, &err), TERN_OK);
  assert_false(quantised);
  assert_error(&err, quant_find(q, "m", NULL, true, &quantised, &p, &err), TERN_E_FORMAT,
               "config.json: quantization is missing|\"m.scales\"");
  quant_close(q);
}

/* ---- shapes ---- */

static void packed_shapes_must_agree(void **state)
{
  (void)state;
  static const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
  tern_error err = {0};
  int64_t k = 0;
  for (int w = 0; w < 6; w++)
    for (int g = 0; g < 3; g++) {
      quant_params p = {QUANT_AFFINE, groups[g], widths[w]};
      int64_t columns = 3 * 128;
      assert_int_equal(quant_check_shape("t", p, columns * widths[w] / 32, columns / groups[g], &k, &err), TERN_OK);
      assert_int_equal(k, columns);
    }
  quant_params p = {QUANT_AFFINE, 64, 4};
  assert_error(&err, quant_check_shape("m.weight", p, 16, 1, &k, &err), TERN_E_FORMAT,
               "tensor \"m.weight\": packed with 8 bits|16 words for 1 groups of 64|config.json says 4");
  assert_error(&err, quant_check_shape("m.weight", p, 15, 2, &k, &err), TERN_E_FORMAT,
               "tensor \"m.weight\": 15 words do not pack 2 groups of 64|config.json says 4");
  assert_error(&err, quant_check_shape("m.weight", p, 8, 0, &k, &err), TERN_E_FORMAT, "8 words and 0 scales");
  assert_error(&err, quant_check_shape("m.weight", p, 0, 1, &k, &err), TERN_E_FORMAT, "\"m.weight\"|0");
  assert_error(&err, quant_check_shape("m.weight", p, INT64_MAX, 1, &k, &err), TERN_E_FORMAT, "\"m.weight\"");
  assert_error(&err, quant_check_shape("m.weight", p, 1, INT64_MAX, &k, &err), TERN_E_FORMAT, "\"m.weight\"");
}

static void packed_tensors_must_fit(void **state)
{
  (void)state;
  const st_tensor w = {.name = "m.weight", .dtype = ST_U32, .rank = 2, .shape = {6, 16}},
                  s = {.name = "m.scales", .dtype = ST_BF16, .rank = 2, .shape = {6, 2}},
                  b = {.name = "m.biases", .dtype = ST_BF16, .rank = 2, .shape = {6, 2}};
  const quant_params affine = {QUANT_AFFINE, 64, 4}, mx = {QUANT_MXFP4, 32, 4};
  tern_error err = {0};
  int64_t k = 0;
  assert_int_equal(quant_check_tensors(affine, &w, &s, &b, &k, &err), TERN_OK);
  assert_int_equal(k, 128);
  st_tensor x = s;
  x.dtype = ST_U8;
  x.shape[1] = 4;
  assert_int_equal(quant_check_tensors(mx, &w, &x, NULL, &k, &err), TERN_OK);
  assert_int_equal(k, 128);
  assert_error(&err, quant_check_tensors(affine, &w, &x, &b, &k, &err), TERN_E_FORMAT, "\"m.scales\": U8|affine|BF16");
  assert_error(&err, quant_check_tensors(mx, &w, &s, NULL, &k, &err), TERN_E_FORMAT, "\"m.scales\": BF16|mxfp4 are U8");
  assert_error(&err, quant_check_tensors(mx, &w, &x, &b, &k, &err), TERN_E_FORMAT, "\"m.biases\"|mxfp4 has no biases");
  assert_error(&err, quant_check_tensors(affine, &w, &s, NULL, &k, &err), TERN_E_FORMAT, "\"m.biases\"|\"m.scales\"");
  x = w;
  x.dtype = ST_BF16;
  assert_error(&err, quant_check_tensors(affine, &x, &s, &b, &k, &err), TERN_E_FORMAT, "\"m.weight\"|U32|BF16");
  x = w;
  x.rank = 1;
  assert_error(&err, quant_check_tensors(affine, &x, &s, &b, &k, &err), TERN_E_FORMAT, "\"m.weight\"|rank 1");
  x = s;
  x.shape[0] = 5;
  assert_error(&err, quant_check_tensors(affine, &w, &x, &b, &k, &err), TERN_E_FORMAT,
               "\"m.scales\": BF16 [5, 2]|\"m.weight\", U32 [6, 16]");
  x = b;
  x.shape[1] = 3;
  assert_error(&err, quant_check_tensors(affine, &w, &s, &x, &k, &err), TERN_E_FORMAT,
               "\"m.biases\"|[6, 3]|\"m.scales\"");
  x = b;
  x.dtype = ST_F16;
  assert_error(&err, quant_check_tensors(affine, &w, &s, &x, &k, &err), TERN_E_FORMAT, "\"m.biases\": F16");
  assert_error(&err, quant_check_tensors((quant_params){QUANT_AFFINE, 64, 8}, &w, &s, &b, &k, &err), TERN_E_FORMAT,
               "\"m.weight\": packed with 4 bits|says 8");
}

/* ---- harm ---- */

static tern_status open_mixed(tern_error *err)
{
  quant_config *q = NULL;
  TRY(open_members(MIXED, &q, err));
  quant_close(q);
  return TERN_OK;
}

static void allocation_failures_are_reported(void **state)
{
  (void)state;
  with_failing_allocations(open_mixed);
}

static void damaged_options_do_no_harm(void **state)
{
  (void)state;
  char bad[sizeof MIXED + 16];
  chance c = {4};
  for (int round = 0; round < 30000; round++) {
    size_t n = damage(&c, (const uint8_t *)MIXED, sizeof MIXED - 1, (uint8_t *)bad);
    bad[n] = '\0';
    quant_config *q = NULL;
    tern_error err = {0};
    tern_status status = open_members(bad, &q, &err);
    if (status == TERN_OK)
      quant_close(q);
    else
      assert_one_line(&err, status);
  }
}

int main(void)
{
  json_set_alloc_funcs(mem_alloc, mem_free); /* so that its allocations can be made to fail as well */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(globals_are_read),
      cmocka_unit_test(every_affine_width_and_group_is_known),
      cmocka_unit_test(wrong_options_are_named),
      cmocka_unit_test(entries_replace_the_globals),
      cmocka_unit_test(unused_entries_are_listed),
      cmocka_unit_test(scales_without_options_are_refused),
      cmocka_unit_test(packed_shapes_must_agree),
      cmocka_unit_test(packed_tensors_must_fit),
      cmocka_unit_test(allocation_failures_are_reported),
      cmocka_unit_test(damaged_options_do_no_harm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
