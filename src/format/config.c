/* config.c - opens the configuration, remembers which keys were asked for, and answers the questions that every
 * architecture asks. Reading values strictly is config_read.c.
 *
 * Refused: model_file, with which the reference would import Python from the checkpoint. auto_map and the like are only
 * names and are left alone, as the reference leaves them.
 */
#include "format/config.h"

#include <limits.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "format/json_util.h"

enum { SCOPES = 3, FILE_LIMIT = 64 << 20 };

/* One object whose keys are looked up: names in file order, and a mark for each. */
typedef struct scope_keys {
  const json_t *object; /* NULL: not there */
  const char **keys;
  bool *asked;
  size_t n;
  strmap index; /* key to place in `keys` */
} scope_keys;

struct cfg {
  json_t *root, *generation; /* generation: NULL where there is no such file */
  const char *model_type;
  scope_keys *scopes; /* SCOPES; apart, so that reading from a const cfg can mark */
};

static const char *const scope_names[SCOPES] = {
    [CFG_ROOT] = "config.json",
    [CFG_TEXT] = "config.json: text_config",
    [CFG_GENERATION] = "generation_config.json",
};

const char *cfg_where(cfg_scope scope)
{
  return scope_names[scope];
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static tern_status list_keys(scope_keys *s, const json_t *object, tern_error *err)
{
  if (!object)
    return TERN_OK;
  s->object = object;
  size_t n = json_object_size(object);
  s->keys = mem_array(n, sizeof *s->keys);
  s->asked = mem_array(n, sizeof *s->asked);
  if (!s->keys || !s->asked || !strmap_reserve(&s->index, n))
    return err_nomem(err, "config.json");
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value)
  {
    if (!strmap_put(&s->index, key, strlen(key), (uint32_t)s->n, NULL, NULL))
      return err_nomem(err, "config.json");
    s->keys[s->n++] = key;
  }
  return TERN_OK;
}

static tern_status check(cfg *c, tern_error *err)
{
  TRY(list_keys(&c->scopes[CFG_ROOT], c->root, err));
  TRY(list_keys(&c->scopes[CFG_GENERATION], c->generation, err));
  const json_t *text = cfg_get(c, CFG_ROOT, "text_config");
  if (text && !json_is_object(text))
    return err_set(err, TERN_E_FORMAT, "config.json: text_config: not an object");
  TRY(list_keys(&c->scopes[CFG_TEXT], text, err));
  if (cfg_get(c, CFG_ROOT, "model_file"))
    return err_set(err, TERN_E_UNSUPPORTED, "config.json: model_file: it names Python code, which tern never runs");
  const cfg_field type = {.keys = "model_type", .kind = CFG_STRING, .required = true};
  return cfg_read(c, CFG_ROOT, &type, 1, &c->model_type, err);
}

/* Takes both trees over; generation may be NULL. */
static tern_status wrap(json_t *root, json_t *generation, cfg **out, tern_error *err)
{
  cfg *c = mem_zalloc(sizeof *c);
  if (!c) {
    json_decref(root);
    json_decref(generation);
    return err_nomem(err, "config.json");
  }
  c->root = root;
  c->generation = generation;
  c->scopes = mem_array(SCOPES, sizeof *c->scopes);
  tern_status status = c->scopes ? check(c, err) : err_nomem(err, "config.json");
  if (status == TERN_OK)
    *out = c;
  else
    cfg_close(c);
  return status;
}

/* DIR/NAME as a tree; where `optional` and not there, *out stays NULL. */
static tern_status open_file(const char *dir, const char *name, bool optional, json_t **out, tern_error *err)
{
  char *path = path_join(dir, name);
  if (!path)
    return err_nomem(err, dir);
  tern_status status = jsonu_file(path, FILE_LIMIT, out, err);
  if (optional && status == TERN_E_NOT_FOUND)
    status = TERN_OK;
  mem_free(path);
  return status;
}

tern_status cfg_open(const char *dir, cfg **out, tern_error *err)
{
  json_t *root = NULL, *generation = NULL;
  TRY(open_file(dir, "config.json", false, &root, err));
  tern_error why = {0}; /* of its own: its absence is no error */
  tern_status status = open_file(dir, "generation_config.json", true, &generation, &why);
  if (status != TERN_OK) {
    json_decref(root);
    return err_set(err, why.status, "%s", why.text);
  }
  return path_place(dir, wrap(root, generation, out, err), err);
}

tern_status cfg_parse(const char *config, size_t length, const char *generation, size_t generation_length, cfg **out,
                      tern_error *err)
{
  json_t *root = NULL, *second = NULL;
  TRY(jsonu_parse("config.json", config, length, &root, err));
  tern_status status = TERN_OK;
  if (generation)
    status = jsonu_parse("generation_config.json", generation, generation_length, &second, err);
  if (status != TERN_OK) {
    json_decref(root);
    return status;
  }
  return wrap(root, second, out, err);
}

void cfg_close(cfg *c)
{
  if (!c)
    return;
  for (int i = 0; c->scopes && i < SCOPES; i++) {
    mem_free(c->scopes[i].keys);
    mem_free(c->scopes[i].asked);
    strmap_free(&c->scopes[i].index);
  }
  mem_free(c->scopes);
  json_decref(c->root);
  json_decref(c->generation);
  mem_free(c);
}

const char *cfg_model_type(const cfg *c)
{
  return c->model_type;
}

bool cfg_has(const cfg *c, cfg_scope scope)
{
  return c->scopes[scope].object != NULL;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

const json_t *cfg_get(const cfg *c, cfg_scope scope, const char *key)
{
  scope_keys *s = &c->scopes[scope];
  uint32_t i;
  if (!s->object || !strmap_get(&s->index, key, strlen(key), &i))
    return NULL;
  s->asked[i] = true;
  return cfg_obj_get(s->object, key);
}

tern_status cfg_read(const cfg *c, cfg_scope scope, const cfg_field *fields, size_t n, void *out, tern_error *err)
{
  scope_keys *s = &c->scopes[scope];
  for (size_t i = 0; i < n; i++)
    for (const char *key = fields[i].keys; *key;) {
      size_t length = strcspn(key, "|");
      uint32_t place;
      if (s->object && strmap_get(&s->index, key, length, &place))
        s->asked[place] = true;
      key += length + (key[length] == '|');
    }
  return cfg_read_object(s->object, scope_names[scope], fields, n, out, err);
}

const char *cfg_unread(const cfg *c, cfg_scope scope, size_t *cursor)
{
  const scope_keys *s = &c->scopes[scope];
  while (*cursor < s->n && s->asked[*cursor])
    ++*cursor;
  return *cursor < s->n ? s->keys[(*cursor)++] : NULL;
}

const char *cfg_key(const cfg *c, cfg_scope scope, size_t *cursor)
{
  const scope_keys *s = &c->scopes[scope];
  return *cursor < s->n ? s->keys[(*cursor)++] : NULL;
}

/* ---- token ids --------------------------------------------------------------------------------------------------- */

typedef struct id_list {
  int32_t *ids;
  size_t n, capacity;
} id_list;

static tern_status add_id(id_list *list, const json_t *value, const char *where, tern_error *err)
{
  int64_t id;
  TRY(cfg_value_int(value, where, 0, INT32_MAX, &id, err));
  for (size_t i = 0; i < list->n; i++)
    if (list->ids[i] == (int32_t)id)
      return TERN_OK;
  if (!mem_grow(&list->ids, &list->capacity, list->n + 1, sizeof *list->ids))
    return err_nomem(err, where);
  list->ids[list->n++] = (int32_t)id;
  return TERN_OK;
}

static tern_status add_ids(id_list *list, const json_t *value, const char *where, tern_error *err)
{
  enum { MOST_IDS = 4096 }; /* the list is searched from end to end */
  if (!json_is_array(value))
    return add_id(list, value, where, err);
  if (json_array_size(value) > MOST_IDS)
    return err_set(err, TERN_E_LIMIT, "%s: more than %d ids", where, MOST_IDS);
  for (size_t i = 0; i < json_array_size(value); i++)
    TRY(add_id(list, json_array_get(value, i), where, err));
  return TERN_OK;
}

static const struct {
  cfg_scope scope;
  const char *eos, *bos;
} id_places[] = {
    {CFG_GENERATION, "generation_config.json: eos_token_id", "generation_config.json: bos_token_id"},
    {CFG_ROOT, "config.json: eos_token_id", "config.json: bos_token_id"},
    {CFG_TEXT, "config.json: text_config: eos_token_id", "config.json: text_config: bos_token_id"},
};

enum { ID_PLACES = sizeof id_places / sizeof *id_places };

tern_status cfg_eos_ids(const cfg *c, int32_t **ids, size_t *n, tern_error *err)
{
  id_list list = {0};
  for (size_t i = 0; i < ID_PLACES; i++) {
    const json_t *value = cfg_get(c, id_places[i].scope, "eos_token_id");
    tern_status status = value ? add_ids(&list, value, id_places[i].eos, err) : TERN_OK;
    if (status != TERN_OK) {
      mem_free(list.ids);
      return status;
    }
  }
  *ids = list.ids;
  *n = list.n;
  return TERN_OK;
}

tern_status cfg_bos_id(const cfg *c, int32_t *id, tern_error *err)
{
  static const int order[ID_PLACES] = {1, 2, 0}; /* the model's own word before the generation's */
  int64_t found = -1;
  for (size_t i = 0; i < ID_PLACES; i++) {
    const json_t *value = cfg_get(c, id_places[order[i]].scope, "bos_token_id");
    if (value && found < 0)
      TRY(cfg_value_int(value, id_places[order[i]].bos, 0, INT32_MAX, &found, err));
  }
  *id = (int32_t)found;
  return TERN_OK;
}
