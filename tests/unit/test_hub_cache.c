/* test_hub_cache.c - a repo in the hub's cache: links, refs, locks, and what can go; and that memory which runs out at
 * any moment leaves no broken snapshot. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "hub/registry.h"

#define OLD "1111111111111111111111111111111111111111"
#define NEW "2222222222222222222222222222222222222222"
#define BLOB(digit)                                                                                                    \
  digit digit digit digit digit digit digit digit digit digit digit digit digit digit digit digit digit digit digit    \
      digit

typedef struct cache {
  char dir[64];
  cache_repo repo;
} cache;

static void write_file(const char *dir, const char *name, const char *text)
{
  char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static bool is_there(const char *dir, const char *name)
{
  char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return access(path, F_OK) == 0;
}

/* Blobs a, b and c, of 40 digits and as many bytes as their place says. */
static int set_up(void **state)
{
  static cache c;
  snprintf(c.dir, sizeof c.dir, "/tmp/tern-cache-XXXXXX");
  assert_non_null(mkdtemp(c.dir));
  assert_int_equal(cache_repo_open(c.dir, "org/name", &c.repo, NULL), TERN_OK);
  assert_int_equal(cache_repo_make(&c.repo, NULL), TERN_OK);
  write_file(c.repo.dir, "blobs/" BLOB("aa"), "1");
  write_file(c.repo.dir, "blobs/" BLOB("bb"), "22");
  write_file(c.repo.dir, "blobs/" BLOB("cc"), "333");
  *state = &c;
  return 0;
}

static int tear_down(void **state)
{
  cache *c = *state;
  registry_plan plan = {0};
  assert_int_equal(registry_plan_folder(c->dir, &plan, NULL), TERN_OK);
  assert_int_equal(registry_remove(&plan, NULL), TERN_OK);
  assert_int_not_equal(access(c->dir, F_OK), 0);
  registry_plan_free(&plan);
  cache_repo_clear(&c->repo);
  return 0;
}

static hub_file files_old[] = {{"config.json", 1, BLOB("aa")}, {"sub/dir/x", 2, BLOB("bb")}},
                files_new[] = {{"config.json", 3, BLOB("cc")}, {"sub/dir/x", 2, BLOB("bb")}};
static const hub_files old_one = {files_old, 2, 2}, new_one = {files_new, 2, 2};

static void link_both(const cache *c)
{
  tern_error err;
  assert_int_equal(cache_link(&c->repo, OLD, &old_one, &err), TERN_OK);
  assert_int_equal(cache_link(&c->repo, NEW, &new_one, &err), TERN_OK);
  assert_int_equal(cache_write_ref(&c->repo, "main", NEW, &err), TERN_OK);
  assert_int_equal(cache_write_ref(&c->repo, "refs/pr/1", OLD, &err), TERN_OK);
  assert_int_equal(cache_write_ref(&c->repo, OLD, OLD, &err), TERN_OK); /* needs none */
}

static void test_snapshot(void **state)
{
  const cache *c = *state;
  char commit[REPO_COMMIT_ROOM], target[256];
  link_both(c);
  assert_true(cache_is_whole(&c->repo, OLD, &old_one));
  assert_true(cache_is_whole(&c->repo, NEW, &new_one));
  assert_false(cache_is_whole(&c->repo, NEW, &old_one));
  assert_true(cache_read_ref(&c->repo, "main", commit));
  assert_string_equal(commit, NEW);
  assert_true(cache_read_ref(&c->repo, "refs/pr/1", commit));
  assert_false(cache_read_ref(&c->repo, "v1", commit));
  assert_false(is_there(c->repo.dir, "refs/" OLD));
  char *snapshot = cache_snapshot_path(&c->repo, OLD), path[512];
  snprintf(path, sizeof path, "%s/sub/dir/x", snapshot);
  ssize_t n = readlink(path, target, sizeof target);
  assert_int_equal(n, strlen("../../../../blobs/") + 40);
  assert_memory_equal(target, "../../../../blobs/" BLOB("bb"), (size_t)n);
  mem_free(snapshot);
  /* a link to another blob gives way */
  assert_int_equal(cache_link(&c->repo, OLD, &new_one, NULL), TERN_OK);
  assert_true(cache_is_whole(&c->repo, OLD, &new_one));
}

static void test_registry(void **state)
{
  const cache *c = *state;
  registry g;
  link_both(c);
  assert_int_equal(registry_read(&c->repo, &g, NULL), TERN_OK);
  assert_int_equal(g.n_blobs, 3);
  assert_int_equal(g.n_revisions, 2);
  assert_int_equal(g.blobs[1].uses, 2);
  assert_string_equal(registry_find(&g, "main")->name, NEW);
  assert_string_equal(registry_find(&g, "refs/pr/1")->name, OLD);
  assert_string_equal(registry_find(&g, "1111111")->name, OLD);
  assert_null(registry_find(&g, "111111"));
  assert_null(registry_find(&g, "mai"));
  assert_int_equal(registry_find(&g, "main")->bytes, 5);
  registry_plan plan = {0};
  assert_int_equal(registry_plan_unused(&c->repo, &g, &plan, NULL), TERN_OK);
  assert_int_equal(plan.n, 0);
  assert_int_equal(registry_plan_revision(&c->repo, &g, registry_find(&g, OLD), &plan, NULL), TERN_OK);
  assert_int_equal(plan.n, 3); /* the snapshot, its ref, the blob that it alone has */
  assert_int_equal(plan.bytes, 1);
  assert_int_equal(registry_remove(&plan, NULL), TERN_OK);
  assert_int_equal(registry_remove(&plan, NULL), TERN_OK); /* gone already */
  registry_plan_free(&plan);
  registry_free(&g);
  assert_true(cache_is_whole(&c->repo, NEW, &new_one));
  assert_false(is_there(c->repo.dir, "blobs/" BLOB("aa")));
  assert_false(is_there(c->repo.dir, "snapshots/" OLD));
}

static void test_unused(void **state)
{
  const cache *c = *state;
  registry g;
  registry_plan plan = {0};
  int held;
  assert_int_equal(cache_link(&c->repo, NEW, &new_one, NULL), TERN_OK);
  write_file(c->repo.dir, "blobs/" BLOB("dd") ".incomplete", "4444");
  assert_int_equal(cache_lock(&c->repo, BLOB("dd"), &held, NULL), TERN_OK);
  assert_true(held >= 0);
  assert_int_equal(registry_read(&c->repo, &g, NULL), TERN_OK);
  assert_int_equal(registry_plan_unused(&c->repo, &g, &plan, NULL), TERN_OK);
  assert_int_equal(plan.n, 1); /* a; d is held */
  assert_int_equal(plan.bytes, 1);
  cache_unlock(held);
  assert_int_equal(registry_plan_unused(&c->repo, &g, &plan, NULL), TERN_OK);
  assert_int_equal(plan.n, 3); /* a once more, and d */
  assert_string_equal(plan.items[2].why, "unfinished");
  registry_plan_free(&plan);
  registry_free(&g);
}

static void test_locks(void **state)
{
  const cache *c = *state;
  int first, second, alone;
  assert_int_equal(cache_lock_repo(&c->repo, false, &first, NULL), TERN_OK);
  assert_int_equal(cache_lock_repo(&c->repo, false, &second, NULL), TERN_OK);
  assert_true(first >= 0 && second >= 0);
  assert_int_equal(cache_lock_repo(&c->repo, true, &alone, NULL), TERN_OK);
  assert_int_equal(alone, CACHE_LOCK_HELD);
  cache_unlock(first);
  cache_unlock(second);
  assert_int_equal(cache_lock_repo(&c->repo, true, &alone, NULL), TERN_OK);
  assert_true(alone >= 0);
  assert_int_equal(cache_lock_repo(&c->repo, false, &first, NULL), TERN_OK);
  assert_int_equal(first, CACHE_LOCK_HELD);
  cache_unlock(alone);
  assert_int_equal(cache_look_at_lock(&c->repo, "nobody", &first, NULL), TERN_OK);
  assert_int_equal(first, CACHE_LOCK_FREE);
  assert_false(is_there(c->repo.locks, "nobody.lock"));
}

/* All of it, with the n-th allocation failing, for every n. */
static tern_status use_all(const cache *c)
{
  registry g = {0};
  registry_plan plan = {0};
  tern_error err;
  tern_status status = cache_link(&c->repo, OLD, &old_one, &err);
  if (status == TERN_OK)
    status = cache_write_ref(&c->repo, "main", OLD, &err);
  if (status == TERN_OK)
    status = registry_read(&c->repo, &g, &err);
  if (status == TERN_OK)
    status = registry_plan_unused(&c->repo, &g, &plan, &err);
  if (status == TERN_OK)
    status = registry_plan_revision(&c->repo, &g, &g.revisions[0], &plan, &err);
  registry_plan_free(&plan);
  registry_free(&g);
  return status;
}

static void test_no_memory(void **state)
{
  const cache *c = *state;
  tern_status status = TERN_E_NOMEM;
  int n = 1;
  for (; status != TERN_OK && n < 1000; n++) {
    mem_fail_after(n);
    status = use_all(c);
    mem_fail_after(-1);
    assert_true(status == TERN_OK || status == TERN_E_NOMEM);
    if (is_there(c->repo.dir, "snapshots/" OLD))
      assert_true(cache_is_whole(&c->repo, OLD, &old_one));
  }
  assert_int_equal(status, TERN_OK);
  assert_true(n > 20);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {TEST(test_snapshot), TEST(test_registry), TEST(test_unused), TEST(test_locks),
                                     TEST(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
