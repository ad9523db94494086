/* test_hub_names.c - the hub's room without a network: names, patterns, file lists, headers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "hub/address.h"
#include "hub/listing.h"
#include "hub/select.h"

static void test_repo(void **state)
{
  static const char *const bad[] = {"",       "a",          "/",        "a/",      "/b",        "a/b/c", "-a/b",
                                    "a-/b",   ".a/b",       "a/..",     "a/b--c",  "a/b..c",    "a b/c", "a/b@",
                                    "a/b@/x", "a/b@x/../y", "a/b@x//y", "a/b@x\n", "a/\xc3\xa9"};
  (void)state;
  hub_repo r;
  tern_error err;
  assert_int_equal(repo_parse("org/Name_1.5-x", &r, &err), TERN_OK);
  assert_string_equal(r.id, "org/Name_1.5-x");
  assert_string_equal(r.revision, "main");
  assert_int_equal(repo_parse("org/name@refs/pr/1", &r, &err), TERN_OK);
  assert_string_equal(r.id, "org/name");
  assert_string_equal(r.revision, "refs/pr/1");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(repo_parse(bad[i], &r, &err), TERN_E_USAGE);
  assert_true(repo_is_commit("0123456789abcdef0123456789abcdef01234567"));
  assert_false(repo_is_commit("0123456789ABCDEF0123456789abcdef01234567"));
  assert_false(repo_is_commit("main"));
}

static void test_address(void **state)
{
  static const char hub[] = "https://huggingface.co", mirror[] = "http://user@mirror:8080/hub";
  static const struct {
    const char *text, *endpoint, *id, *revision;
  } good[] = {
      {"org/name", hub, "org/name", "main"},
      {"org/name@v1", hub, "org/name", "v1"},
      {"https://huggingface.co/org/name", hub, "org/name", "main"},
      {"HTTPS://HuggingFace.co/org/name/", hub, "org/name", "main"},
      {"http://www.huggingface.co/org/name?a=b", hub, "org/name", "main"},
      {"hf.co/org/name", hub, "org/name", "main"},
      {"huggingface.co/org/name/tree/v1.0", hub, "org/name", "v1.0"},
      {"https://huggingface.co/org/name/tree/refs%2Fpr%2F1#x", hub, "org/name", "refs/pr/1"},
      {"https://huggingface.co/org/name/commit/0123456789abcdef0123456789abcdef01234567", hub, "org/name",
       "0123456789abcdef0123456789abcdef01234567"},
      {"https://huggingface.co/org/name/discussions/3", hub, "org/name", "main"},
      {"https://huggingface.co/org/name/tree/a%00b%zz%2", hub, "org/name", "a%00b%zz%2"},
      {"hf://org/name@v1", hub, "org/name", "v1"},
      {"hf://org/name", mirror, "org/name", "main"},
      {"http://mirror:8080/org/name", mirror, "org/name", "main"},
      {"mirror:8080/org/name/blob/v2", mirror, "org/name", "v2"},
  };
  static const struct {
    const char *text, *endpoint, *words;
  } bad[] = {
      {"https://huggingface.co/org/name", mirror, "mirror:8080"},
      {"https://example.org/org/name", hub, "example.org is not the hub"},
      {"https://huggingface.co:99/org/name", hub, "is not the hub"},
      {"https://user:secret@example.org/org/name", hub, "example.org"},
      {"https://huggingface.co", hub, "no ORG/NAME"},
      {"https://huggingface.co/name", hub, "no ORG/NAME"},
      {"https://huggingface.co/datasets/org/name", hub, "is a dataset"},
      {"https://huggingface.co/spaces/org/name", hub, "is a space"},
      {"hf://datasets/org/name", hub, "is a dataset"},
      {"https://huggingface.co/org/name/blob/main/a/b.gguf", hub, "pull org/name --include 'a/b.gguf'"},
      {"https://huggingface.co/org/name/resolve/v1/b.gguf?download=true", hub, "pull org/name@v1 --include 'b.gguf'"},
      {"https://huggingface.co/org/name/tree/main/a", hub, "--include 'a/'"},
      {"https://huggingface.co/org/name/tree/..%2fx", hub, "not a branch"},
      {"https://huggingface.co/o%2frg/name", hub, "is not ORG/NAME"},
      {"https://huggingface.co/a b/name", hub, "is not ORG/NAME"},
      {"https://huggingface.co/org/name/settings", hub, "settings"},
      {"hf.co/org/name:Q4_K_M", hub, "'*Q4_K_M*.gguf'"},
      {"hf.co/org/name:latest", hub, "no \":latest\": tern pull org/name"},
      {"org/name:Q4_K_M", hub, "pull org/name --include '*Q4_K_M*.gguf'"},
      {"org/name:latest", hub, "no \":latest\": tern pull org/name"},
      {"org/name:", hub, "is not ORG/NAME"},
      {"org:x/name:y", hub, "is not ORG/NAME"},
      {"ftp://huggingface.co/org/name", hub, "neither http"},
      {"hf.co/org/name", mirror, "hf.co"},
  };
  (void)state;
  hub_repo r;
  tern_error err;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    assert_int_equal(address_parse(good[i].text, good[i].endpoint, &r, &err), TERN_OK);
    assert_string_equal(r.id, good[i].id);
    assert_string_equal(r.revision, good[i].revision);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(address_parse(bad[i].text, bad[i].endpoint, &r, &err), TERN_E_USAGE);
    assert_non_null(strstr(err.text, bad[i].words));
    assert_null(strstr(err.text, "secret"));
  }
  char longest[5000];
  for (size_t i = 0; i + 3 < sizeof longest; i += 2)
    memcpy(longest + i, "a/", 3);
  memcpy(longest, "hf.co/", 6);
  assert_int_equal(address_parse(longest, hub, &r, &err), TERN_E_USAGE);
  assert_false(address_is_one("org/name", hub));
  assert_false(address_is_one("hf.co", hub));
  assert_true(address_is_one("hf.co/x", hub));
}

static void test_folder(void **state)
{
  char id[REPO_ID_ROOM];
  (void)state;
  char *folder = repo_folder("org/na-me");
  assert_string_equal(folder, "models--org--na-me");
  assert_true(repo_of_folder(folder, id));
  assert_string_equal(id, "org/na-me");
  mem_free(folder);
  assert_false(repo_of_folder("datasets--a--b", id));
  assert_false(repo_of_folder("models--", id));
  char longest[400];
  snprintf(longest, sizeof longest, "models--%0300d", 0);
  assert_false(repo_of_folder(longest, id));
}

static void test_paths(void **state)
{
  static const char *const bad[] = {"",     "/a",    "a/",   "a//b", ".",     "..",  "a/..",
                                    "../a", "a/./b", "a\\b", "a\nb", "a\x7f", "\xff"};
  (void)state;
  assert_int_equal(repo_check_path("x", "a/b c/\xc3\xa9...safetensors", NULL), TERN_OK);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(repo_check_path("x", bad[i], NULL), TERN_E_FORMAT);
  char part[300];
  memset(part, 'a', sizeof part);
  part[255] = 0;
  assert_int_equal(repo_check_path("x", part, NULL), TERN_OK);
  part[255] = 'a';
  part[256] = 0;
  assert_int_equal(repo_check_path("x", part, NULL), TERN_E_FORMAT);
}

static void test_select(void **state)
{
  static const char *const wanted[] = {
      "config.json",     "model.safetensors",   "model-00001-of-00002.safetensors",   "model.safetensors.index.json",
      "tokenizer.model", "chat_template.jinja", "additional_chat_templates/rag.jinja"};
  static const char *const others[] = {
      "README.md",           "pytorch_model.bin", "consolidated.safetensors", "x/config.json",
      "x/model.safetensors", "model.gguf",        "config.json.bak",          "additional_chat_templates/x/y.jinja",
      "modeling.py",         ".config.json"};
  (void)state;
  const hub_patterns none = {0};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    assert_true(select_wants(&none, wanted[i]));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_false(select_wants(&none, others[i]));
  const char *const include[] = {"*.gguf", "sub/", "[!a]?.txt"}, *const exclude[] = {"*Q8*"};
  const hub_patterns own = {include, 3, exclude, 1};
  assert_true(select_wants(&own, "x.gguf"));
  assert_true(select_wants(&own, "deep/er/x.gguf")); /* '*' goes over '/' */
  assert_true(select_wants(&own, "sub/a/b"));
  assert_true(select_wants(&own, "bc.txt"));
  assert_false(select_wants(&own, "ac.txt"));
  assert_false(select_wants(&own, "x-Q8.gguf"));
  assert_false(select_wants(&own, "config.json"));
  const hub_patterns less = {NULL, 0, exclude, 1};
  assert_true(select_wants(&less, "config.json"));
  assert_false(select_wants(&less, "modelQ8.safetensors"));
}

#define SHA1 "da39a3ee5e6b4b0d3255bfef95601890afd80709"
#define SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static tern_status add(const char *text, hub_files *files, tern_error *err)
{
  tern_status status = listing_add("org/x", text, strlen(text), files, err);
  return status == TERN_OK ? listing_check("org/x", files, err) : status;
}

static void test_listing(void **state)
{
  (void)state;
  hub_files files = {0};
  tern_error err;
  assert_int_equal(add("[{\"type\":\"directory\",\"path\":\"../d\"},"
                       "{\"type\":\"file\",\"path\":\"b\",\"size\":3,\"oid\":\"" SHA1 "\"},"
                       "{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"oid\":\"" SHA1 "\",\"lfs\":{\"oid\":\"" SHA256
                       "\",\"size\":5}}]",
                       &files, &err),
                   TERN_OK);
  assert_int_equal(add(" []", &files, &err), TERN_OK);
  assert_int_equal(files.n, 2);
  assert_string_equal(files.items[0].path, "a");
  assert_int_equal(files.items[0].size, 5);
  assert_string_equal(files.items[0].etag, SHA256);
  assert_true(hub_file_is_lfs(&files.items[0]));
  assert_false(hub_file_is_lfs(&files.items[1]));
  assert_int_equal(add("[{\"type\":\"file\",\"path\":\"a/b\",\"size\":3,\"oid\":\"" SHA1 "\"}]", &files, &err),
                   TERN_E_FORMAT); /* a is a file */
  size_t n;
  const hub_file **blobs = listing_blobs(&files, &n);
  assert_int_equal(n, 2); /* b and a/b have one */
  mem_free(blobs);
  listing_free(&files);
}

static void test_bad_listing(void **state)
{
  static const char *const bad[] = {
      "",
      "x",
      "{}",
      "{\"error\":1}",
      "<html>",
      " \n<html>",
      "[",
      "[]]",
      "[1]",
      "[{}]",
      "[null]",
      "[{\"type\":\"file\"}]",
      "[{\"type\":\"file\",\"path\":\"a\",\"size\":1}]",
      "[{\"type\":\"file\",\"path\":\"a\",\"size\":-1,\"oid\":\"" SHA1 "\"}]",
      "[{\"type\":\"file\",\"path\":\"a\",\"size\":1.5,\"oid\":\"" SHA1 "\"}]",
      "[{\"type\":\"file\",\"path\":\"a\",\"size\":1125899906842625,\"oid\":\"" SHA1 "\"}]",
      "[{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"oid\":\"" SHA256 "\"}]",
      "[{\"type\":\"file\",\"path\":\"../a\",\"size\":1,\"oid\":\"" SHA1 "\"}]",
      "[{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"oid\":\"" SHA1 "\",\"lfs\":{\"oid\":\"" SHA1 "\",\"size\":1}}]",
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hub_files files = {0};
    tern_error err = {0};
    assert_int_equal(listing_add("org/x", bad[i], strlen(bad[i]), &files, &err), TERN_E_FORMAT);
    assert_int_equal(strncmp(err.text, "org/x: ", 7), 0);
    listing_free(&files);
  }
}

static void test_commit(void **state)
{
  char commit[REPO_COMMIT_ROOM];
  tern_error err;
  (void)state;
  const char *good = "{\"sha\":\"" SHA1 "\",\"more\":[1]}", *page = "<!doctype html>", *short_one = "{\"sha\":\"abc\"}";
  assert_int_equal(listing_commit("x", good, strlen(good), commit, &err), TERN_OK);
  assert_string_equal(commit, SHA1);
  assert_int_equal(listing_commit("x", page, strlen(page), commit, &err), TERN_E_FORMAT);
  assert_non_null(strstr(err.text, "a web page"));
  assert_int_equal(listing_commit("x", short_one, strlen(short_one), commit, &err), TERN_E_FORMAT);
}

static void next_is(const char *header, const char *wanted)
{
  char *url;
  tern_error err;
  assert_int_equal(listing_next(header, &url, &err), TERN_OK);
  if (wanted)
    assert_string_equal(url, wanted);
  else
    assert_null(url);
  mem_free(url);
}

static void test_headers(void **state)
{
  uint64_t first, last, total;
  (void)state;
  next_is("", NULL);
  next_is("<http://a/x?b=1>; rel=\"next\"", "http://a/x?b=1");
  next_is("<http://a/1>; rel=\"prev\", <http://a/2>; rel=\"next\"", "http://a/2");
  next_is("<http://a/1>; rel=next", "http://a/1");
  next_is("<http://a/1>; rel = \"next\"", "http://a/1");
  next_is("<http://a/1>;title=x;REL=\"next\"", "http://a/1");
  next_is("<http://a/1>; rel=nextish", NULL);
  next_is("<http://a/1>; rel=\"prev\"", NULL);
  char *url;
  assert_int_equal(listing_next("<http://a/1; rel=\"next\"", &url, NULL), TERN_E_FORMAT);
  assert_null(url);
  assert_true(listing_range("bytes 5-9/10", &first, &last, &total));
  assert_int_equal(first, 5);
  assert_int_equal(last, 9);
  assert_int_equal(total, 10);
  static const char *const bad[] = {"",
                                    "bytes",
                                    "bytes */10",
                                    "bytes 5-4/10",
                                    "bytes 5-10/10",
                                    "bytes -1-4/10",
                                    "bytes 1-4/10x",
                                    "bytes 1-4/*",
                                    "lines 1-4/10",
                                    "bytes 1-99999999999999999999/10"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(listing_range(bad[i], &first, &last, &total));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_repo),        cmocka_unit_test(test_address), cmocka_unit_test(test_folder),
      cmocka_unit_test(test_paths),       cmocka_unit_test(test_select),  cmocka_unit_test(test_listing),
      cmocka_unit_test(test_bad_listing), cmocka_unit_test(test_commit),  cmocka_unit_test(test_headers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
