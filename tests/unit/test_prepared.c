/* test_prepared.c - files of prepared weights: made whole or not at all, whoever is killed, cancelled, out of disk or
 * at the same work; opened only where every byte of head and entries holds; never an error of the model. */
#include "format_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/path.h"
#include "model/model.h"

static const char golden[] = TERN_SOURCE_DIR "/tests/golden/llama-4bit/model";

/* Under the test's folder, which format_files.h keeps flat. */
static char home[300];

static tern_model_options options(void)
{
  return (tern_model_options){.threads = 1, .prepared_dir = home};
}

static bool has_layout(void)
{
  return ops_cpu(ops_simd_best())->layout != NULL;
}

static void shell(const char *format, const char *a, const char *b)
{
  char line[1200];
  snprintf(line, sizeof line, format, a, b);
  assert_int_equal(system(line), 0);
}

static int start(void **state)
{
  if (make_folder(state))
    return -1;
  snprintf(home, sizeof home, "%s/home/prepared", folder);
  if (!has_layout()) {
    print_message("skipped here: no SIMD level with a layout of its own\n");
    exit(77);
  }
  return 0;
}

static int clean(void **state)
{
  (void)state;
  shell("rm -rf '%s/home' '%s/copy'", folder, folder);
  return 0;
}

static int finish(void **state)
{
  (void)state;
  shell("rm -rf '%s'%s", folder, "");
  return 0;
}

/* Makes the file of a checkpoint; its path (mem_free). */
static char *make(const char *dir, bool was_there)
{
  tern_model_options o = options();
  prepared_report report = {0};
  tern_error err = {0};
  char *path = NULL;
  if (model_prepare(dir, &o, NULL, &report, &path, &err) != TERN_OK)
    fail_msg("%s", err.text);
  assert_int_equal(report.was_there, was_there);
  assert_true(report.matrices == 15 && report.bytes > 0);
  return path;
}

static model *open_model(const char *dir, tern_model_options o)
{
  tern_error err = {0};
  model *m = NULL;
  if (model_open(dir, &o, false, &m, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return m;
}

/* How many files are under the home, of any name but that of the notes whose they are. */
static int count_files(void)
{
  char line[400], text[32] = "";
  snprintf(line, sizeof line, "find '%s' -type f ! -name sources 2>/dev/null | wc -l", home);
  FILE *f = popen(line, "r");
  assert_non_null(f);
  assert_non_null(fgets(text, sizeof text, f));
  pclose(f);
  return atoi(text);
}

/* ---- what is used ---- */

static void test_used(void **state)
{
  (void)state;
  tern_model_options o = options();
  model *m = open_model(golden, o);
  assert_null(m->prepared); /* nothing is made unasked */
  assert_int_equal(m->prepared_fault.text[0], 0);
  model_close(m);
  assert_int_equal(count_files(), 0);
  char *path = make(golden, false);
  m = open_model(golden, o);
  assert_non_null(m->prepared);
  assert_string_equal(prepared_path(m->prepared), path);
  assert_non_null(m->weights.layers[0].q.packed);
  assert_non_null(m->weights.layers[1].down.packed);
  assert_int_equal((uintptr_t)m->weights.layers[0].q.packed % 64, 0);
  model_close(m);
  o.prepare = TERN_PREPARE_NEVER;
  m = open_model(golden, o);
  assert_null(m->prepared);
  assert_null(m->weights.layers[0].q.packed);
  model_close(m);
  o.prepare = TERN_PREPARE_AUTO;
  o.simd = "baseline"; /* reads rows alone */
  m = open_model(golden, o);
  assert_null(m->prepared);
  model_close(m);
  mem_free(path);
  path = make(golden, true);
  assert_int_equal(count_files(), 1);
  *strrchr(path, '/') = 0;
  char *sources, *full = realpath(golden, NULL);
  size_t n, again;
  bool known;
  assert_int_equal(prepared_sources(path, &sources, &n, &known, NULL), TERN_OK);
  assert_true(known);
  assert_int_equal(n, strlen(sources) + 1); /* noted once */
  char *same = realpath(sources, NULL);
  assert_string_equal(same, full);
  free(same);
  free(full);
  mem_free(sources);
  char *notes = path_join(path, "sources");
  assert_int_equal(unlink(notes), 0);
  assert_int_equal(prepared_sources(path, &sources, &again, &known, NULL), TERN_OK);
  assert_false(known); /* of nothing nothing follows */
  o.simd = NULL;
  model_close(open_model(golden, o)); /* using it notes it too */
  model_close(open_model(golden, o));
  assert_int_equal(prepared_sources(path, &sources, &again, &known, NULL), TERN_OK);
  assert_true(known);
  assert_int_equal(again, n);
  mem_free(sources);
  FILE *f = fopen(notes, "w"); /* as full as it gets */
  for (int i = 0; i < (1 << 20) - 2; i++)
    fputc('x', f);
  fclose(f);
  model_close(open_model(golden, o));
  assert_int_equal(prepared_sources(path, &sources, &again, &known, NULL), TERN_OK);
  assert_false(known);
  assert_int_equal(again, (1 << 20) - 2);
  mem_free(sources);
  assert_int_equal(unlink(notes), 0);
  assert_int_equal(mkdir(notes, 0777), 0); /* harms nobody */
  model_close(open_model(golden, o));
  assert_int_not_equal(prepared_sources(path, &sources, &again, &known, NULL), TERN_OK);
  assert_int_equal(rmdir(notes), 0);
  mem_free(notes);
  mem_free(path);
}

/* Who has it open is seen; a head is read without the rest. */
static void test_held(void **state)
{
  (void)state;
  char *path = make(golden, false);
  prepared_head head;
  assert_int_equal(prepared_read_head(path, &head, NULL), TERN_OK);
  assert_int_equal(head.format, PREPARED_FORMAT);
  assert_int_equal(prepared_read_head("/dev/null", &head, NULL), TERN_E_FORMAT);
  assert_int_equal(prepared_read_head("/nowhere/weights", &head, NULL), TERN_E_NOT_FOUND);
  assert_false(prepared_is_held(path));
  model *m = open_model(golden, options());
  assert_true(prepared_is_held(path));
  model_close(m);
  assert_false(prepared_is_held(path));
  mem_free(path);
}

static void test_now(void **state)
{
  (void)state;
  tern_model_options o = options();
  tern_error err = {0};
  model *m = NULL;
  o.prepare = TERN_PREPARE_NOW;
  m = open_model(golden, o);
  assert_non_null(m->prepared);
  model_close(m);
  o.backend = TERN_BACKEND_REF;
  assert_int_equal(model_open(golden, &o, false, &m, &err), TERN_E_UNSUPPORTED);
  o.backend = TERN_BACKEND_AUTO;
  o.prepared_dir = NULL;
  assert_int_equal(model_open(golden, &o, false, &m, &err), TERN_E_USAGE);
  o.prepare = (tern_prepare)7;
  assert_int_equal(model_open(golden, &o, false, &m, &err), TERN_E_USAGE);
  o = options();
  prepared_report report;
  char *path;
  assert_int_equal(model_prepare(TERN_SOURCE_DIR "/tests/golden/qwen3-f16/model", &o, NULL, &report, &path, &err),
                   TERN_E_UNSUPPORTED);
}

/* A checkpoint that changed has another file: by time, by size, by bytes. */
static void test_identity(void **state)
{
  (void)state;
  char copy[400], shard[500];
  snprintf(copy, sizeof copy, "%s/copy", folder);
  snprintf(shard, sizeof shard, "%s/model.safetensors", copy);
  shell("cp -rp '%s' '%s'", golden, copy);
  char *a = make(golden, false), *same = make(copy, true); /* it may lie elsewhere */
  assert_string_equal(a, same);
  struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  assert_int_equal(utimensat(AT_FDCWD, shard, times, 0), 0);
  char *b = make(copy, false);
  assert_string_not_equal(a, b);
  /* Another tensor under the same header, size and time. */
  model *m = open_model(copy, options());
  const st_tensor *t = ckpt_find(m->ckpt, "model.layers.0.mlp.up_proj.weight");
  assert_non_null(t);
  long at = (long)(t->data - ckpt_file_at(m->ckpt, 0)->map.data) + (long)(t->bytes / 2);
  model_close(m);
  FILE *f = fopen(shard, "r+");
  assert_non_null(f);
  assert_int_equal(fseek(f, at, SEEK_SET), 0);
  int old = fgetc(f);
  assert_int_equal(fseek(f, at, SEEK_SET), 0);
  fputc(old ^ 1, f);
  fclose(f);
  assert_int_equal(utimensat(AT_FDCWD, shard, times, 0), 0);
  m = open_model(copy, options());
  assert_null(m->prepared);
  model_close(m);
  mem_free(a);
  mem_free(same);
  mem_free(b);
}

/* ---- bad files ---- */

typedef struct whole {
  char *path;
  uint8_t *bytes;
  size_t size;
  prepared_place place;
} whole;

static whole read_whole(void)
{
  whole w = {.path = make(golden, false)};
  char *text;
  assert_int_equal(file_read(w.path, 1 << 24, &text, &w.size, NULL), TERN_OK);
  w.bytes = (uint8_t *)text;
  memcpy(w.place.identity, ((prepared_head *)w.bytes)->identity, 64);
  w.place.path = w.path;
  return w;
}

static void free_whole(whole *w)
{
  mem_free(w->bytes);
  mem_free(w->path);
}

static tern_status opened(const whole *w, const uint8_t *bytes, size_t size, const char *why)
{
  prepared *p;
  tern_error err = {0};
  put_file(w->path, bytes, size);
  tern_status status = prepared_open(&w->place, ops_cpu(ops_simd_best())->layout, &p, &err);
  if (status == TERN_OK) {
    status = prepared_verify(p, &err);
    prepared_close(p);
  }
  if (why && (status == TERN_OK || !strstr(err.text, why)))
    fail_msg("\"%s\" is not about \"%s\"", err.text, why);
  return status;
}

/* With a digest that fits again. */
static void reseal(uint8_t *bytes)
{
  char digest[SHA256_HEX];
  prepared_head *head = (prepared_head *)bytes;
  prepared_digest(head, (prepared_entry *)(bytes + sizeof *head), digest);
  memcpy(head->digest, digest, 64);
}

static void test_damaged(void **state)
{
  (void)state;
  whole w = read_whole();
  prepared_head *head = (prepared_head *)w.bytes;
  prepared_entry *entry = (prepared_entry *)(w.bytes + sizeof *head);
  size_t covered = sizeof *head + head->entries * sizeof *entry;
  assert_int_equal(opened(&w, w.bytes, w.size, NULL), TERN_OK);
  for (size_t i = 0; i < covered; i++) { /* every byte of head and entries */
    w.bytes[i] ^= 0x10;
    assert_int_equal(opened(&w, w.bytes, w.size, NULL), TERN_E_FORMAT);
    w.bytes[i] ^= 0x10;
  }
  w.bytes[w.size - 3] ^= 1;
  assert_int_equal(opened(&w, w.bytes, w.size, "weights are damaged"), TERN_E_FORMAT);
  w.bytes[w.size - 3] ^= 1;
  for (size_t n = 0; n < w.size; n += n < covered + 2 ? 7 : 4001)
    assert_int_equal(opened(&w, w.bytes, n, NULL), TERN_E_FORMAT);
  /* Sealed, and wrong all the same. */
  uint8_t *copy = mem_alloc(w.size);
  assert_non_null(copy);
  head = (prepared_head *)copy;
  entry = (prepared_entry *)(copy + sizeof *head);
#define TRY_WITH(change, why)                                                                                          \
  memcpy(copy, w.bytes, w.size);                                                                                       \
  change;                                                                                                              \
  reseal(copy);                                                                                                        \
  opened(&w, copy, w.size, why)
  TRY_WITH(head->format++, "another version");
  TRY_WITH(head->layout++, "another version");
  TRY_WITH(head->identity[5] ^= 1, "another checkpoint");
  TRY_WITH(entry[3].at = w.size, "outside");
  TRY_WITH(entry[3].at = UINT64_MAX - 63, "outside");
  TRY_WITH(entry[0].bytes += 1 << 20, "outside");
  TRY_WITH(entry[0].at += 8, "outside");
  TRY_WITH(entry[0].at = 0, "outside");
#undef TRY_WITH
  memcpy(copy, w.bytes, w.size);
  head->entries = UINT32_MAX;
  assert_int_equal(opened(&w, copy, w.size, "entries"), TERN_E_FORMAT);
  mem_free(copy);
  free_whole(&w);
}

/* A model whose file is bad opens without it and says why; making it again replaces it. */
static void test_left_aside(void **state)
{
  (void)state;
  whole w = read_whole();
  put_file(w.path, w.bytes, w.size - 64);
  model *m = open_model(golden, options());
  assert_null(m->prepared);
  assert_null(m->weights.layers[0].q.packed);
  assert_non_null(strstr(m->prepared_fault.text, "not as long"));
  model_close(m);
  mem_free(make(golden, false));
  w.bytes[w.size - 3] ^= 1; /* an end: seen by who opens */
  put_file(w.path, w.bytes, w.size);
  m = open_model(golden, options());
  assert_null(m->prepared);
  assert_non_null(strstr(m->prepared_fault.text, "damaged"));
  model_close(m);
  mem_free(make(golden, false));
  w.bytes[w.size - 3] ^= 1;
  w.bytes[w.size - 64 * 3] ^= 1; /* neither end nor middle: seen by who makes */
  put_file(w.path, w.bytes, w.size);
  mem_free(make(golden, false));
  m = open_model(golden, options());
  assert_non_null(m->prepared);
  assert_int_equal(prepared_verify(m->prepared, NULL), TERN_OK);
  /* Shrinks while it is in use. */
  assert_int_equal(truncate(w.path, 100), 0);
  tern_error err = {0};
  assert_int_equal(prepared_check(m->prepared, &err), TERN_E_IO);
  model_close(m);
  /* No file at all under its name. */
  assert_int_equal(unlink(w.path), 0);
  assert_int_equal(mkdir(w.path, 0700), 0);
  m = open_model(golden, options());
  assert_null(m->prepared);
  assert_non_null(strstr(m->prepared_fault.text, "not a regular file"));
  model_close(m);
  free_whole(&w);
}

/* ---- making ---- */

static void die_midway(void *user, size_t done, size_t of_bytes)
{
  (void)user;
  if (done > of_bytes / 2)
    raise(SIGKILL);
}

static void test_killed(void **state)
{
  (void)state;
  pid_t child = fork();
  if (child == 0) {
    tern_model_options o = options();
    prepared_watch watch = {.progress = die_midway};
    prepared_report report;
    char *path;
    model_prepare(golden, &o, &watch, &report, &path, NULL);
    _exit(0);
  }
  int how;
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFSIGNALED(how));
  assert_int_equal(count_files(), 1); /* the part */
  model *m = open_model(golden, options());
  assert_null(m->prepared);
  assert_int_equal(m->prepared_fault.text[0], 0);
  model_close(m);
  mem_free(make(golden, false));
  assert_int_equal(count_files(), 1); /* the whole */
}

static void test_cancelled(void **state)
{
  (void)state;
  tern_model_options o = options();
  sig_atomic_t cancel = 1;
  prepared_watch watch = {.cancel = &cancel};
  prepared_report report;
  char *path;
  tern_error err = {0};
  assert_int_equal(model_prepare(golden, &o, &watch, &report, &path, &err), TERN_E_CANCELLED);
  assert_int_equal(count_files(), 0);
}

static void test_at_once(void **state)
{
  (void)state;
  pid_t child[6];
  int made = 0;
  for (int i = 0; i < 6; i++) {
    child[i] = fork();
    if (child[i] == 0) {
      tern_model_options o = options();
      prepared_report report = {0};
      char *path;
      tern_status status = model_prepare(golden, &o, NULL, &report, &path, NULL);
      _exit(status != TERN_OK ? 2 : report.was_there);
    }
  }
  for (int i = 0; i < 6; i++) {
    int how;
    assert_int_equal(waitpid(child[i], &how, 0), child[i]);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) < 2);
    made += WEXITSTATUS(how) == 0;
  }
  assert_int_equal(made, 1);
  assert_int_equal(count_files(), 1);
}

/* A write that fails midway, as on a full disk, whatever the room was said to be. */
static void test_write_fails(void **state)
{
  (void)state;
  struct rlimit before, now;
  tern_model_options o = options();
  tern_error err = {0};
  prepared_report report;
  char *path;
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  now = (struct rlimit){.rlim_cur = 30000, .rlim_max = before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
  tern_status status = model_prepare(golden, &o, NULL, &report, &path, &err);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  assert_int_equal(status, TERN_E_IO);
  assert_int_equal(count_files(), 0);
}

static void test_disk_full(void **state)
{
  (void)state;
  tern_model_options o = options();
  tern_error err = {0};
  prepared_report report;
  char *path;
  shell("mkdir -p '%s'%s", home, "");
  if (mount("tmpfs", home, "tmpfs", 0, "size=32k")) {
    print_message("skipped here: may not mount (%s)\n", strerror(errno));
    skip();
  }
  tern_status status = model_prepare(golden, &o, NULL, &report, &path, &err);
  int files = count_files();
  assert_int_equal(umount(home), 0);
  assert_int_equal(status, TERN_E_LIMIT);
  assert_non_null(strstr(err.text, "the disk has"));
  assert_int_equal(files, 0);
}

/* Every allocation failing in turn: no file, or a whole one. */
static void test_memory(void **state)
{
  (void)state;
  tern_model_options o = options();
  prepared_report report;
  tern_error err = {0};
  tern_status status = TERN_E_NOMEM;
  for (int64_t n = 1; status != TERN_OK && n < 20000; n += n < 400 ? 1 : 3) {
    char *path = NULL;
    mem_fail_after(n);
    status = model_prepare(golden, &o, NULL, &report, &path, &err);
    mem_fail_after(-1);
    if (status == TERN_OK)
      mem_free(path);
  }
  assert_int_equal(status, TERN_OK);
  assert_int_equal(count_files(), 1);
  model *m = open_model(golden, o);
  assert_non_null(m->prepared);
  model_close(m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_used, clean),      cmocka_unit_test_teardown(test_held, clean),
      cmocka_unit_test_teardown(test_now, clean),       cmocka_unit_test_teardown(test_identity, clean),
      cmocka_unit_test_teardown(test_damaged, clean),   cmocka_unit_test_teardown(test_left_aside, clean),
      cmocka_unit_test_teardown(test_killed, clean),    cmocka_unit_test_teardown(test_cancelled, clean),
      cmocka_unit_test_teardown(test_at_once, clean),   cmocka_unit_test_teardown(test_write_fails, clean),
      cmocka_unit_test_teardown(test_disk_full, clean), cmocka_unit_test_teardown(test_memory, clean),
  };
  return cmocka_run_group_tests(tests, start, finish);
}
