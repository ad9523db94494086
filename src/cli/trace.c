/* trace.c - see trace.h. */
#include "cli/trace.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/whole_file.h"
#include "ops/outputs.h"

struct trace {
  ops_context *cx;
  whole_file index, data;
  char *data_path;
  json_int_t seq, offset;
  int error; /* errno of the first failed write */
};

static void write_values(trace *t, const op_output *o, int rows)
{
  for (int i = 0; i < rows && !t->error; i++) {
    errno = 0;
    if (fwrite(o->values + i * o->stride, sizeof *o->values, (size_t)o->width, t->data.file) != (size_t)o->width)
      t->error = errno ? errno : EIO;
  }
  t->offset += (json_int_t)rows * o->width * (json_int_t)sizeof *o->values;
}

static void write_line(trace *t, const op_record *r, const op_output *o, const ops_step *step, int rows)
{
  json_t *line = json_pack("{sI si ss ss ss* sI si si sI}", "seq", t->seq, "layer", r->layer, "op", ops_name(r->kind),
                           "output", o->name, "of", o->of, "position", (json_int_t)step->row[0].position, "rows", rows,
                           "width", o->width, "offset", t->offset);
  errno = 0;
  if (!line)
    t->error = ENOMEM;
  else if (json_dumpf(line, t->index.file, JSON_COMPACT) != 0 || fputc('\n', t->index.file) == EOF)
    t->error = errno ? errno : EIO;
  json_decref(line);
}

static void watch(void *user, const op_record *r, const ops_step *step)
{
  trace *t = user;
  op_output out[OP_MAX_OUTPUTS];
  int n = ops_outputs(r, out), rows = ops_extent(r, step);
  for (int i = 0; i < n && !t->error; i++) {
    write_line(t, r, &out[i], step, rows);
    write_values(t, &out[i], rows);
    t->seq++;
  }
}

static tern_status open_files(trace *t, const char *path, tern_error *err)
{
  buf name = {0};
  buf_addf(&name, "%s.f32", path);
  t->data_path = buf_take(&name);
  if (!t->data_path)
    return err_nomem(err, path);
  TRY(whole_open(&t->data, t->data_path, err));
  return whole_open(&t->index, path, err);
}

/* ---- names ---- */

/* Whether both names are one file, or would be: one entry of one directory, where nothing is there yet. */
static bool same_entry(const char *a, const char *b)
{
  const char *names[2] = {a, b}, *last[2];
  struct stat folder[2];
  char real_a[PATH_MAX], real_b[PATH_MAX];
  if (realpath(a, real_a) && realpath(b, real_b))
    return !strcmp(real_a, real_b);
  for (int i = 0; i < 2; i++) {
    const char *slash = strrchr(names[i], '/');
    char *dir = slash ? mem_strndup(names[i], (size_t)(slash - names[i]) + 1) : mem_strdup(".");
    bool there = dir && stat(dir, &folder[i]) == 0;
    mem_free(dir);
    if (!there)
      return !strcmp(a, b);
    last[i] = slash ? slash + 1 : names[i];
  }
  return !strcmp(last[0], last[1]) && folder[0].st_dev == folder[1].st_dev && folder[0].st_ino == folder[1].st_ino;
}

tern_status trace_check(const char *path, const char *out, tern_error *err)
{
  struct stat st;
  if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
    return err_set(err, TERN_E_IO,
                   "--trace: %s: is not a regular file; a trace is two files, this one and another beside it", path);
  if (!out)
    return TERN_OK;
  buf data = {0};
  buf_addf(&data, "%s.f32", path);
  bool index_hit = same_entry(path, out), failed = data.failed;
  bool hit = index_hit || (!failed && same_entry(data.data, out));
  buf_free(&data);
  if (failed)
    return err_nomem(err, path);
  return hit ? err_set(err, TERN_E_USAGE, "logits: --out and --trace both write %s: give another name to one of them",
                       out)
             : TERN_OK;
}

tern_status trace_open(const char *path, ops_context *cx, trace **out, tern_error *err)
{
  *out = NULL;
  if (cx->backend->submit || cx->backend->own_memory)
    return err_set(err, TERN_E_UNSUPPORTED, "trace: backend %s does not show single ops; use --backend ref or cpu",
                   cx->backend->name);
  trace *t = mem_zalloc(sizeof *t);
  if (!t)
    return err_nomem(err, "trace");
  t->cx = cx;
  tern_status status = open_files(t, path, err);
  if (status != TERN_OK) {
    trace_close(t);
    return status;
  }
  cx->watch = watch;
  cx->watch_user = t;
  *out = t;
  return TERN_OK;
}

tern_status trace_finish(trace *t, tern_error *err)
{
  if (!t)
    return TERN_OK;
  if (t->error)
    return err_set(err, TERN_E_IO, "%s: write: %s", ferror(t->data.file) ? t->data_path : t->index.path,
                   strerror(t->error));
  TRY(whole_finish(&t->data, err));
  return whole_finish(&t->index, err);
}

void trace_close(trace *t)
{
  if (!t)
    return;
  if (t->cx->watch_user == t) {
    t->cx->watch = NULL;
    t->cx->watch_user = NULL;
  }
  whole_abandon(&t->data);
  whole_abandon(&t->index);
  mem_free(t->data_path);
  mem_free(t);
}
