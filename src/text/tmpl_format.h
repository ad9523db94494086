/* tmpl_format.h - Python's two string formatters: the % operator and str.format. */
#ifndef TERN_TEXT_TMPL_FORMAT_H
#define TERN_TEXT_TMPL_FORMAT_H

#include "text/tmpl_filters.h"

/* format % value: a tuple gives several arguments, a dict named ones. */
bool tf_percent(tmpl_rt *r, const tstr *format, tv value, tv *out);
/* format.format(*args, **kwargs), with the sandbox's attribute access. */
bool tf_format(tmpl_rt *r, const tstr *format, const targs *a, tv *out);

#endif
