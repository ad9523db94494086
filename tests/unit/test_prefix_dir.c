/* test_prefix_dir.c - prefixes on disk: a scheduler that opens behind one that closed finds its conversations, with the
 * bits that they had; and nothing that was damaged, cut, exchanged or half-written is ever used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/prefix_file.h"
#include "engine/scheduler.h"

enum { MOST = 400, ANSWER = 25 };

typedef struct talk {
  int32_t ids[MOST];
  size_t n;
  uint32_t seed;
} talk;

/* One job, and what was seen of it. */
typedef struct job {
  sched_job job;
  pthread_mutex_t lock;
  pthread_cond_t news;
  int32_t ids[ANSWER];
  size_t n;
  int wanted; /* tokens whose coming is told */
  uint64_t rows;
  bool ended;
  tern_status status;
} job;

static char folder[64];
static int told;
static char last_told[1200];

static void tell(void *user, const char *line)
{
  (void)user;
  told++;
  snprintf(last_told, sizeof last_told, "%s", line);
}

static prefix_dir place = {.path = folder, .most_bytes = 1 << 30, .tell = tell};

static void on_token(void *user, const reply *r)
{
  job *j = user;
  pthread_mutex_lock(&j->lock);
  if (j->n < ANSWER)
    j->ids[j->n] = r->token;
  j->n++;
  if ((int)j->n == j->wanted)
    pthread_cond_signal(&j->news);
  pthread_mutex_unlock(&j->lock);
}

static void on_logits(void *user, const float *logits, int vocab)
{
  job *j = user;
  for (size_t i = 0; i < (size_t)vocab * sizeof *logits; i++)
    j->rows = (j->rows ^ ((const uint8_t *)logits)[i]) * 1099511628211u;
}

static void on_end(void *user, const sched_end *end)
{
  job *j = user;
  pthread_mutex_lock(&j->lock);
  j->status = end->status;
  j->ended = true;
  pthread_cond_signal(&j->news);
  pthread_mutex_unlock(&j->lock);
}

static tern_model *open_model(const char *name, tern_model_options options)
{
  char dir[512];
  tern_error err = {0};
  tern_model *m = NULL;
  options.threads = 1;
  snprintf(dir, sizeof dir, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, name);
  if (tern_model_open(dir, &options, &m, &err) != TERN_OK)
    fail_msg("%s: %s", name, err.text);
  return m;
}

static scheduler *open_scheduler(tern_model *m, const prefix_dir *d)
{
  scheduler *s;
  tern_error err = {0};
  if (sched_open(m, &(sched_options){.prefixes = 6, .prefix_dir = d}, &s, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return s;
}

/* The talk's next turn: some tokens of a user, and an answer, which joins it. Returns what was found of it. */
static int64_t turn(scheduler *s, talk *t, int more, uint64_t *rows)
{
  job j = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
  tern_error err = {0};
  for (; more; more--) {
    t->seed = t->seed * 1103515245u + 12345u;
    t->ids[t->n++] = (int32_t)(t->seed >> 16) % 256;
  }
  j.job = (sched_job){.ids = t->ids,
                      .n = t->n,
                      .top = -1,
                      .options = {.max_tokens = ANSWER, .ignore_eos = true, .sampling = {.temp = 0.8, .seed = t->n}},
                      .on_token = on_token,
                      .on_logits = on_logits,
                      .on_end = on_end,
                      .user = &j};
  sched_job *one = &j.job;
  if (sched_submit(s, &one, 1, &err) != TERN_OK)
    fail_msg("%s", err.text);
  pthread_mutex_lock(&j.lock);
  while (!j.ended)
    pthread_cond_wait(&j.news, &j.lock);
  pthread_mutex_unlock(&j.lock);
  assert_int_equal(j.status, TERN_OK);
  memcpy(t->ids + t->n, j.ids, j.n * sizeof *j.ids);
  t->n += j.n;
  *rows = j.rows;
  return j.job.cached;
}

/* ---- the folder ---- */

static void path_to(const char *name, char out[400])
{
  snprintf(out, 400, "%s/%s", folder, name);
}

/* How many names end so; the last of them. */
static int count(const char *end, char name[300])
{
  int n = 0;
  DIR *dir = opendir(folder);
  for (struct dirent *e; (e = readdir(dir));) {
    size_t length = strlen(e->d_name), tail = strlen(end);
    if (length < tail || strcmp(e->d_name + length - tail, end) || e->d_name[0] == '.')
      continue;
    if (name)
      snprintf(name, 300, "%s", e->d_name);
    n++;
  }
  closedir(dir);
  return n;
}

static size_t bytes_there(void)
{
  size_t sum = 0;
  char path[400];
  struct stat st;
  DIR *dir = opendir(folder);
  for (struct dirent *e; (e = readdir(dir));) {
    path_to(e->d_name, path);
    sum += e->d_name[0] != '.' && !stat(path, &st) ? (size_t)st.st_size : 0;
  }
  closedir(dir);
  return sum;
}

static int fresh_folder(void **state)
{
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/tern-prefixes-XXXXXX");
  told = 0;
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
  (void)state;
  DIR *dir = opendir(folder);
  char path[400];
  for (struct dirent *e; dir && (e = readdir(dir));) {
    path_to(e->d_name, path);
    unlink(path);
  }
  if (dir)
    closedir(dir);
  return rmdir(folder);
}

/* ---- the same bits ---- */

typedef struct variant {
  const char *name;
  tern_model_options options;
} variant;

static const variant variants[] = {
    {"gemma3-bf16", {0}},
    {"gemma3-bf16", {.numerics = TERN_FAST}},
    {"llama-sliding-8bit", {.numerics = TERN_NATIVE}},
    {"llama-4bit", {.numerics = TERN_FAST}},
    {"llama-4bit", {.kv_bits = 4, .kv_group_size = 32}},
    {"llama-4bit", {.kv_bits = 8, .kv_group_size = 32, .quantized_kv_start = 80}},
    {"qwen3-f16", {.max_kv_size = 40}},
    {"qwen2-mxfp4", {.backend = TERN_BACKEND_REF}},
};

static void conversations_outlive_the_scheduler(void **state)
{
  (void)state;
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    /* Opened twice: what is loaded must not depend on the model that left it. */
    tern_model *m = open_model(variants[v].name, variants[v].options);
    talk a = {.seed = 3}, b = {.seed = 4};
    uint64_t rows, want;
    scheduler *s = open_scheduler(m, &place);
    turn(s, &a, 70, &rows);
    turn(s, &b, 9, &rows);
    turn(s, &a, 12, &rows);
    talk plain_a = a, plain_b = b;
    int64_t cached_a = turn(s, &plain_a, 20, &rows), cached_b = turn(s, &plain_b, 40, &rows);
    sched_close(s);
    remove_folder(state); /* what the further turns left is not what is looked for */
    mkdir(folder, 0700);
    a = (talk){.seed = 3}, b = (talk){.seed = 4};
    s = open_scheduler(m, &place);
    turn(s, &a, 70, &rows);
    turn(s, &b, 9, &rows);
    turn(s, &a, 12, &rows);
    sched_close(s);
    tern_model_close(m);
    assert_true(count(".prefix", NULL) >= 2);

    m = open_model(variants[v].name, variants[v].options);
    s = open_scheduler(m, NULL);
    talk x = a, y = b;
    assert_int_equal(turn(s, &x, 20, &want), 0);
    uint64_t want_b;
    assert_int_equal(turn(s, &y, 40, &want_b), 0);
    sched_close(s);
    s = open_scheduler(m, &place);
    sched_stats stats;
    sched_get_stats(s, &stats);
    assert_true(stats.prefixes >= 2 && stats.prefix_bytes > 0);
    /* It finds as much as one that never closed, and goes on in the same bits. */
    assert_int_equal(turn(s, &a, 20, &rows), cached_a);
    assert_true(cached_a > 0);
    if (a.n != x.n || memcmp(a.ids, x.ids, a.n * sizeof *a.ids) || rows != want)
      fail_msg("variant %zu: the long conversation went on in another way", v);
    assert_int_equal(turn(s, &b, 40, &rows), cached_b);
    if (memcmp(b.ids, y.ids, b.n * sizeof *b.ids) || rows != want_b)
      fail_msg("variant %zu: the short conversation went on in another way", v);
    sched_close(s);
    tern_model_close(m);
    if (told)
      fail_msg("variant %zu: %s", v, last_told);
    remove_folder(state);
    mkdir(folder, 0700);
  }
}

/* An answer that closing cut short, wherever that was: what it had consumed is kept and good. */
static void answers_that_closing_cut_are_kept(void **state)
{
  static const variant cut[] = {{"gemma3-bf16", {0}},
                                {"qwen2-mxfp4", {.max_kv_size = 30}},
                                {"llama-4bit", {.kv_bits = 4, .kv_group_size = 32, .quantized_kv_start = 84}}};
  for (size_t v = 0; v < sizeof cut / sizeof *cut; v++)
    for (int at = 1; at < 24; at += 4) {
      tern_model *m = open_model(cut[v].name, cut[v].options);
      job j = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER, .wanted = at};
      tern_error err = {0};
      talk t = {.seed = 5};
      uint64_t rows, want;
      for (; t.n < 80; t.n++)
        t.ids[t.n] = (int32_t)(t.n * t.n * 7 % 256);
      scheduler *s = open_scheduler(m, &place);
      j.job = (sched_job){.ids = t.ids,
                          .n = t.n,
                          .top = -1,
                          .options = {.max_tokens = 600, .ignore_eos = true},
                          .on_token = on_token,
                          .on_end = on_end,
                          .user = &j};
      sched_job *one = &j.job;
      assert_int_equal(sched_submit(s, &one, 1, &err), TERN_OK);
      pthread_mutex_lock(&j.lock);
      while (j.n < (size_t)at && !j.ended)
        pthread_cond_wait(&j.news, &j.lock);
      pthread_mutex_unlock(&j.lock);
      sched_close(s);
      assert_int_equal(j.status, TERN_E_CANCELLED);
      tern_model_close(m);

      m = open_model(cut[v].name, cut[v].options);
      for (size_t i = 0; i < j.n && i < ANSWER; i++)
        t.ids[t.n++] = j.ids[i];
      talk plain = t;
      s = open_scheduler(m, NULL);
      turn(s, &plain, 9, &want);
      sched_close(s);
      s = open_scheduler(m, &place);
      int64_t found = turn(s, &t, 9, &rows);
      if (found < 70 || memcmp(plain.ids, t.ids, t.n * sizeof *t.ids) || rows != want)
        fail_msg("%s, closed at token %d: %lld tokens found, %s bits", cut[v].name, at, (long long)found,
                 rows == want ? "the same" : "other");
      sched_close(s);
      tern_model_close(m);
      remove_folder(state);
      mkdir(folder, 0700);
    }
  if (told)
    fail_msg("%s", last_told);
}

/* ---- what does not hold ---- */

static void leave_one(tern_model *m, talk *t)
{
  uint64_t rows;
  scheduler *s = open_scheduler(m, &place);
  *t = (talk){.seed = 3};
  turn(s, t, 30, &rows);
  sched_close(s);
}

static void expect_found(tern_model *m, const talk *t, bool found)
{
  uint64_t rows;
  talk copy = *t;
  scheduler *s = open_scheduler(m, &place);
  int64_t cached = turn(s, &copy, 5, &rows);
  if ((cached > 0) != found)
    fail_msg("%lld tokens found", (long long)cached);
  sched_close(s);
}

static void damage(const char *name, off_t at, bool cut)
{
  char path[400];
  path_to(name, path);
  uint8_t byte;
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0);
  if (cut) {
    assert_int_equal(ftruncate(fd, at), 0);
  } else {
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
  }
  close(fd);
}

/* A bit anywhere, or an end anywhere: the file is set aside with a warning, and the turn reads its prompt. */
static void damaged_files_are_set_aside(void **state)
{
  tern_model *m = open_model("gemma3-bf16", (tern_model_options){0});
  talk t;
  char name[300], path[400];
  struct stat st;
  leave_one(m, &t);
  assert_int_equal(count(".prefix", name), 1);
  path_to(name, path);
  assert_int_equal(stat(path, &st), 0);
  for (int i = 0; i < 60; i++) {
    bool cut = i % 3 == 2;
    off_t at = i < 20 ? (off_t)i * 11 : st.st_size * i / 60;
    remove_folder(state);
    mkdir(folder, 0700);
    leave_one(m, &t);
    damage(name, at, cut);
    told = 0;
    expect_found(m, &t, false);
    if (told != 1 || !strstr(last_told, "set aside"))
      fail_msg("byte %lld: %d warnings, \"%s\"", (long long)at, told, last_told);
    assert_int_equal(count(".aside", NULL), 1);
  }
  tern_model_close(m);
}

static void files_of_other_models_are_let_be(void **state)
{
  (void)state;
  static const variant others[] = {{"gemma3-bf16", {.numerics = TERN_FAST}},
                                   {"gemma3-bf16", {.backend = TERN_BACKEND_REF}},
                                   {"llama-4bit", {0}},
                                   {"llama-4bit", {.kv_bits = 4, .kv_group_size = 32}}};
  tern_model *m = open_model("gemma3-bf16", (tern_model_options){0});
  talk t;
  leave_one(m, &t);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    tern_model *other = open_model(others[i].name, others[i].options);
    expect_found(other, &t, false);
    tern_model_close(other);
  }
  assert_int_equal(count(".aside", NULL), 0);
  assert_true(count(".prefix", NULL) >= 5);
  expect_found(m, &t, true);
  assert_int_equal(told, 0);

  /* Under this model's name it is seen to be another's. */
  char name[300], from[400], to[400];
  remove_folder(state);
  mkdir(folder, 0700);
  leave_one(m, &t);
  count(".prefix", name);
  path_to(name, to);
  unlink(to);
  tern_model *fast = open_model("gemma3-bf16", (tern_model_options){.numerics = TERN_FAST});
  char ours[300];
  snprintf(ours, sizeof ours, "%s", name);
  leave_one(fast, &t);
  count(".prefix", name);
  path_to(name, from);
  assert_int_equal(rename(from, to), 0);
  expect_found(m, &t, false);
  assert_true(told == 1 && strstr(last_told, "another model"));
  tern_model_close(fast);
  tern_model_close(m);
}

/* ---- limits ---- */

static void folders_stay_within_their_bytes(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  talk t;
  char name[300], path[400];
  struct stat st;
  leave_one(m, &t);
  count(".prefix", name);
  path_to(name, path);
  assert_int_equal(stat(path, &st), 0);
  place.most_bytes = (size_t)st.st_size * 5 / 2;
  scheduler *s = open_scheduler(m, &place);
  for (uint32_t i = 0; i < 5; i++) {
    uint64_t rows;
    talk other = {.seed = 100 + i};
    turn(s, &other, 30, &rows);
    t = other;
  }
  sched_close(s);
  assert_int_equal(count(".prefix", NULL), 2);
  expect_found(m, &t, true); /* the latest */
  /* A bound that has become smaller holds for what is there already. */
  int before = count(".prefix", NULL);
  place.most_bytes = bytes_there() - 1;
  sched_close(open_scheduler(m, &place));
  assert_int_equal(count(".prefix", NULL), before - 1);
  place.most_bytes = (size_t)st.st_size / 2;
  remove_folder(state);
  mkdir(folder, 0700);
  told = 0;
  leave_one(m, &t);
  assert_int_equal(count(".prefix", NULL), 0);
  assert_true(told == 1 && strstr(last_told, "not kept"));
  place.most_bytes = 1 << 30;
  tern_model_close(m);
}

/* A disk that takes no more: a warning, no half file, and the rest as ever. */
static void a_full_disk_costs_nothing_else(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  struct rlimit before, small;
  uint64_t rows;
  talk t = {.seed = 3};
  scheduler *s = open_scheduler(m, &place);
  turn(s, &t, 30, &rows);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 5000;
  setrlimit(RLIMIT_FSIZE, &small);
  sched_close(s);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  assert_true(told == 1 && strstr(last_told, "not saved"));
  DIR *dir = opendir(folder);
  int left = 0;
  while (readdir(dir))
    left++;
  closedir(dir);
  assert_int_equal(left, 2); /* "." and ".." */
  tern_model_close(m);
}

static void half_written_files_go(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  char path[400];
  talk t;
  path_to(".part-0123-4567.prefix", path);
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  assert_int_equal(write(fd, "half", 4), 4);
  close(fd);
  leave_one(m, &t);
  assert_int_equal(access(path, F_OK), -1);
  expect_found(m, &t, true);
  tern_model_close(m);
}

static void folders_that_cannot_be_written_are_refused(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  char path[400];
  scheduler *s;
  tern_error err = {0};
  path_to("file", path);
  close(open(path, O_CREAT | O_WRONLY, 0600));
  prefix_dir file = {.path = path, .most_bytes = 1000};
  assert_int_equal(sched_open(m, &(sched_options){.prefixes = 2, .prefix_dir = &file}, &s, &err), TERN_E_IO);
  file.path = "/proc/nowhere/prefixes";
  assert_true(sched_open(m, &(sched_options){.prefixes = 2, .prefix_dir = &file}, &s, &err) != TERN_OK);
  assert_non_null(strstr(err.text, "/proc/nowhere"));
  assert_int_equal(sched_open(m, &(sched_options){.prefix_dir = &place}, &s, &err), TERN_E_USAGE);
  tern_model_close(m);
}

/* Key and sums are no secrets: who can write there can give the model other states. */
static void folders_of_others_are_refused(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  static const mode_t open_to[] = {0770, 0707, 0777, 01777, 0720, 0702};
  scheduler *s;
  tern_error err = {0};
  for (size_t i = 0; i < sizeof open_to / sizeof *open_to; i++) {
    assert_int_equal(chmod(folder, open_to[i]), 0);
    assert_int_equal(sched_open(m, &(sched_options){.prefixes = 2, .prefix_dir = &place}, &s, &err), TERN_E_IO);
    assert_non_null(strstr(err.text, folder));
    assert_non_null(strstr(err.text, "chmod go-w"));
  }
  assert_int_equal(chmod(folder, 0755), 0); /* others read: their user's affair */
  if (!geteuid()) {
    assert_int_equal(chown(folder, 1234, (gid_t)-1), 0);
    assert_int_equal(sched_open(m, &(sched_options){.prefixes = 2, .prefix_dir = &place}, &s, &err), TERN_E_IO);
    assert_non_null(strstr(err.text, "another user"));
    assert_int_equal(chown(folder, 0, (gid_t)-1), 0);
  }
  sched_close(open_scheduler(m, &place));
  tern_model_close(m);
}

/* A folder that was opened to others while the server ran is not written to. */
static void folders_are_looked_at_again_at_the_end(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  uint64_t rows;
  talk t = {.seed = 3};
  scheduler *s = open_scheduler(m, &place);
  turn(s, &t, 30, &rows);
  assert_int_equal(chmod(folder, 0777), 0);
  sched_close(s);
  assert_int_equal(count(".prefix", NULL), 0);
  assert_true(told == 1 && strstr(last_told, "chmod go-w"));
  tern_model_close(m);
}

static void files_of_others_are_not_used(void **state)
{
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  static const struct {
    mode_t mode;
    uid_t owner;
    const char *words;
  } others[] = {{0620, 0, "chmod go-w"}, {0602, 0, "chmod go-w"}, {0600, 1234, "another user"}};
  talk t;
  char name[300], path[400];
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (others[i].owner && geteuid())
      continue;
    remove_folder(state);
    mkdir(folder, 0700);
    leave_one(m, &t);
    count(".prefix", name);
    path_to(name, path);
    assert_int_equal(chmod(path, others[i].mode), 0);
    if (others[i].owner)
      assert_int_equal(chown(path, others[i].owner, (gid_t)-1), 0);
    told = 0;
    expect_found(m, &t, false);
    assert_true(told == 1 && strstr(last_told, "not used") && strstr(last_told, others[i].words));
    assert_int_equal(count(".aside", NULL), 0);
  }
  tern_model_close(m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(conversations_outlive_the_scheduler, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(answers_that_closing_cut_are_kept, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(damaged_files_are_set_aside, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(files_of_other_models_are_let_be, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(folders_stay_within_their_bytes, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(a_full_disk_costs_nothing_else, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(half_written_files_go, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(folders_that_cannot_be_written_are_refused, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(folders_of_others_are_refused, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(folders_are_looked_at_again_at_the_end, fresh_folder, remove_folder),
      cmocka_unit_test_setup_teardown(files_of_others_are_not_used, fresh_folder, remove_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
