/* Proves that a GPU that has no memory left, or is lost in the midst of work, is an error of the request and nothing
 * worse: test_faults DIR, a small checkpoint. Needs a GPU. */
#include <stdio.h>
#include <string.h>

#include "engine/session.h"

void break_device(void); /* break_device.cu */

typedef struct tally {
  int passed, failed;
} tally;

static void check(tally *t, const char *what, bool holds, const char *told)
{
  fprintf(stderr, "%s %s%s%s\n", holds ? "ok    " : "FAILED", what, holds ? "" : ": ", holds ? "" : told);
  *(holds ? &t->passed : &t->failed) += 1;
}

static void ignore(void *user, int64_t position, float *logits)
{
  (void)user;
  (void)position;
  (void)logits;
}

static tern_status read_some(model *m, int64_t limit, tern_error *err)
{
  session *s = NULL;
  int32_t ids[] = {1, 2, 3, 4, 5};
  session_sink sink = {.row = ignore, .user = NULL};
  session_request request = {.ids = ids, .n = 5, .limit = limit};
  TRY(session_open(m, 2000000000, &s, err));
  tern_status status = session_sync(s, &request, &sink, NULL, err);
  for (int i = 0; i < 3 && status == TERN_OK; i++)
    status = session_step(s, 7 + i, &sink, err);
  session_close(s);
  return status;
}

int main(int argc, char **argv)
{
  tern_model_options o = {0};
  tern_error err = {0};
  tally t = {0};
  model *m = NULL;
  if (argc != 2)
    return 2;
  o.backend = TERN_BACKEND_CUDA;
  o.gpu_memory = 1e-9;
  tern_status status = model_open(argv[1], &o, false, &m, &err);
  check(&t, "no memory: cuda is refused with numbers", status == TERN_E_LIMIT && strstr(err.text, "B are free"),
        err.text);

  o.backend = TERN_BACKEND_AUTO;
  status = model_open(argv[1], &o, false, &m, &err);
  check(&t, "no memory: auto goes on with the CPU and tells",
        status == TERN_OK && strncmp(m->cx.backend->name, "cpu", 3) == 0 && strstr(m->backend_fault.text, "B are free"),
        err.text);
  if (status == TERN_OK)
    model_close(m);

  o.backend = TERN_BACKEND_CUDA;
  o.gpu_memory = 0;
  status = model_open(argv[1], &o, false, &m, &err);
  check(&t, "with memory it opens", status == TERN_OK, err.text);
  if (status != TERN_OK)
    return 1;
  status = read_some(m, 1900000000, &err);
  check(&t, "a context that cannot fit is refused with numbers",
        status == TERN_E_LIMIT && strstr(err.text, "B are free"), err.text);
  status = read_some(m, 100, &err);
  check(&t, "and the model works on", status == TERN_OK, err.text);

  break_device();
  status = read_some(m, 100, &err);
  check(&t, "a lost device is an error of the request", status != TERN_OK && strstr(err.text, "cuda"), err.text);
  status = read_some(m, 100, &err);
  check(&t, "and of the next one", status != TERN_OK, err.text);
  model_close(m);
  check(&t, "closing it does no harm", true, "");
  printf("%d passed, %d failed\n", t.passed, t.failed);
  return t.failed > 0;
}
