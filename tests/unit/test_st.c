/* test_st.c - safetensors: each rule of the format broken alone, files damaged by chance, and the writer's failures. */
#include "unit/format_files.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/map.h"
#include "format/st.h"

static const char *const GOOD = "{\"__metadata__\":{\"format\":\"mlx\",\"k\\u00e9y\":\"\"},"
                                "\"b\":{\"shape\":[],\"dtype\":\"F64\",\"data_offsets\":[6,14]},"
                                "\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[3,1],\"data_offsets\":[0,6]},"
                                "\"none\":{\"dtype\":\"I64\",\"shape\":[4,0],\"data_offsets\":[6,6]},"
                                "\"\\ud83d\\ude00\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[14,15]}}  ";

static void a_good_file_opens(void **state)
{
  (void)state;
  put_st("good.safetensors", GOOD, 15);
  st_file f;
  tern_error err = {0};
  assert_int_equal(st_open(in_folder("good.safetensors"), &f, &err), TERN_OK);
  assert_int_equal(f.n_tensors, 4);
  assert_int_equal(f.data_bytes, 15);
  assert_int_equal(f.n_metadata, 2);
  assert_string_equal(f.metadata[0].key, "format");
  assert_string_equal(f.metadata[0].value, "mlx");
  assert_string_equal(f.metadata[1].key, "k\xc3\xa9y");
  static const char *const order[] = {"a.weight", "none", "b", "\xf0\x9f\x98\x80\n"};
  for (int i = 0; i < 4; i++) {
    assert_string_equal(f.tensors[i].name, order[i]);
    assert_ptr_equal(st_find(&f, order[i]), &f.tensors[i]);
  }
  const st_tensor *a = st_find(&f, "a.weight"), *b = st_find(&f, "b"), *none = st_find(&f, "none");
  assert_int_equal(a->dtype, ST_BF16);
  assert_int_equal(a->rank, 2);
  assert_int_equal(a->shape[0], 3);
  assert_int_equal(a->bytes, 6);
  assert_int_equal(a->data[5], 5);
  assert_int_equal(b->rank, 0);
  assert_int_equal(b->bytes, 8);
  assert_int_equal(b->data[0], 6);
  assert_int_equal(none->bytes, 0);
  assert_null(st_find(&f, "a"));
  char text[40];
  assert_string_equal(st_describe(a, text, sizeof text), "BF16 [3, 1]");
  assert_string_equal(st_describe(a, text, 7), "BF16 [");
  st_close(&f);
  st_close(&f);
}

static void every_dtype_is_known(void **state)
{
  (void)state;
  static const size_t sizes[] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1, 1, 1};
  assert_int_equal(sizeof sizes / sizeof *sizes, ST_DTYPES);
  for (int i = 0; i < ST_DTYPES; i++) {
    char header[200];
    snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[2,3],\"data_offsets\":[0,%zu]}}",
             st_dtype_name((st_dtype)i), sizes[i] * 6);
    put_st("t.safetensors", header, sizes[i] * 6);
    st_file f;
    tern_error err = {0};
    assert_int_equal(st_open(in_folder("t.safetensors"), &f, &err), TERN_OK);
    assert_int_equal(f.tensors[0].dtype, i);
    st_close(&f);
  }
}

/* T(...) is a header with one tensor named `x` of 4 bytes, members as given. */
#define T(members) "{\"x\":{" members "}}"
#define F32_1 "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"
#define F32_AT(begin, end) "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" #begin "," #end "]}"

static const struct {
  const char *header;
  size_t data;
  tern_status status;
  const char *says; /* parts, beside the file's name */
} faults[] = {
    /* between tensors */
    {T(F32_1), 3, TERN_E_FORMAT, "tensor \"x\"|truncated|byte 4|holds 3"},
    {T(F32_1), 6, TERN_E_FORMAT, "2 bytes follow the last tensor"},
    {"{}", 1, TERN_E_FORMAT, "1 bytes follow"},
    {"{\"x\":" F32_AT(0, 4) ",\"y\":" F32_AT(2, 6) "}", 6, TERN_E_FORMAT, "tensor \"y\"|overlaps tensor \"x\"|2 bytes"},
    {"{\"x\":" F32_AT(0, 4) ",\"y\":" F32_AT(0, 4) "}", 4, TERN_E_FORMAT, "tensor \"y\"|overlaps tensor \"x\"|4 bytes"},
    {"{\"x\":" F32_AT(0, 4) ",\"y\":" F32_AT(5, 9) "}", 9, TERN_E_FORMAT, "tensor \"y\"|gap of 1 bytes|at 4"},
    {"{\"x\":" F32_AT(1, 5) "}", 5, TERN_E_FORMAT, "tensor \"x\"|gap of 1 bytes|at 0"},
    {"{\"x\":" F32_AT(0, 4) ",\"x\":" F32_AT(4, 8) "}", 8, TERN_E_FORMAT, "tensor \"x\"|twice"},
    {"{\"x\":" F32_AT(0, 4) ",\"\\u0078\":" F32_AT(4, 8) "}", 8, TERN_E_FORMAT, "tensor \"x\"|twice"},
    /* one tensor */
    {"{\"x\":" F32_AT(4, 0) "}", 4, TERN_E_FORMAT, "tensor \"x\"|data_offsets out of order|4|0"},
    {T("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT,
     "tensor \"x\"|F32 [2] takes 8 bytes|give it 4"},
    {T("\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, TERN_E_UNSUPPORTED, "tensor \"x\"|dtype \"F4\""},
    {T("\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, TERN_E_UNSUPPORTED, "tensor \"x\"|dtype \"f32\""},
    {T("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT,
     "tensor \"x\"|more bytes than can be counted"},
    {T("\"dtype\":\"F64\",\"shape\":[9223372036854775807],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT,
     "tensor \"x\"|more bytes than can be counted"},
    {T("\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT,
     "tensor \"x\"|a size in its shape is too large"},
    {T("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT, "tensor \"x\"|negative"},
    {T("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT, "tensor \"x\"|whole number"},
    {T("\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT, "tensor \"x\"|whole number"},
    {T("\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT,
     "tensor \"x\"|header byte 29|leading zeros"},
    {T("\"dtype\":\"F32\",\"shape\":[true],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT,
     "tensor \"x\"|'t' where a size in its shape"},
    {T("\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT, "tensor \"x\"|a shape"},
    {T("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4, TERN_E_UNSUPPORTED,
     "tensor \"x\"|8 dimensions"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, TERN_E_FORMAT, "tensor \"x\"|','"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]"), 4, TERN_E_FORMAT, "tensor \"x\"|']'"},
    {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]"), 4, TERN_E_FORMAT,
     "tensor \"x\"|data offset is too large"},
    {T("\"shape\":[1],\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT, "tensor \"x\"|dtype is missing"},
    {T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, TERN_E_FORMAT, "tensor \"x\"|shape is missing"},
    {T("\"dtype\":\"F32\",\"shape\":[1]"), 4, TERN_E_FORMAT, "tensor \"x\"|data_offsets is missing"},
    {T(""), 0, TERN_E_FORMAT, "tensor \"x\"|dtype is missing"},
    {T(F32_1 ",\"dtype\":\"F32\""), 4, TERN_E_FORMAT, "tensor \"x\"|dtype is given twice"},
    {T(F32_1 ",\"strides\":[1]"), 4, TERN_E_FORMAT, "tensor \"x\"|unknown member \"strides\""},
    {"{\"x\":null}", 0, TERN_E_FORMAT, "tensor \"x\"|description"},
    {"{\"x\":[]}", 0, TERN_E_FORMAT, "tensor \"x\"|description"},
    /* the JSON around them */
    {"", 0, TERN_E_FORMAT, "header byte 0: the end where '{'"},
    {"[]", 0, TERN_E_FORMAT, "header byte 0: '['"},
    {"{", 0, TERN_E_FORMAT, "header byte 1: the end where"},
    {"{} x", 0, TERN_E_FORMAT, "header byte 3: 'x'"},
    {"{}{}", 0, TERN_E_FORMAT, "header byte 2"},
    {"{,}", 0, TERN_E_FORMAT, "header byte 1"},
    {T(F32_1) ",", 4, TERN_E_FORMAT, "where the end should stand"},
    {"{\"x\":{" F32_1 "},}", 4, TERN_E_FORMAT, "a tensor's name"},
    {"{\"x\" {" F32_1 "}}", 4, TERN_E_FORMAT, "':'"},
    {"{\"x", 0, TERN_E_FORMAT, "the end of a string"},
    {"{\"x\\", 0, TERN_E_FORMAT, "the end of a string"},
    {"{\"x\\\"", 0, TERN_E_FORMAT, "the end of a string"},
    {"{\"\\q\":{" F32_1 "}}", 4, TERN_E_FORMAT, "header byte 2|escape"},
    {"{\"\\u00\":{" F32_1 "}}", 4, TERN_E_FORMAT, "header byte 2|escape"},
    {"{\"\\u0000\":{" F32_1 "}}", 4, TERN_E_FORMAT, "escape"},
    {"{\"\\ud83d\":{" F32_1 "}}", 4, TERN_E_FORMAT, "escape"},
    {"{\"\\ude00\\ud83d\":{" F32_1 "}}", 4, TERN_E_FORMAT, "escape"},
    {"{\"a\tb\":{" F32_1 "}}", 4, TERN_E_FORMAT, "control character"},
    {"{\"\xff\":{" F32_1 "}}", 4, TERN_E_FORMAT, "header byte 2: not UTF-8"},
    {"{\"\xed\xa0\x80\":{" F32_1 "}}", 4, TERN_E_FORMAT, "not UTF-8"},
    /* metadata */
    {"{\"__metadata__\":{\"a\":1}}", 0, TERN_E_FORMAT, "__metadata__"},
    {"{\"__metadata__\":[]}", 0, TERN_E_FORMAT, "__metadata__"},
    {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, TERN_E_FORMAT, "__metadata__|\"a\" is given twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, TERN_E_FORMAT, "__metadata__ is given twice"},
};

static void each_fault_is_its_own_error(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    put_st("bad.safetensors", faults[i].header, faults[i].data);
    st_file f;
    tern_error err = {0};
    tern_status status = st_open(in_folder("bad.safetensors"), &f, &err);
    assert_error(&err, status, faults[i].status, "bad.safetensors: ");
    assert_error(&err, status, faults[i].status, faults[i].says);
    st_close(&f);
  }
}

static void expect_open(const char *name, const void *bytes, size_t n, tern_status want, const char *says)
{
  put_file(in_folder(name), bytes, n);
  st_file f;
  tern_error err = {0};
  assert_error(&err, st_open(in_folder(name), &f, &err), want, says);
}

static void bad_lengths_are_refused(void **state)
{
  (void)state;
  expect_open("a.safetensors", "", 0, TERN_E_FORMAT, "a.safetensors|too short");
  expect_open("a.safetensors", "\0\0\0\0\0\0\0", 7, TERN_E_FORMAT, "a.safetensors|7 bytes, too short");
  expect_open("a.safetensors", "\3\0\0\0\0\0\0\0{}", 10, TERN_E_FORMAT,
              "a.safetensors|truncated|header of 3 bytes in 10");
  expect_open("a.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, TERN_E_FORMAT,
              "a.safetensors|header of 18446744073709551615 bytes");
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
  expect_open("a.safetensors", pointer, sizeof pointer - 1, TERN_E_FORMAT, "a.safetensors|Git LFS pointer");
  st_file f;
  tern_error err = {0};
  assert_error(&err, st_open(in_folder("absent"), &f, &err), TERN_E_NOT_FOUND, "absent");
  assert_error(&err, st_open(folder, &f, &err), TERN_E_IO, "not a regular file");
  /* A header above the limit, in a sparse file that would have room for it. */
  put_file(in_folder("a.safetensors"), "\1\xe1\xf5\5\0\0\0\0", 8);
  assert_int_equal(truncate(in_folder("a.safetensors"), 100000010), 0);
  assert_error(&err, st_open(in_folder("a.safetensors"), &f, &err), TERN_E_LIMIT, "header of 100000001 bytes");
}

static tern_status open_and_close(tern_error *err)
{
  st_file f;
  tern_status status = st_open(in_folder("good.safetensors"), &f, err);
  st_close(&f);
  return status;
}

static void allocation_failures_are_reported(void **state)
{
  (void)state;
  put_st("good.safetensors", GOOD, 15);
  with_failing_allocations(open_and_close);
}

/* Damaged files either open, and then all their data can be read, or give one line. */
static void damaged_files_do_no_harm(void **state)
{
  (void)state;
  uint8_t good[1000], bad[1000];
  size_t n = st_bytes(good, GOOD, 15);
  chance c = {1};
  int opened = 0, refused = 0;
  for (int round = 0; round < 20000; round++) {
    put_file(in_folder("bad.safetensors"), bad, damage(&c, good, n, bad));
    st_file f;
    tern_error err = {0};
    tern_status status = st_open(in_folder("bad.safetensors"), &f, &err);
    if (status != TERN_OK) {
      assert_one_line(&err, status);
      refused++;
      continue;
    }
    opened++;
    volatile unsigned sum = 0;
    for (size_t i = 0; i < f.n_tensors; i++)
      for (size_t k = 0; k < f.tensors[i].bytes; k++)
        sum += f.tensors[i].data[k];
    (void)sum;
    st_close(&f);
  }
  assert_true(opened > 100 && refused > 10000);
}

static void a_shrinking_file_is_noticed(void **state)
{
  (void)state;
  map_guard_install();
  enum { BYTES = 1 << 16 };
  put_st("s.safetensors", "{\"x\":{\"dtype\":\"U8\",\"shape\":[65536],\"data_offsets\":[0,65536]}}", BYTES);
  st_file f;
  tern_error err = {0};
  assert_int_equal(st_open(in_folder("s.safetensors"), &f, &err), TERN_OK);
  assert_false(map_broken(&f.map));
  assert_int_equal(truncate(in_folder("s.safetensors"), 100), 0);
  volatile uint8_t last = f.tensors[0].data[BYTES - 1];
  assert_int_equal(last, 0);
  assert_true(map_broken(&f.map));
  st_close(&f);
}

/* ---- writing ---- */

typedef struct source {
  size_t bytes, step; /* put `step` bytes at a time */
  bool fail;
} source;

static tern_status produce(void *user, st_writer *w, tern_error *err)
{
  const source *s = user;
  static uint8_t block[3 << 20];
  for (size_t at = 0; at < s->bytes; at += s->step) {
    size_t n = s->bytes - at < s->step ? s->bytes - at : s->step;
    for (size_t i = 0; i < n; i++)
      block[i] = (uint8_t)((at + i) * 7);
    TRY(st_put(w, block, n, err));
  }
  return s->fail ? err_set(err, TERN_E_FORMAT, "the source broke") : TERN_OK;
}

static void what_is_written_reads_back(void **state)
{
  (void)state;
  static const size_t steps[] = {1 << 10, 1000003, 1 << 20, 3 << 20};
  enum { MANY = 5000000 };
  for (size_t i = 0; i < 4; i++) {
    st_writer *w;
    tern_error err = {0};
    assert_int_equal(st_writer_open(&w, &err), TERN_OK);
    source big = {MANY * 2, steps[i], false}, small = {6, 5, false}, none = {0, 1, false};
    assert_int_equal(st_writer_meta(w, "format", "mlx", &err), TERN_OK);
    assert_int_equal(st_writer_meta(w, "quote\"\n", "\\ \x01", &err), TERN_OK);
    assert_int_equal(st_writer_add(w, "odd \"name\"\\", ST_U16, 2, (int64_t[]){1, 3}, produce, &small, &err), TERN_OK);
    assert_int_equal(st_writer_add(w, "big", ST_BF16, 1, (int64_t[]){MANY}, produce, &big, &err), TERN_OK);
    assert_int_equal(st_writer_add(w, "empty", ST_F32, 2, (int64_t[]){0, 5}, produce, &none, &err), TERN_OK);
    assert_int_equal(st_writer_add(w, "z", ST_U16, 1, (int64_t[]){3}, produce, &small, &err), TERN_OK);
    assert_int_equal(st_writer_bytes(w), MANY * 2 + 12);
    unlink(in_folder("w.safetensors"));
    assert_int_equal(st_writer_write(w, in_folder("w.safetensors"), &err), TERN_OK);
    st_writer_close(w);
    st_file f;
    assert_int_equal(st_open(in_folder("w.safetensors"), &f, &err), TERN_OK);
    assert_int_equal(f.n_tensors, 4);
    assert_string_equal(f.metadata[1].key, "quote\"\n");
    assert_string_equal(f.metadata[1].value, "\\ \x01");
    assert_int_equal(st_find(&f, "odd \"name\"\\")->shape[1], 3);
    const st_tensor *t = st_find(&f, "big");
    for (size_t k = 0; k < t->bytes; k++)
      if (t->data[k] != (uint8_t)(k * 7))
        fail_msg("byte %zu of \"big\"", k);
    assert_int_equal((f.tensors[0].data - f.map.data) % 8, 0);
    st_close(&f);
  }
}

/* Writes one tensor of six bytes from `s`. */
static tern_status write_one(source *s, tern_error *err)
{
  st_writer *w;
  TRY(st_writer_open(&w, err));
  tern_status status = st_writer_meta(w, "format", "mlx", err);
  if (status == TERN_OK)
    status = st_writer_add(w, "t", ST_U8, 1, (int64_t[]){6}, produce, s, err);
  if (status == TERN_OK)
    status = st_writer_write(w, in_folder("one.safetensors"), err);
  st_writer_close(w);
  return status;
}

static void failed_writes_leave_nothing(void **state)
{
  (void)state;
  tern_error err = {0};
  assert_error(&err, write_one(&(source){5, 9, false}, &err), TERN_E_INTERNAL, "\"t\"|1 of its 6 bytes");
  assert_false(exists(in_folder("one.safetensors")));
  assert_error(&err, write_one(&(source){7, 9, false}, &err), TERN_E_INTERNAL, "\"t\"|more than the 6 bytes");
  assert_false(exists(in_folder("one.safetensors")));
  assert_error(&err, write_one(&(source){6, 9, true}, &err), TERN_E_FORMAT, "the source broke");
  assert_false(exists(in_folder("one.safetensors")));
  put_text("one.safetensors", "mine");
  assert_error(&err, write_one(&(source){6, 9, false}, &err), TERN_E_IO, "one.safetensors|create|exists");
  assert_true(exists(in_folder("one.safetensors")));
  unlink(in_folder("one.safetensors"));
}

static void a_full_disk_leaves_nothing(void **state)
{
  (void)state;
  struct rlimit old, tight = {64, 64};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, SIG_IGN);
  tight.rlim_max = old.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
  tern_error err = {0};
  tern_status status = write_one(&(source){6, 9, false}, &err);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_error(&err, status, TERN_E_IO, "one.safetensors|File too large");
  assert_false(exists(in_folder("one.safetensors")));
}

static void bad_additions_are_refused(void **state)
{
  (void)state;
  st_writer *w;
  tern_error err = {0};
  source s = {0};
  assert_int_equal(st_writer_open(&w, &err), TERN_OK);
  int64_t one[] = {1}, minus[] = {-1}, huge[] = {INT64_MAX, 4};
  assert_int_equal(st_writer_add(w, "t", ST_U8, 1, one, produce, &s, &err), TERN_OK);
  assert_error(&err, st_writer_add(w, "t", ST_U8, 1, one, produce, &s, &err), TERN_E_FORMAT, "\"t\"|added twice");
  assert_error(&err, st_writer_add(w, "\xff", ST_U8, 1, one, produce, &s, &err), TERN_E_FORMAT, "not UTF-8");
  assert_error(&err, st_writer_add(w, "n", ST_U8, 1, minus, produce, &s, &err), TERN_E_LIMIT, "\"n\"");
  assert_error(&err, st_writer_add(w, "h", ST_U8, 2, huge, produce, &s, &err), TERN_E_LIMIT, "\"h\"");
  assert_error(&err, st_writer_add(w, "r", ST_U8, 9, huge, produce, &s, &err), TERN_E_USAGE, "\"r\"");
  assert_error(&err, st_writer_add(w, "__metadata__", ST_U8, 1, one, produce, &s, &err), TERN_E_USAGE, "__metadata__");
  assert_int_equal(st_writer_meta(w, "k", "v", &err), TERN_OK);
  assert_error(&err, st_writer_meta(w, "k", "v", &err), TERN_E_FORMAT, "\"k\"|added twice");
  assert_error(&err, st_writer_meta(w, "l", "\xff", &err), TERN_E_FORMAT, "\"l\"|not UTF-8");
  assert_error(&err, st_put(w, "", 0, &err), TERN_E_INTERNAL, "st_put");
  assert_int_equal(st_writer_bytes(w), 1);
  st_writer_close(w);
}

static tern_status write_good_one(tern_error *err)
{
  source s = {6, 4, false};
  tern_status status = write_one(&s, err);
  assert_int_equal(exists(in_folder("one.safetensors")), status == TERN_OK);
  return status;
}

static void writing_survives_allocation_failures(void **state)
{
  (void)state;
  unlink(in_folder("one.safetensors"));
  with_failing_allocations(write_good_one);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_good_file_opens),
      cmocka_unit_test(every_dtype_is_known),
      cmocka_unit_test(each_fault_is_its_own_error),
      cmocka_unit_test(bad_lengths_are_refused),
      cmocka_unit_test(allocation_failures_are_reported),
      cmocka_unit_test(damaged_files_do_no_harm),
      cmocka_unit_test(a_shrinking_file_is_noticed),
      cmocka_unit_test(what_is_written_reads_back),
      cmocka_unit_test(failed_writes_leave_nothing),
      cmocka_unit_test(a_full_disk_leaves_nothing),
      cmocka_unit_test(bad_additions_are_refused),
      cmocka_unit_test(writing_survives_allocation_failures),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
