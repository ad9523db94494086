/* tmpl_filters.h - the tables of filters, tests and methods, and how arguments reach them. */
#ifndef TERN_TEXT_TMPL_FILTERS_H
#define TERN_TEXT_TMPL_FILTERS_H

#include "text/tmpl_value.h"

/* The arguments of one call. */
typedef struct targs {
  tv *v;
  size_t n;
  const tstr **names;
  tv *kw;
  size_t n_kw;
} targs;

enum { TMPL_MAX_PARAMS = 6 };

/* Parameter names separated by blanks: "width first blank"; a '?' behind a name makes it optional, a '*' alone admits
 * anything (the function reads targs itself); a leading '!' means by position only. */
typedef struct tsignature {
  const char *names;
} tsignature;

/* Sorts the arguments into slots (TV_MISSING: not given). */
bool targs_bind(tmpl_rt *r, const char *who, const char *names, const targs *a, tv slots[TMPL_MAX_PARAMS]);
const tv *targs_keyword(const targs *a, const char *name);

typedef struct tfilter {
  const char *name;
  bool (*run)(tmpl_rt *r, tv value, const tv *slots, const targs *a, tv *out); /* NULL: known, not supported */
  const char *names;
} tfilter;

typedef struct ttest {
  const char *name;
  bool (*run)(tmpl_rt *r, tv value, const tv *slots, bool *out);
  const char *names;
} ttest;

/* NULL: no such name. */
const tfilter *tfilter_find(const tstr *name);
const ttest *ttest_find(const tstr *name);
bool tfilter_call(tmpl_rt *r, const tfilter *f, tv value, const targs *a, tv *out);
bool ttest_call(tmpl_rt *r, const ttest *t, tv value, const targs *a, bool *out);

/* Table parts, one a file; each ends with an entry without a name. */
extern const tfilter tfilters_text[], tfilters_sequence[], tfilters_select[];

/* "a.b.0" of an attribute argument, split; then applied to items. */
typedef struct tpath {
  tv *parts;
  size_t n;
} tpath;
bool tpath_parse(tmpl_rt *r, tv attribute, tpath *out);
bool tpath_get(tmpl_rt *r, const tpath *path, tv item, tv fallback, tv *out);
/* value.lower() where it is a string and case does not matter. */
bool tpath_fold(tmpl_rt *r, tv value, bool case_sensitive, tv *out);

#endif
