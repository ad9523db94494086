/* prompt_cache.c - see prompt_cache.h. */
#include "cli/prompt_cache.h"

#include <errno.h>
#include <sys/stat.h>

#include "cli/out.h"
#include "cli/signals.h"
#include "cli/whole_file.h"
#include "engine/prefix_file.h"

static const char flag[] = "--prompt-cache-file";

/* Before minutes of reading and answering, not behind them. */
static tern_status check_place(const char *path, tern_error *err)
{
  whole_file f;
  TRY(whole_open(&f, path, err));
  whole_abandon(&f);
  return TERN_OK;
}

/* What is in memory beside the mapped file. */
static tern_status check_room(model *m, const char *path, tern_error *err)
{
  struct stat st;
  if (stat(path, &st))
    return err_errno(err, path, "open");
  size_t room = model_memory_available(m);
  return (size_t)st.st_size <= room ? TERN_OK
                                    : err_set(err, TERN_E_LIMIT, "%s: a state of %zu MB, but %zu MB are free", path,
                                              (size_t)st.st_size >> 20, room >> 20);
}

static tern_status load(const char *path, tern_session *s, tern_error *err)
{
  char key[SHA256_HEX];
  prefix_loaded l;
  model *m = s->model->net;
  TRY(prefix_file_key(m, key, err));
  TRY(check_room(m, path, err));
  tern_status status = prefix_file_open(path, m, key, &l, err);
  if (status == TERN_E_FORMAT) { /* of its bytes, without their place */
    tern_error why = *err;
    status = err_set(err, status, "%s: %s: remove it, or name another file", path, why.text);
  }
  if (status == TERN_OK)
    status = session_take(s->timeline, &l.of, err);
  if (status == TERN_OK)
    say_more("%s: the state of %lld tokens", path, (long long)l.of.length);
  prefix_file_close(&l);
  return status;
}

tern_status prompt_cache_load(const cli_args *a, tern_session *s, tern_error *err)
{
  struct stat st;
  if (!a->cache_file)
    return TERN_OK;
  tern_status status = TERN_OK;
  if (*a->cache_file && (stat(a->cache_file, &st) == 0 || errno != ENOENT))
    status = load(a->cache_file, s, err);
  if (status == TERN_OK)
    status = check_place(a->cache_file, err);
  return status == TERN_OK ? TERN_OK : err_prefix(err, status, flag);
}

static tern_status save(const char *path, tern_session *s, tern_error *err)
{
  char key[SHA256_HEX];
  whole_file f;
  prefix_of of = session_kept(s->timeline);
  if (!of.length) /* nothing was read: what is there stays */
    return TERN_OK;
  TRY(prefix_file_key(s->model->net, key, err));
  TRY(whole_open(&f, path, err));
  f.secret = true;
  tern_status status = prefix_file_write(fileno(f.file), path, s->model->net, key, &of, err);
  if (status == TERN_OK)
    status = whole_finish(&f, err);
  whole_abandon(&f);
  return status;
}

tern_status prompt_cache_save(const cli_args *a, tern_session *s, tern_error *err)
{
  if (!a->cache_file)
    return TERN_OK;
  sig_hold();
  tern_status status = save(a->cache_file, s, err);
  sig_release();
  return status == TERN_OK ? TERN_OK : err_prefix(err, status, flag);
}
