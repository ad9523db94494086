/* test_nearest.c - which rows a checkpoint is nearest to, and what it says that each lacks: keys and tensors, by name.
 */
#include "unit/format_files.h"

#include "base/distance.h"
#include "model/nearest.h"

#define SIZES                                                                                                          \
  "\"hidden_size\":8,\"num_hidden_layers\":1,\"intermediate_size\":8,\"num_attention_heads\":2,\"vocab_size\":4,"      \
  "\"rms_norm_eps\":1e-5"

/* A layer of llama by name alone, and the rest of it: no shape is looked at. */
static const char *const usual[] = {"model.embed_tokens.weight",
                                    "model.norm.weight",
                                    "lm_head.weight",
                                    "model.layers.0.input_layernorm.weight",
                                    "model.layers.0.post_attention_layernorm.weight",
                                    "model.layers.0.self_attn.q_proj.weight",
                                    "model.layers.0.self_attn.k_proj.weight",
                                    "model.layers.0.self_attn.v_proj.weight",
                                    "model.layers.0.self_attn.o_proj.weight",
                                    "model.layers.0.mlp.gate_proj.weight",
                                    "model.layers.0.mlp.up_proj.weight",
                                    "model.layers.0.mlp.down_proj.weight"};
enum { USUAL = sizeof usual / sizeof *usual };

/* Tensors of one byte: the usual ones from `first` on, and others, under a prefix. */
static void put_weights(const char *prefix, size_t first, const char *const *more, size_t n_more)
{
  static char header[8192];
  size_t n = 0, used = (size_t)snprintf(header, sizeof header, "{");
  for (size_t i = first; i < USUAL + n_more; i++, n++)
    used += (size_t)snprintf(header + used, sizeof header - used,
                             "%s\"%s%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}", n ? "," : "",
                             prefix, i < USUAL ? usual[i] : more[i - USUAL], n, n + 1);
  snprintf(header + used, sizeof header - used, "}");
  put_st("model.safetensors", header, n);
}

static nearest find(const char *config)
{
  nearest n;
  tern_error err = {0};
  put_text("config.json", config);
  if (nearest_find(folder, &n, &err) != TERN_OK)
    fail_msg("%s", err.text);
  assert_int_equal(n.n, NEAREST_ROWS);
  return n;
}

static void names_are(const weights_names *names, size_t count, const char *first)
{
  assert_int_equal(names->count, count);
  if (count)
    assert_string_equal(names->names[0], first);
}

static void keys_are(const nearest_keys *keys, size_t count, const char *first)
{
  assert_int_equal(keys->count, count);
  if (count)
    assert_string_equal(keys->names[0], first);
}

static void a_model_with_experts_is_told_what_they_are(void **state)
{
  (void)state;
  static const char *const experts[] = {"model.layers.0.block.gate.weight", "model.layers.0.block.experts.0.w1.weight",
                                        "model.layers.0.block.experts.1.w1.weight"};
  empty_folder();
  put_weights("", 0, experts, 3);
  nearest n = find("{\"model_type\":\"lammoe\"," SIZES ",\"num_experts\":2,\"architectures\":[\"x\"],\"absent\":null}");
  assert_false(n.known);
  assert_true(nearest_differs(&n));
  assert_string_equal(n.rows[0].arch->name, "llama");
  assert_true(n.rows[0].score >= n.rows[1].score && n.rows[1].score >= n.rows[2].score);
  assert_true(n.rows[0].compared);
  assert_string_equal(n.rows[0].complaint, "");
  keys_are(&n.rows[0].missing, 0, NULL);
  keys_are(&n.rows[0].unread, 1, "num_experts");
  /* Tied where the key is absent: the head falls under a drop rule. */
  names_are(&n.rows[0].gap.left, 3, experts[0]);
  names_are(&n.rows[0].gap.missing, 0, NULL);
  nearest_free(&n);
}

static void keys_and_tensors_may_be_missing(void **state)
{
  (void)state;
  empty_folder();
  put_weights("", 2, NULL, 0);
  nearest n = find("{\"model_type\":\"qwen33\",\"hidden_size\":8,\"num_attention_heads\":2,\"vocab_size\":4,"
                   "\"rms_norm_eps\":\"tiny\"}");
  size_t at = 0;
  while (at < n.n && strcmp(n.rows[at].arch->name, "qwen3") != 0)
    at++;
  assert_in_range(at, 0, n.n - 1);
  const nearest_row *qwen3 = &n.rows[at];
  assert_non_null(strstr(qwen3->complaint, "num_hidden_layers"));
  keys_are(&qwen3->missing, 7, "num_hidden_layers"); /* layers, ffn, kv heads, positions, theta, head_dim, tied */
  names_are(&qwen3->gap.missing, 4, "model.embed_tokens.weight"); /* its norm, and those of q and k */
  nearest_free(&n);
}

static void a_wrapper_is_looked_at_where_its_config_is(void **state)
{
  (void)state;
  empty_folder();
  put_weights("language_model.", 0, NULL, 0);
  nearest n =
      find("{\"model_type\":\"mistral4\",\"text_config\":{\"model_type\":\"llama\"," SIZES ",\"odd\":1},\"even\":2}");
  assert_string_equal(n.rows[0].arch->name, "mistral3");
  keys_are(&n.rows[0].unread, 2, "even");
  assert_string_equal(n.rows[0].unread.names[1], "text_config.odd");
  names_are(&n.rows[0].gap.left, 0, NULL);
  nearest_free(&n);
}

static void a_type_with_a_row_comes_first(void **state)
{
  (void)state;
  static const char *const norms[] = {"model.layers.0.self_attn.q_norm.weight",
                                      "model.layers.0.self_attn.k_norm.weight"};
  empty_folder();
  put_weights("", 0, norms, 2);
  nearest n = find("{\"model_type\":\"granite\"," SIZES ",\"num_key_value_heads\":2,\"tie_word_embeddings\":false}");
  assert_true(n.known);
  assert_true(nearest_differs(&n));
  assert_string_equal(n.rows[0].arch->name, "granite");
  names_are(&n.rows[0].gap.left, 2, norms[0]);
  nearest_free(&n);
  put_weights("", 0, NULL, 0);
  n = find("{\"model_type\":\"llama\"," SIZES "}");
  assert_true(n.known);
  assert_false(nearest_differs(&n));
  nearest_free(&n);
}

static void without_weights_keys_alone_count(void **state)
{
  (void)state;
  empty_folder();
  nearest n = find("{\"model_type\":\"gpt3\",\"n_embd\":8,\"n_head\":2,\"n_layer\":1,\"n_ctx\":8,\"n_positions\":8,"
                   "\"layer_norm_epsilon\":1e-5,\"vocab_size\":4}");
  assert_string_equal(n.rows[0].arch->name, "gpt2");
  assert_false(n.rows[0].compared);
  nearest_free(&n);
  tern_error err = {0};
  empty_folder();
  assert_int_equal(nearest_find(folder, &n, &err), TERN_E_NOT_FOUND);
}

/* "KEY":VALUE of each key of a row's table. */
static size_t put_keys(const arch *text, const char *value, char *out, size_t size)
{
  size_t used = 0;
  for (size_t k = 0; k < text->n_fields; k++) {
    const char *keys = text->fields[k].keys;
    bool again = keys[0] == '\0';
    for (size_t j = 0; j < k; j++)
      again |= strcmp(text->fields[j].keys, keys) == 0;
    if (!again)
      used += (size_t)snprintf(out + used, size - used, ",\"%.*s\":%s", (int)strcspn(keys, "|"), keys, value);
  }
  return used;
}

/* Values that no row could read are no reason to stop, nor to compute with them: under the sanitizers this divides by
 * every size. */
static void nonsense_is_survived_by_every_row(void **state)
{
  (void)state;
  static const char *const values[] = {"-1", "0", "1", "1e30", "\"x\"", "[]", "99999999999"};
  static char config[8192];
  const arch *a;
  empty_folder();
  put_weights("", 0, NULL, 0);
  for (size_t i = 0; (a = arch_at(i)); i++) {
    bool wrapped = a->wraps[0].text != NULL;
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
      size_t used = (size_t)snprintf(config, sizeof config, "{\"model_type\":\"%s\"%s", a->name,
                                     wrapped ? ",\"text_config\":{\"odd\":1" : "");
      used += put_keys(wrapped ? a->wraps[0].text : a, values[v], config + used, sizeof config - used);
      snprintf(config + used, sizeof config - used, "%s", wrapped ? "}}" : "}");
      nearest n = find(config);
      assert_ptr_equal(n.rows[0].arch, a);
      nearest_free(&n);
    }
  }
}

static void memory_may_run_out(void **state)
{
  (void)state;
  static const char *const more[] = {"a.0.b", "c"};
  empty_folder();
  put_weights("", 1, more, 2);
  put_text("config.json", "{\"model_type\":\"lammma\"," SIZES ",\"odd\":1}");
  tern_status status = TERN_E_NOMEM;
  int64_t i = 0;
  for (; status != TERN_OK && i < 100000; i++) {
    nearest n;
    tern_error err = {0};
    mem_fail_after(i);
    status = nearest_find(folder, &n, &err);
    mem_fail_after(-1);
    if (status == TERN_OK)
      nearest_free(&n);
    else
      assert_int_equal(status, TERN_E_NOMEM);
  }
  assert_int_equal(status, TERN_OK);
  assert_true(i > 10);
}

static void distances(void **state)
{
  (void)state;
  assert_int_equal(text_distance("llama", "llama"), 0);
  assert_int_equal(text_distance("llama", "lalma"), 1);
  assert_int_equal(text_distance("", "qwen"), 4);
  assert_int_equal(text_distance("qwen2", "qwen3"), 1);
  assert_true(text_is_slip("lgoits", text_distance("lgoits", "logits")));
  assert_false(text_is_slip("pull", text_distance("pull", "ppl")));
  assert_false(text_is_slip("-n", text_distance("-n", "-p")));
  assert_false(text_is_slip("", text_distance("", "ls")));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_model_with_experts_is_told_what_they_are),
      cmocka_unit_test(keys_and_tensors_may_be_missing),
      cmocka_unit_test(a_wrapper_is_looked_at_where_its_config_is),
      cmocka_unit_test(a_type_with_a_row_comes_first),
      cmocka_unit_test(without_weights_keys_alone_count),
      cmocka_unit_test(nonsense_is_survived_by_every_row),
      cmocka_unit_test(memory_may_run_out),
      cmocka_unit_test(distances),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
