/* elsewhere.h - what other engines' programs call things, for those who come from them: verbs, and names of models. */
#ifndef TERN_CLI_ELSEWHERE_H
#define TERN_CLI_ELSEWHERE_H

#include "base/status.h"

/* What does here what that verb does elsewhere; NULL: not one that is known. */
const char *elsewhere_verb(const char *name);
/* Whether `name` is a model's name in another program's library: "llama3.2", with or without ":TAG". */
bool elsewhere_is_model(const char *name);
/* Returns `status`. Where it is a failure and `name` is such a name, the line in `err` becomes one that says what the
 * hub calls that model. */
tern_status elsewhere_explain(const char *name, tern_status status, tern_error *err);

#endif
