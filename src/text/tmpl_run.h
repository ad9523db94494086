/* tmpl_run.h - the two entry points under tmpl.h, for those who prepare variables as values (the chat room). */
#ifndef TERN_TEXT_TMPL_RUN_H
#define TERN_TEXT_TMPL_RUN_H

#include <locale.h>

#include "text/tmpl_value.h"

/* Numbers and dates are read and written in the C locale, whatever the program around has chosen: one pair around
 * everything that is done with a context. False: no memory. */
typedef struct tmpl_locale {
  locale_t c, old;
} tmpl_locale;
bool tmpl_locale_enter(tmpl_locale *l);
void tmpl_locale_leave(tmpl_locale *l);

/* Renders with the variables `vars`, made in the context r; *out as in tmpl_render. r->clock may be set before. */
tern_status tmpl_render_values(tmpl_rt *r, const tmpl *t, const tdict *vars, char **out, size_t *length);

#endif
