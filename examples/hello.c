/* hello.c - one answer, streamed: hello MODEL_DIR "PROMPT". Everything that it uses of tern is in <tern.h>.
 *
 * `make` builds it: build/examples/hello. Against an installed tern (make install PREFIX=P):
 *
 *   cc -IP/include hello.c -LP/lib -ltern -o hello && LD_LIBRARY_PATH=P/lib ./hello MODEL_DIR
 *
 * or with the library inside, which then needs those that it is made of:
 *
 *   cc -IP/include hello.c P/lib/libtern.a -ljansson -lonig -lutf8proc -lyajl -lm -pthread -o hello
 */
#include <stdio.h>
#include <tern.h>

static bool print(void *user, const char *text, size_t length)
{
  return fwrite(text, 1, length, user) == length;
}

int main(int argc, char **argv)
{
  tern_error err;
  tern_model *model = NULL;
  tern_session *session = NULL;
  tern_message message = {"user", argc > 2 ? argv[2] : "Why is the sky blue?"};
  tern_generate_options options = {.max_tokens = 100, .on_text = print, .user = stdout};
  tern_result result = {0};
  int32_t *ids = NULL;
  size_t n;
  bool fine = argc > 1 && tern_model_open(argv[1], NULL, &model, &err) == TERN_OK &&
              tern_session_open(model, NULL, &session, &err) == TERN_OK &&
              tern_chat(model, &message, 1, &ids, &n, &err) == TERN_OK &&
              tern_generate(session, ids, n, &options, &result, &err) == TERN_OK;
  fprintf(fine ? stdout : stderr, "%s\n", fine ? "" : argc > 1 ? err.text : "usage: hello MODEL_DIR [PROMPT]");
  tern_result_clear(&result);
  tern_free(ids);
  tern_session_close(session);
  tern_model_close(model);
  return fine ? 0 : 1;
}
