/* test_profile.c - resolution of profiles: which tier wins, and everything that refuses; the config fingerprint.
 *
 * Registries here are the tests' own: the resolver takes them as arguments. */
#include "unit/format_files.h"

#include "model/fingerprint.h"
#include "model/profile.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER_COMMIT "ffffffffffffffffffffffffffffffffffffffff"
#define ALL_OFFERS (CAP_DENSE | CAP_WRAPPED | CAP_WINDOWS | CAP_GROWN | CAP_TERNARY | CAP_EXACT | CAP_NATIVE)

static const char LLAMA[] =
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"intermediate_size\":128,"
    "\"num_attention_heads\":4,\"vocab_size\":320,\"rms_norm_eps\":1e-5}";

typedef struct subject {
  cfg *c;
  model_config config;
  profile_artifact artifact;
  profile_subject of;
  char fingerprint[SHA256_HEX];
} subject;

static subject *make(const char *text, const char *repo, const char *revision)
{
  subject *s = calloc(1, sizeof *s);
  tern_error err = {0};
  const arch *a = NULL;
  assert_non_null(s);
  if (cfg_parse(text, strlen(text), NULL, 0, &s->c, &err) != TERN_OK || profile_arch(s->c, NULL, &a, &err) != TERN_OK ||
      model_config_read(s->c, a, &s->config, &err) != TERN_OK ||
      model_config_fingerprint(&s->config, s->fingerprint, &err) != TERN_OK)
    fail_msg("%s", err.text);
  snprintf(s->artifact.repo, sizeof s->artifact.repo, "%s", repo ? repo : "");
  snprintf(s->artifact.revision, sizeof s->artifact.revision, "%s", revision ? revision : "");
  s->of = (profile_subject){.arch = a, .config = &s->config, .artifact = &s->artifact};
  return s;
}

static void drop(subject *s)
{
  cfg_close(s->c);
  free(s);
}

/* A targeted and a family row, both right for the llama above. */
static profile_row targeted(const char *fingerprint)
{
  return (profile_row){.id = "tiny",
                       .tier = TIER_TARGETED,
                       .repo = "some/tiny",
                       .revision = COMMIT,
                       .fingerprint = fingerprint,
                       .types = {"llama"},
                       .oracle = PROFILE_ORACLE,
                       .run = {.loop = LOOP_SPLIT}};
}

static profile_row family(void)
{
  return (profile_row){.id = "llamas",
                       .tier = TIER_FAMILY,
                       .types = {"llama", "smollm3"},
                       .oracle = PROFILE_ORACLE,
                       .run = {.loop = LOOP_SPLIT}};
}

static void expect(const profile_row *rows, size_t n, const subject *s, const char *id, profile_tier tier)
{
  const profile_registry g = {rows, n, ALL_OFFERS};
  model_profile p;
  tern_error err = {0};
  if (profile_resolve(&g, &s->of, &p, &err) != TERN_OK)
    fail_msg("%s", err.text);
  assert_string_equal(p.id, id);
  assert_int_equal(p.tier, tier);
  assert_string_equal(p.fingerprint, s->fingerprint);
}

static void refuses(const profile_row *rows, size_t n, uint32_t offers, const subject *s, const char *says,
                    const char *says_too)
{
  const profile_registry g = {rows, n, offers};
  model_profile p;
  tern_error err = {0};
  assert_int_equal(profile_resolve(&g, &s->of, &p, &err), TERN_E_UNSUPPORTED);
  if (!strstr(err.text, says) || !strstr(err.text, says_too))
    fail_msg("\"%s\" lacks \"%s\" or \"%s\"", err.text, says, says_too);
}

/* ---- tiers ---- */

static void exact_wins_over_family_over_generic(void **state)
{
  (void)state;
  subject *s = make(LLAMA, "some/tiny", COMMIT), *other = make(LLAMA, "some/tiny", OTHER_COMMIT),
          *namesake = make(LLAMA, "another/tiny", COMMIT), *folder_alone = make(LLAMA, NULL, NULL);
  profile_row rows[] = {family(), targeted(s->fingerprint)}, turned[] = {rows[1], rows[0]};
  expect(rows, 2, s, "targeted:tiny", TIER_TARGETED);
  expect(turned, 2, s, "targeted:tiny", TIER_TARGETED);
  expect(rows, 2, other, "family:llamas", TIER_FAMILY);
  expect(rows, 2, namesake, "family:llamas", TIER_FAMILY);
  expect(rows, 2, folder_alone, "family:llamas", TIER_FAMILY);
  expect(&rows[1], 1, other, "generic:llama", TIER_GENERIC);
  expect(NULL, 0, s, "generic:llama", TIER_GENERIC);
  drop(s), drop(other), drop(namesake), drop(folder_alone);
}

/* The next tier is never taken instead. */
static void a_target_of_another_config_refuses(void **state)
{
  (void)state;
  subject *s = make(LLAMA, "some/tiny", COMMIT);
  static const char wanted[] = "00000000000000000000000000000000000000000000000000000000000000aa";
  profile_row rows[] = {family(), targeted(wanted)};
  refuses(rows, 2, ALL_OFFERS, s, wanted, s->fingerprint);
  rows[1].fingerprint = s->fingerprint;
  rows[1].types[0] = "qwen2";
  refuses(rows, 2, ALL_OFFERS, s, "model_type llama", "not qwen2");
  drop(s);
}

static void what_is_missing_refuses(void **state)
{
  (void)state;
  subject *s = make(LLAMA, "some/tiny", COMMIT);
  profile_row rows[] = {family(), targeted(s->fingerprint)};
  rows[1].needs = CAP_FAST;
  refuses(rows, 2, ALL_OFFERS, s, "profile targeted:tiny", "needs: fast, but this build does not have it");
  refuses(rows, 1, ALL_OFFERS & ~(uint32_t)CAP_WINDOWS, s, "profile family:llamas", "needs: windows");
  refuses(NULL, 0, ALL_OFFERS & ~(uint32_t)CAP_DENSE, s, "profile generic:llama", "needs: dense");
  s->of.ternary = true;
  refuses(NULL, 0, ALL_OFFERS & ~(uint32_t)CAP_TERNARY, s, "profile generic:llama", "needs: ternary");
  s->of.ternary = false;
  s->of.numerics = TERN_FAST;
  refuses(NULL, 0, ALL_OFFERS, s, "numerics: fast is not available for llama", "there is exact and native");
  drop(s);
}

/* ---- what a row may say of itself ---- */

static void check_refuses(profile_row row, const char *type, const char *corrected, const char *says)
{
  tern_error err = {0};
  assert_int_equal(profile_check(&row, arch_find(type), corrected, ALL_OFFERS, &err), TERN_E_UNSUPPORTED);
  if (!strstr(err.text, says))
    fail_msg("\"%s\" lacks \"%s\"", err.text, says);
}

static void a_row_that_contradicts_itself_refuses(void **state)
{
  (void)state;
  profile_row row = family();
  row.oracle = "mlx-lm 0.30.0 on mlx-cpu 0.30.0";
  check_refuses(row, "llama", NULL, "oracle: mlx-lm 0.30.0");
  row.oracle = NULL;
  check_refuses(row, "llama", NULL, "oracle: none");
  row = family();
  check_refuses(row, "llama", "something", "fidelity: L1, but the reference had to be corrected");
  row.level = LEVEL_L2;
  check_refuses(row, "llama", NULL, "fidelity: L2, but nothing was corrected");
  row = family();
  row.run.loader = LOADER_WRAPPED;
  check_refuses(row, "llama", NULL, "graph: dense, but loader wrapped loads for graph dense-text");
  row.run.graph = GRAPH_DENSE_TEXT;
  check_refuses(row, "llama", NULL, "graph: dense-text, but llama is run by graph dense");
  row = family();
  check_refuses(row, "gemma3", NULL, "graph: dense, but gemma3 is run by graph dense-text");
  row.run.loop = LOOP_UNIFORM;
  check_refuses(row, "llama", NULL, "loop: uniform, but steps of llama");
  check_refuses(row, "internlm2", NULL, "loop: uniform, but steps of internlm2");
  tern_error err = {0};
  assert_int_equal(profile_check(&row, arch_find("qwen2"), NULL, ALL_OFFERS, &err), TERN_OK);
  assert_int_equal(profile_check(&row, arch_find("smollm3"), NULL, ALL_OFFERS, &err), TERN_OK); /* windows by masks */
}

static void registry_refuses(const profile_row *rows, size_t n, const char *says)
{
  const profile_registry g = {rows, n, ALL_OFFERS};
  tern_error err = {0};
  assert_int_equal(profile_registry_check(&g, &err), TERN_E_UNSUPPORTED);
  if (!strstr(err.text, says))
    fail_msg("\"%s\" lacks \"%s\"", err.text, says);
}

static void registries_are_checked(void **state)
{
  (void)state;
  static const char fingerprint[] = "00000000000000000000000000000000000000000000000000000000000000aa";
  tern_error err = {0};
  if (profile_registry_check(profile_builtin(), &err) != TERN_OK)
    fail_msg("%s", err.text);
  profile_row rows[] = {family(), targeted(fingerprint), family()};
  const profile_registry good = {rows, 2, ALL_OFFERS};
  if (profile_registry_check(&good, &err) != TERN_OK)
    fail_msg("%s", err.text);
  registry_refuses(rows, 3, "the same, but llamas");
  rows[2] = targeted(fingerprint);
  registry_refuses(rows, 3, "the same, but tiny");
  rows[2].revision = "main";
  registry_refuses(rows, 3, "artifact: main");
  rows[2] = targeted("abc");
  registry_refuses(rows, 3, "fingerprint: abc");
  rows[2] = targeted(NULL);
  registry_refuses(rows, 3, "fingerprint: none");
  rows[0].types[1] = "mistral"; /* an alias is no row */
  registry_refuses(rows, 1, "types: mistral");
  rows[0].types[0] = NULL;
  registry_refuses(rows, 1, "types: none");
  rows[0] = (profile_row){.id = "x", .types = {"llama"}};
  registry_refuses(rows, 1, "tier: generic");
}

/* ---- the rows that there are ---- */

static void every_type_has_a_generic_profile(void **state)
{
  (void)state;
  static const char *const corrected[] = {"bitnet", "olmo", "phi3small"};
  const arch *a;
  size_t found = 0;
  for (size_t i = 0; (a = arch_at(i)); i++) {
    model_profile p;
    tern_error err = {0};
    profile_row row = profile_generic_row(a, false);
    profile_generic(a, TERN_EXACT, &p);
    if (profile_check(&row, a, p.corrected, profile_builtin()->offers, &err) != TERN_OK)
      fail_msg("%s", err.text);
    bool expected = false;
    for (size_t k = 0; k < 3; k++)
      expected |= strcmp(corrected[k], a->name) == 0;
    assert_string_equal(p.fidelity, expected ? "L2" : "L1");
    assert_int_equal(p.corrected != NULL, expected);
    if (expected)
      assert_non_null(strstr(p.claim, p.corrected)); /* whole, not cut */
    found += expected;
  }
  assert_int_equal(found, 3);
}

/* quant_method bitnet brings ternary products, which the reference runs on no CPU, into any type. */
static void ternary_linears_lower_the_fidelity(void **state)
{
  (void)state;
  subject *s = make(LLAMA, NULL, NULL);
  model_profile p;
  tern_error err = {0};
  s->of.ternary = true;
  assert_int_equal(profile_resolve(profile_builtin(), &s->of, &p, &err), TERN_OK);
  assert_string_equal(p.fidelity, "L2");
  assert_non_null(strstr(p.claim, "ternary"));
  assert_true(p.needs & CAP_TERNARY);
  profile_row row = family();
  refuses(&row, 1, ALL_OFFERS, s, "fidelity: L1", "L2");
  drop(s);
}

/* ---- artifacts ---- */

static void artifacts_are_snapshots_alone(void **state)
{
  (void)state;
  char top[300], path[600], link[600];
  snprintf(top, sizeof top, "%s/models--Some-Org--tiny-model-1", folder);
  snprintf(path, sizeof path, "%s/snapshots", top);
  assert_int_equal(mkdir(top, 0777) | mkdir(path, 0777), 0);
  snprintf(path, sizeof path, "%s/snapshots/" COMMIT, top);
  snprintf(link, sizeof link, "%s/link", folder);
  assert_int_equal(mkdir(path, 0777) | symlink(path, link), 0);
  profile_artifact a;
  for (int i = 0; i < 3; i++) {
    char asked[700];
    snprintf(asked, sizeof asked, "%s%s", i == 1 ? link : path, i == 2 ? "/." : "");
    profile_artifact_of(asked, &a);
    assert_string_equal(a.repo, "Some-Org/tiny-model-1");
    assert_string_equal(a.revision, COMMIT);
  }
  remove(link);
  assert_int_equal(rmdir(path), 0);
  static const char bare[] = "models--Some-Org--tiny-model-1/" COMMIT;
  const char *const others[] = {"models--Some-Org--tiny-model-1/snapshots/main", bare,
                                "models--Some-Org--tiny-model-1/snapshots"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, others[i]);
    bool made = mkdir(path, 0777) == 0;
    profile_artifact_of(path, &a);
    assert_string_equal(a.repo, "");
    assert_string_equal(a.revision, "");
    if (made)
      rmdir(path);
  }
  profile_artifact_of("/no/such/models--a--b/snapshots/" COMMIT, &a);
  assert_string_equal(a.repo, "");
  profile_artifact_of(NULL, &a);
  assert_string_equal(a.repo, "");
  snprintf(path, sizeof path, "%s/snapshots", top);
  assert_int_equal(rmdir(path) | rmdir(top), 0);
}

/* ---- the fingerprint ---- */

static void same(const char *a, const char *b, bool want)
{
  subject *x = make(a, NULL, NULL), *y = make(b, NULL, NULL);
  if ((strcmp(x->fingerprint, y->fingerprint) == 0) != want)
    fail_msg("%s: %s\n%s", want ? "differ" : "are the same", a, b);
  drop(x), drop(y);
}

#define SIZES                                                                                                          \
  "\"hidden_size\":64,\"num_hidden_layers\":2,\"intermediate_size\":128,\"num_attention_heads\":4,\"vocab_size\":320"

static void the_fingerprint_is_of_the_meaning(void **state)
{
  (void)state;
  same(LLAMA, "{ \"rms_norm_eps\": 0.00001, " SIZES ",\n\"model_type\": \"llama\" }", true); /* order, white space */
  same(LLAMA, "{\"model_type\":\"mistral\"," SIZES ",\"rms_norm_eps\":1e-5}", true);         /* an alias of the type */
  same(LLAMA, "{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":1e-5,\"rope_theta\":10000,\"head_dim\":16}", true);
  same(LLAMA, "{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":1e-5,\"architectures\":[\"x\"],\"mlp_bias\":0}",
       true);
  same(LLAMA, "{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":1.0000000000000002e-5}", false);
  same(LLAMA, "{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}", false);
  same(LLAMA, "{\"model_type\":\"smollm3\"," SIZES ",\"rms_norm_eps\":1e-5,\"no_rope_layers\":[1,1]}", false);
#define ROPED(scaling) "{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":1e-5,\"rope_scaling\":" scaling "}"
  same(LLAMA, ROPED("{\"rope_type\":\"linear\",\"factor\":2}"), false);
  same(ROPED("{\"type\":\"linear\",\"factor\":2.0,\"x\":null}"), ROPED("{\"factor\":2,\"rope_type\":\"linear\"}"),
       true);
  same(ROPED("{\"type\":\"linear\",\"factor\":2}"), ROPED("{\"type\":\"linear\",\"factor\":2.5}"), false);
  same(ROPED("{\"type\":\"linear\",\"rope_type\":\"default\",\"factor\":2}"),
       ROPED("{\"rope_type\":\"default\",\"factor\":2}"), false); /* "type" wins */
  same(ROPED("{\"type\":\"\",\"rope_type\":\"linear\",\"factor\":2}"), ROPED("{\"rope_type\":\"linear\",\"factor\":2}"),
       true);
}

/* What was once shown stays: profiles are written against it. */
static void the_fingerprint_is_stable(void **state)
{
  (void)state;
  subject *s = make(LLAMA, NULL, NULL);
  assert_string_equal(s->fingerprint, "b58222cdf11113e77710aacf932434ea6838ffbf906104b1e415dbf1197f0fd9");
  drop(s);
}

/* A field that a row reads and the text does not show would let two configs pass for one. */
static void every_field_is_in_the_text(void **state)
{
  (void)state;
  const arch *a;
  for (size_t i = 0; (a = arch_at(i)); i++)
    for (size_t k = 0; k < a->n_fields; k++)
      if (a->fields[k].offset != offsetof(model_config, rope_scaling) && !model_config_text_has(a->fields[k].offset))
        fail_msg("%s: %s", a->name, a->fields[k].keys);
}

static void memory_may_run_out(void **state)
{
  (void)state;
  subject *s = make(ROPED("{\"type\":\"linear\",\"factor\":2}"), NULL, NULL);
  int64_t n = 0;
  for (tern_status status = TERN_E_NOMEM; status != TERN_OK; n++) {
    model_profile p;
    tern_error err = {0};
    mem_fail_after(n);
    status = profile_resolve(profile_builtin(), &s->of, &p, &err);
    mem_fail_after(-1);
    assert_true(status == TERN_OK || status == TERN_E_NOMEM);
  }
  assert_true(n > 1);
  drop(s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exact_wins_over_family_over_generic),
      cmocka_unit_test(a_target_of_another_config_refuses),
      cmocka_unit_test(what_is_missing_refuses),
      cmocka_unit_test(a_row_that_contradicts_itself_refuses),
      cmocka_unit_test(registries_are_checked),
      cmocka_unit_test(every_type_has_a_generic_profile),
      cmocka_unit_test(ternary_linears_lower_the_fidelity),
      cmocka_unit_test(artifacts_are_snapshots_alone),
      cmocka_unit_test(the_fingerprint_is_of_the_meaning),
      cmocka_unit_test(the_fingerprint_is_stable),
      cmocka_unit_test(every_field_is_in_the_text),
      cmocka_unit_test(memory_may_run_out),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
