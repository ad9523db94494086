/* checkpoint.c - shards as one set of names.
 *
 * The reference loads every model*.safetensors and never looks at the index; so does tern, but where an index is there
 * it must not contradict the files: a shard that is absent, or a tensor that is not where the index says, means that a
 * download is incomplete or that two checkpoints were mixed. Tensors that the index leaves out are used, as the
 * reference uses them.
 *
 * Refused besides: one tensor in two shards. The reference would take whichever file its directory listing gives last.
 */
#include "format/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/path.h"
#include "format/json_util.h"

struct ckpt {
  char *dir;
  char **names; /* file names of the shards, sorted */
  size_t n_names, names_capacity;
  st_file *files; /* as many, in the same order */
  size_t n_files; /* opened so far */
  st_tensor *tensors;
  uint32_t *file_of; /* per tensor: place in `files` */
  bool *marked;      /* per tensor */
  size_t n_tensors;
  size_t bytes;
  strmap index; /* tensor name to place in `tensors` */
};

static const char INDEX[] = "model.safetensors.index.json";
enum { INDEX_LIMIT = 64 << 20 };

/* ---- the directory ----------------------------------------------------------------------------------------------- */

static bool has_suffix(const char *s, const char *suffix)
{
  size_t n = strlen(s), m = strlen(suffix);
  return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

static bool is_shard(const char *name)
{
  return strncmp(name, "model", 5) == 0 && has_suffix(name, ".safetensors");
}

/* What else a directory may hold instead of shards, to say so. */
static const struct {
  const char *suffix, *advice;
} strangers[] = {
    {".gguf", "a GGUF file is there: convert it with tern import"},
    {".safetensors", "other *.safetensors are there, under names that mlx-lm does not load"},
    {".bin", "PyTorch *.bin files are there: convert them with mlx_lm.convert"},
    {".pth", "PyTorch *.pth files are there: convert them with mlx_lm.convert"},
    {".npz", "*.npz files are there: convert them again with a newer mlx_lm.convert"},
};

enum { STRANGERS = sizeof strangers / sizeof *strangers };

static int by_name(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static tern_status keep_name(ckpt *c, const char *name, tern_error *err)
{
  if (!mem_grow(&c->names, &c->names_capacity, c->n_names + 1, sizeof *c->names) ||
      !(c->names[c->n_names] = mem_strdup(name)))
    return err_nomem(err, c->dir);
  c->n_names++;
  return TERN_OK;
}

static tern_status list_shards(ckpt *c, tern_error *err)
{
  DIR *d = opendir(c->dir);
  if (!d)
    return err_errno(err, c->dir, "open");
  unsigned seen = 0;
  tern_status status = TERN_OK;
  errno = 0;
  for (struct dirent *e; status == TERN_OK && (e = readdir(d)); errno = 0) {
    if (is_shard(e->d_name))
      status = keep_name(c, e->d_name, err);
    for (unsigned i = 0; i < STRANGERS; i++)
      if (has_suffix(e->d_name, strangers[i].suffix))
        seen |= 1u << i;
  }
  if (status == TERN_OK && errno)
    status = err_errno(err, c->dir, "list");
  closedir(d);
  TRY(status);
  if (c->n_names) {
    qsort(c->names, c->n_names, sizeof *c->names, by_name);
    return TERN_OK;
  }
  for (unsigned i = 0; i < STRANGERS; i++)
    if (seen & 1u << i)
      return err_set(err, TERN_E_NOT_FOUND, "%s: no model*.safetensors; %s", c->dir, strangers[i].advice);
  return err_set(err, TERN_E_NOT_FOUND, "%s: no model*.safetensors in it", c->dir);
}

/* ---- the shards -------------------------------------------------------------------------------------------------- */

static tern_status open_shards(ckpt *c, tern_error *err)
{
  c->files = mem_array(c->n_names, sizeof *c->files);
  if (!c->files)
    return err_nomem(err, c->dir);
  for (; c->n_files < c->n_names; c->n_files++) {
    char *path = path_join(c->dir, c->names[c->n_files]);
    if (!path)
      return err_nomem(err, c->dir);
    tern_status status = st_open(path, &c->files[c->n_files], err);
    mem_free(path);
    TRY(status);
    c->n_tensors += c->files[c->n_files].n_tensors;
    c->bytes += c->files[c->n_files].data_bytes;
  }
  return TERN_OK;
}

static tern_status merge_shards(ckpt *c, tern_error *err)
{
  c->tensors = mem_array(c->n_tensors, sizeof *c->tensors);
  c->file_of = mem_array(c->n_tensors, sizeof *c->file_of);
  c->marked = mem_array(c->n_tensors, sizeof *c->marked);
  if (!c->tensors || !c->file_of || !c->marked || c->n_tensors > UINT32_MAX || !strmap_reserve(&c->index, c->n_tensors))
    return err_nomem(err, c->dir);
  size_t n = 0;
  for (size_t f = 0; f < c->n_files; f++)
    for (size_t i = 0; i < c->files[f].n_tensors; i++, n++) {
      c->tensors[n] = c->files[f].tensors[i];
      c->file_of[n] = (uint32_t)f;
      const char *name = c->tensors[n].name;
      bool present;
      uint32_t old;
      if (!strmap_put(&c->index, name, strlen(name), (uint32_t)n, &present, &old))
        return err_nomem(err, c->dir);
      if (present)
        return err_set(err, TERN_E_FORMAT, "%s: tensor \"%.200s\" is in two shards, %s and %s", c->dir, name,
                       c->names[c->file_of[old]], c->names[f]);
    }
  return TERN_OK;
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

static tern_status check_place(const ckpt *c, const char *path, const char *tensor, const json_t *value,
                               tern_error *err)
{
  const char *shard = json_string_value(value);
  if (!shard)
    return err_set(err, TERN_E_FORMAT, "%s: weight_map: \"%.200s\" is not a string", path, tensor);
  size_t f = 0;
  while (f < c->n_names && strcmp(c->names[f], shard) != 0)
    f++;
  if (f == c->n_names)
    return err_set(err, TERN_E_NOT_FOUND, "%s: shard \"%.200s\" is named, for tensor \"%.200s\", but %s", path, shard,
                   tensor, is_shard(shard) && !strchr(shard, '/') ? "it is absent" : "it is not a model*.safetensors");
  uint32_t i;
  if (!strmap_get(&c->index, tensor, strlen(tensor), &i))
    return err_set(err, TERN_E_FORMAT, "%s: tensor \"%.200s\" should be in %s, but is in no shard", path, tensor,
                   shard);
  if (c->file_of[i] != f)
    return err_set(err, TERN_E_FORMAT, "%s: tensor \"%.200s\" should be in %s, but is in %s", path, tensor, shard,
                   c->names[c->file_of[i]]);
  return TERN_OK;
}

static tern_status check_index_tree(const ckpt *c, const char *path, json_t *root, tern_error *err)
{
  json_t *places = json_object_get(root, "weight_map");
  if (!json_is_object(places))
    return err_set(err, TERN_E_FORMAT, "%s: weight_map is not an object", path);
  const char *tensor;
  json_t *value;
  json_object_foreach(places, tensor, value) TRY(check_place(c, path, tensor, value, err));
  return TERN_OK;
}

static tern_status check_index(const ckpt *c, tern_error *err)
{
  char *path = path_join(c->dir, INDEX);
  if (!path)
    return err_nomem(err, c->dir);
  json_t *root = NULL;
  mode_t type;
  tern_status status = path_type(path, &type, err);
  if (status == TERN_OK && type != 0) {
    status = jsonu_file(path, INDEX_LIMIT, &root, err);
    if (status == TERN_OK)
      status = check_index_tree(c, path, root, err);
  }
  json_decref(root);
  mem_free(path);
  return status;
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static tern_status load(ckpt *c, const char *dir, tern_error *err)
{
  c->dir = mem_strdup(dir);
  if (!c->dir)
    return err_nomem(err, dir);
  TRY(list_shards(c, err));
  TRY(open_shards(c, err));
  TRY(merge_shards(c, err));
  return check_index(c, err);
}

tern_status ckpt_open(const char *dir, ckpt **out, tern_error *err)
{
  ckpt *c = mem_zalloc(sizeof *c);
  if (!c)
    return err_nomem(err, dir);
  tern_status status = load(c, dir, err);
  if (status == TERN_OK)
    *out = c;
  else
    ckpt_close(c);
  return status;
}

void ckpt_close(ckpt *c)
{
  if (!c)
    return;
  for (size_t i = 0; i < c->n_files; i++)
    st_close(&c->files[i]);
  for (size_t i = 0; i < c->n_names; i++)
    mem_free(c->names[i]);
  mem_free(c->names);
  mem_free(c->files);
  mem_free(c->tensors);
  mem_free(c->file_of);
  mem_free(c->marked);
  strmap_free(&c->index);
  mem_free(c->dir);
  mem_free(c);
}

/* ---- access ------------------------------------------------------------------------------------------------------ */

size_t ckpt_count(const ckpt *c)
{
  return c->n_tensors;
}

const st_tensor *ckpt_at(const ckpt *c, size_t i)
{
  return &c->tensors[i];
}

const st_tensor *ckpt_find(const ckpt *c, const char *name)
{
  uint32_t i;
  return strmap_get(&c->index, name, strlen(name), &i) ? &c->tensors[i] : NULL;
}

size_t ckpt_index(const ckpt *c, const st_tensor *t)
{
  return (size_t)(t - c->tensors);
}

const char *ckpt_file(const ckpt *c, const st_tensor *t)
{
  return c->names[c->file_of[ckpt_index(c, t)]];
}

size_t ckpt_files(const ckpt *c)
{
  return c->n_files;
}

const st_file *ckpt_file_at(const ckpt *c, size_t i)
{
  return &c->files[i];
}

void ckpt_mark(ckpt *c, const st_tensor *t)
{
  c->marked[ckpt_index(c, t)] = true;
}

bool ckpt_marked(const ckpt *c, const st_tensor *t)
{
  return c->marked[ckpt_index(c, t)];
}

void ckpt_unmark_all(ckpt *c)
{
  memset(c->marked, 0, c->n_tensors * sizeof *c->marked);
}

size_t ckpt_bytes(const ckpt *c)
{
  return c->bytes;
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

bool ckpt_broken(const ckpt *c)
{
  return ckpt_check(c, NULL) != TERN_OK;
}

tern_status ckpt_check(const ckpt *c, tern_error *err)
{
  for (size_t i = 0; i < c->n_files; i++)
    if (map_broken(&c->files[i].map))
      return err_set(err, TERN_E_IO, "%s: the file shrank while it was in use", c->files[i].path);
  return TERN_OK;
}

static tern_status lock_bytes(const ckpt *c, const st_file *f, const uint8_t *data, size_t size, tern_error *err)
{
  if (!size || mlock(data, size) == 0)
    return TERN_OK;
  tern_status status = err_errno(err, f->path, "lock in memory");
  struct rlimit limit = {0};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return err_prefix(err, status, "mlock of %zu bytes where ulimit -l allows %llu", c->bytes,
                    (unsigned long long)limit.rlim_cur);
}

tern_status ckpt_lock(const ckpt *c, tern_error *err)
{
  for (size_t i = 0; i < c->n_files; i++)
    TRY(lock_bytes(c, &c->files[i], c->files[i].map.data, c->files[i].map.size, err));
  return TERN_OK;
}

tern_status ckpt_lock_tensor(const ckpt *c, const st_tensor *t, tern_error *err)
{
  return lock_bytes(c, &c->files[c->file_of[ckpt_index(c, t)]], t->data, t->bytes, err);
}
