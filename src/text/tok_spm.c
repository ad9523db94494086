/* tok_spm.c - SentencePiece models (tokenizer.model). Refused: all of them so far; tokenizer.json is read instead. */
#include "text/tok_impl.h"

tern_status tok_read_spm(tok *t, const char *data, size_t n, tern_error *err)
{
  (void)data;
  (void)n;
  return err_set(err, TERN_E_UNSUPPORTED, "%s: SentencePiece models need a tokenizer.json beside them", t->file);
}
