/* tmpl_json.h - JSON as Python's json module reads and writes it: key order kept, long integers exact, floats by repr.
 */
#ifndef TERN_TEXT_TMPL_JSON_H
#define TERN_TEXT_TMPL_JSON_H

#include "text/tmpl_filters.h"

/* Reads one JSON text. Strings borrow from `text` where they can: it must live as long as the context. Errors are
 * TERN_E_FORMAT, with line and column. */
bool tj_read(tmpl_rt *r, const char *text, size_t n, tv *out);
/* json.dumps with ensure_ascii (default false), indent, separators, sort_keys in `slots`. */
bool tj_filter(tmpl_rt *r, tv value, const tv *slots, const targs *a, tv *out);

#endif
