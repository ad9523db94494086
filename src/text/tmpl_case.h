/* tmpl_case.h - case mapping of whole strings and the splitting and stripping that filters and methods share. */
#ifndef TERN_TEXT_TMPL_CASE_H
#define TERN_TEXT_TMPL_CASE_H

#include "text/tmpl_value.h"

/* Results keep the markup flag of their argument. */
bool tc_upper(tmpl_rt *r, const tstr *s, tv *out);
bool tc_lower(tmpl_rt *r, const tstr *s, tv *out);
bool tc_title(tmpl_rt *r, const tstr *s, tv *out); /* str.title */
bool tc_capitalize(tmpl_rt *r, const tstr *s, tv *out);
bool tc_swapcase(tmpl_rt *r, const tstr *s, tv *out);
/* chars NULL: white space; else any of its characters. */
bool tc_strip(tmpl_rt *r, const tstr *s, const tstr *chars, bool left, bool right, tv *out);
bool tc_replace(tmpl_rt *r, const tstr *s, const tstr *from, const tstr *to, int64_t count, tv *out);
bool tc_splitlines(tmpl_rt *r, const tstr *s, bool keep_ends, tlist **out);
/* str.split and str.rsplit; separator NULL: runs of white space. */
bool tc_split(tmpl_rt *r, const tstr *s, const tstr *separator, int64_t most, bool from_right, tlist **out);
bool tc_join(tmpl_rt *r, const tstr *separator, const tlist *strings, tv *out); /* of strings only */
/* Padding to a width in characters. */
bool tc_pad(tmpl_rt *r, const tstr *s, int64_t width, uint32_t fill, bool left, bool right, tv *out);

/* These two count no steps: callers do. */
bool tc_is_upper(const tstr *s);
bool tc_is_lower(const tstr *s);

#endif
