/* trace.h - the outputs of every executed op record, in order, for finding the op whose numbers differ.
 *
 * FILE is the index, a JSON object a line:
 *   {"seq":0,"layer":-1,"op":"embed","output":"out","of":"model.embed_tokens.weight","position":0,"rows":20,"width":128,
 *    "offset":0}
 * layer -1: outside the layers. position: that of the first row of the forward pass. rows: tokens of the pass, or
 * wanted rows in the head. offset: bytes into FILE.f32, where rows * width little-endian floats lie.
 */
#ifndef TERN_CLI_TRACE_H
#define TERN_CLI_TRACE_H

#include "ops/ops.h"

typedef struct trace trace;

/* Whether FILE can be one: a regular file or nothing yet, since a second file goes beside it; and neither of the two
 * may be `out`, the file of the rows (NULL: none), which is a matter of usage. */
tern_status trace_check(const char *path, const char *out, tern_error *err);
/* Starts watching. Refuses backends whose ops cannot be watched one by one. `path` must outlive the trace. */
tern_status trace_open(const char *path, ops_context *cx, trace **out, tern_error *err);
/* Both files get their names, or the error of the first failed write is told. Nothing is done for NULL. */
tern_status trace_finish(trace *t, tern_error *err);
/* Stops watching; leaves nothing behind of what was not finished. NULL is fine. */
void trace_close(trace *t);

#endif
