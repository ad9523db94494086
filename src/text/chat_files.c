/* chat_files.c - where a model's chat templates and special tokens are: chat_template.jinja and
 * additional_chat_templates/, chat_template.json, tokenizer_config.json, special_tokens_map.json.
 *
 * Every template is compiled when the chat is opened, so that a broken one is known before the first request. */
#include "text/chat_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "text/tmpl_json.h"
#include "text/tmpl_run.h"

enum { MAX_FILE = 256 << 20, MAX_TEMPLATES = 64 };

const char *const chat_special_names[CHAT_SPECIALS] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};

/* ---- templates ---- */

static tern_status add_template(chat *c, const char *where, const char *name, size_t name_length, const char *source,
                                size_t n, tern_error *err)
{
  if (c->n == MAX_TEMPLATES)
    return err_set(err, TERN_E_LIMIT, "%s: more than %d chat templates", where, MAX_TEMPLATES);
  if (!mem_grow(&c->v, &c->capacity, c->n + 1, sizeof *c->v))
    return err_nomem(err, "a chat template");
  chat_template t = {.name = mem_strndup(name, name_length), .source = mem_strndup(source, n), .length = n};
  tern_status status = TERN_OK;
  if (!t.name || !t.source)
    status = err_nomem(err, "a chat template");
  if (status == TERN_OK) {
    status = tmpl_compile(source, n, &t.compiled, err);
    if (status != TERN_OK)
      err_prefix(err, status, "%s", where);
  }
  if (status != TERN_OK) {
    mem_free(t.name);
    mem_free(t.source);
    return status;
  }
  c->v[c->n++] = t;
  return TERN_OK;
}

static void drop_templates(chat *c)
{
  for (size_t i = 0; i < c->n; i++) {
    mem_free(c->v[i].name);
    mem_free(c->v[i].source);
    tmpl_free(c->v[i].compiled);
  }
  mem_free(c->v);
  c->v = NULL;
  c->n = c->capacity = 0;
}

static const chat_template *find_template(const chat *c, const char *name)
{
  for (size_t i = 0; i < c->n; i++)
    if (strcmp(c->v[i].name, name) == 0)
      return &c->v[i];
  return NULL;
}

const chat_template *chat_pick(const chat *c, bool with_tools)
{
  const chat_template *t = with_tools ? find_template(c, "tool_use") : NULL;
  return t ? t : find_template(c, "default");
}

/* ---- files ---- */

static tern_status template_file(chat *c, const char *path, const char *name, size_t name_length, tern_error *err)
{
  char *text;
  size_t n;
  TRY(file_read(path, TMPL_MAX_SOURCE, &text, &n, err));
  tern_status status = add_template(c, path, name, name_length, text, n, err);
  mem_free(text);
  return status;
}

static int by_name(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* NAME.jinja files of a folder, in the order of their names. */
static tern_status template_folder(chat *c, const char *dir, tern_error *err)
{
  char *names[MAX_TEMPLATES];
  size_t n = 0;
  DIR *d = opendir(dir);
  if (!d)
    return err_errno(err, dir, "open the folder");
  tern_status status = TERN_OK;
  for (struct dirent *e; status == TERN_OK && (e = readdir(d));) {
    size_t length = strlen(e->d_name);
    if (length <= 6 || strcmp(e->d_name + length - 6, ".jinja") != 0)
      continue;
    if (n == MAX_TEMPLATES)
      status = err_set(err, TERN_E_LIMIT, "%s: more than %d chat templates", dir, MAX_TEMPLATES);
    else if (!(names[n] = mem_strdup(e->d_name)))
      status = err_nomem(err, "a file name");
    else
      n++;
  }
  closedir(d);
  qsort(names, n, sizeof *names, by_name);
  for (size_t i = 0; i < n; i++) {
    char *path = status == TERN_OK ? path_join(dir, names[i]) : NULL;
    if (path)
      status = template_file(c, path, names[i], strlen(names[i]) - 6, err);
    else if (status == TERN_OK)
      status = err_nomem(err, "a file name");
    mem_free(path);
    mem_free(names[i]);
  }
  return status;
}

static tern_status named_templates(chat *c, const char *path, const tlist *l, tern_error *err)
{
  for (size_t i = 0; i < l->n; i++) {
    const tv *name = NULL, *source = NULL;
    if (l->v[i].type == TV_DICT) {
      name = td_find_cstr(l->v[i].d, "name");
      source = td_find_cstr(l->v[i].d, "template");
    }
    if (!name || !source || name->type != TV_STR || source->type != TV_STR)
      return err_set(err, TERN_E_FORMAT, "%s: chat_template[%zu]: \"name\" and \"template\" are expected", path, i);
    TRY(add_template(c, path, name->s->s, name->s->n, source->s->s, source->s->n, err));
  }
  return TERN_OK;
}

static tern_status template_value(chat *c, const char *path, const tdict *root, tern_error *err)
{
  const tv *value = td_find_cstr(root, "chat_template");
  if (!value || value->type == TV_NONE)
    return TERN_OK;
  if (value->type == TV_STR)
    return add_template(c, path, "default", 7, value->s->s, value->s->n, err);
  if (value->type == TV_LIST)
    return named_templates(c, path, value->l, err);
  if (value->type != TV_DICT)
    return err_set(err, TERN_E_FORMAT, "%s: chat_template: a string or a list is expected", path);
  for (size_t i = 0; i < value->d->n; i++) {
    const tentry *e = &value->d->e[i];
    if (e->value.type != TV_STR)
      return err_set(err, TERN_E_FORMAT, "%s: chat_template: strings by name are expected", path);
    TRY(add_template(c, path, e->key.s->s, e->key.s->n, e->value.s->s, e->value.s->n, err));
  }
  return TERN_OK;
}

/* A token is a string, or an object with "content". A later file replaces what an earlier one gave. */
static tern_status special_tokens(chat *c, const char *path, const tdict *root, tern_error *err)
{
  for (size_t i = 0; i < CHAT_SPECIALS; i++) {
    const tv *value = td_find_cstr(root, chat_special_names[i]);
    if (!value)
      continue;
    mem_free(c->special[i]);
    c->special[i] = NULL;
    if (value->type == TV_NONE)
      continue;
    if (value->type == TV_DICT)
      value = td_find_cstr(value->d, "content");
    if (!value || value->type != TV_STR)
      return err_set(err, TERN_E_FORMAT, "%s: %s: a string or an object with \"content\" is expected", path,
                     chat_special_names[i]);
    if (memchr(value->s->s, '\0', value->s->n))
      return err_set(err, TERN_E_FORMAT, "%s: %s: a NUL character", path, chat_special_names[i]);
    c->special[i] = mem_strndup(value->s->s, value->s->n);
    if (!c->special[i])
      return err_nomem(err, "a special token");
  }
  return TERN_OK;
}

typedef struct opening {
  chat *c;
  const char *dir;
  bool lists_tokens; /* tokenizer_config.json has added_tokens_decoder: special_tokens_map.json is then not read */
  tern_error *err;
} opening;

typedef tern_status (*use_json)(opening *, const char *, const tdict *);

static tern_status read_json(opening *o, const char *path, use_json use)
{
  char *text;
  size_t n;
  TRY(file_read(path, MAX_FILE, &text, &n, o->err));
  tmpl_rt r;
  rt_init(&r, o->err);
  r.what = path;
  tv root;
  tern_status status;
  if (!tj_read(&r, text, n, &root))
    status = r.status;
  else if (root.type != TV_DICT)
    status = err_set(o->err, TERN_E_FORMAT, "%s: a JSON object is expected", path);
  else
    status = use(o, path, root.d);
  rt_free(&r);
  mem_free(text);
  return status;
}

/* Hands the object in a JSON file to `use`; a file that is not there is fine. */
static tern_status with_json(opening *o, const char *name, use_json use)
{
  mode_t type;
  char *path = path_join(o->dir, name);
  if (!path)
    return err_nomem(o->err, "a file name");
  tern_status status = path_type(path, &type, o->err);
  if (status == TERN_OK && type != 0)
    status = read_json(o, path, use);
  mem_free(path);
  return status;
}

static tern_status read_tool_parser(opening *o, const char *path, const tdict *root)
{
  static const char key[] = "tool_parser_type";
  const tv *name = td_find_cstr(root, key);
  if (!name || name->type == TV_NONE)
    return TERN_OK;
  if (name->type != TV_STR)
    return err_set(o->err, TERN_E_FORMAT, "%s: %s: a string is expected", path, key);
  o->c->tool_parser = mem_strndup(name->s->s, name->s->n);
  return o->c->tool_parser ? TERN_OK : err_nomem(o->err, key);
}

static tern_status use_config(opening *o, const char *path, const tdict *root)
{
  TRY(read_tool_parser(o, path, root));
  if (o->c->n == 0)
    TRY(template_value(o->c, path, root, o->err));
  o->lists_tokens = td_find_cstr(root, "added_tokens_decoder") != NULL;
  return special_tokens(o->c, path, root, o->err);
}

static tern_status use_template_json(opening *o, const char *path, const tdict *root)
{
  return template_value(o->c, path, root, o->err);
}

static tern_status use_tokens(opening *o, const char *path, const tdict *root)
{
  return special_tokens(o->c, path, root, o->err);
}

/* chat_template.jinja, or the folder of further ones. */
static tern_status with_templates(opening *o, const char *name, mode_t wanted)
{
  mode_t type;
  char *path = path_join(o->dir, name);
  if (!path)
    return err_nomem(o->err, "a file name");
  tern_status status = path_type(path, &type, o->err);
  if (status == TERN_OK && type != 0)
    status = wanted == S_IFDIR ? template_folder(o->c, path, o->err) : template_file(o->c, path, "default", 7, o->err);
  mem_free(path);
  return status;
}

static tern_status open_files(opening *o)
{
  TRY(with_templates(o, "chat_template.jinja", S_IFREG));
  TRY(with_templates(o, "additional_chat_templates", S_IFDIR));
  if (o->c->n == 0)
    TRY(with_json(o, "chat_template.json", use_template_json));
  TRY(with_json(o, "tokenizer_config.json", use_config));
  return o->lists_tokens ? TERN_OK : with_json(o, "special_tokens_map.json", use_tokens);
}

/* ---- the public calls ---- */

static chat *new_chat(const char *where)
{
  chat *c = mem_zalloc(sizeof *c);
  if (!c)
    return NULL;
  c->where = mem_strdup(where);
  if (!c->where) {
    mem_free(c);
    return NULL;
  }
  return c;
}

tern_status chat_open(const char *dir, chat **out, tern_error *err)
{
  if (!file_is_directory(dir))
    return err_set(err, TERN_E_NOT_FOUND, "%s: not a directory", dir);
  chat *c = new_chat(dir);
  tmpl_locale locale;
  if (!c || !tmpl_locale_enter(&locale)) {
    chat_close(c);
    return err_nomem(err, "a chat");
  }
  opening o = {.c = c, .dir = dir, .err = err};
  tern_status status = open_files(&o);
  tmpl_locale_leave(&locale);
  if (status != TERN_OK) {
    chat_close(c);
    return status;
  }
  *out = c;
  return TERN_OK;
}

tern_status chat_from_template(const char *source, size_t n, chat **out, tern_error *err)
{
  chat *c = new_chat("template");
  if (!c)
    return err_nomem(err, "a chat");
  tern_status status = add_template(c, "chat template", "default", 7, source, n, err);
  if (status != TERN_OK) {
    chat_close(c);
    return status;
  }
  *out = c;
  return TERN_OK;
}

tern_status chat_set_template(chat *c, const char *source, size_t n, tern_error *err)
{
  chat fresh = {0};
  tern_status status = add_template(&fresh, "chat template", "default", 7, source, n, err);
  if (status != TERN_OK) {
    drop_templates(&fresh);
    return status;
  }
  drop_templates(c);
  c->v = fresh.v;
  c->n = fresh.n;
  c->capacity = fresh.capacity;
  return TERN_OK;
}

void chat_close(chat *c)
{
  if (!c)
    return;
  drop_templates(c);
  for (size_t i = 0; i < CHAT_SPECIALS; i++)
    mem_free(c->special[i]);
  mem_free(c->tool_parser);
  mem_free(c->where);
  mem_free(c);
}

const char *chat_tool_parser(const chat *c)
{
  return c->tool_parser;
}

bool chat_has_template(const chat *c)
{
  return c->n > 0;
}

const char *chat_template_source(const chat *c, bool with_tools, size_t *n)
{
  const chat_template *t = chat_pick(c, with_tools);
  if (!t)
    return NULL;
  *n = t->length;
  return t->source;
}

const char *chat_special_token(const chat *c, const char *name)
{
  for (size_t i = 0; i < CHAT_SPECIALS; i++)
    if (strcmp(chat_special_names[i], name) == 0)
      return c->special[i];
  return NULL;
}
