/* completions.c - `tern completions SHELL`: what bash, zsh and fish need to complete verbs, flags and their values.
 *
 * The scripts hold the tables of verbs and flags as they were when the script was printed; names of models are asked of
 * `tern ls --ids` at the time of completing. Printed to stdout for packages and for
 * `source <(tern completions bash)`.
 */
#include <string.h>

#include "cli/out.h"
#include "cli/verbs.h"

/* What may stand where a value is wanted. */
typedef enum value_kind { VALUE_NONE, VALUE_CHOICE, VALUE_FILE, VALUE_MODEL, VALUE_OTHER } value_kind;

static value_kind kind_of(const cli_flag *f)
{
  if (f->kind == FLAG_BOOL || f->kind == FLAG_TRUTH)
    return VALUE_NONE;
  if (f->choices)
    return VALUE_CHOICE;
  if (strstr(f->value, "FILE") || strstr(f->value, "PATH") || strstr(f->value, "DIR"))
    return VALUE_FILE;
  return strcmp(f->value, "MODEL") ? VALUE_OTHER : VALUE_MODEL;
}

static bool has_flag(int verb, size_t i)
{
  return cli_verbs[verb].name && cli_flags[i].verbs >> verb & 1;
}

static bool takes_model(int verb)
{
  return strstr(cli_verbs[verb].operands, "MODEL") != NULL;
}

/* The bars of "a|b" as `between`. */
static void print_list(const char *list, const char *between)
{
  for (const char *at = list; *at; at++)
    out_write(*at == '|' ? between : at, *at == '|' ? strlen(between) : 1);
}

static void print_verbs(const char *between)
{
  for (int v = 0, some = 0; v < VERB_COUNT; v++)
    if (cli_verbs[v].name)
      out_printf("%s%s", some++ ? between : "", cli_verbs[v].name);
}

/* Between single quotes, in a shell in which \' is no way to write one. */
static void print_quoted(const char *text)
{
  for (; *text; text++)
    if (*text == '\'')
      out_printf("'\\''");
    else
      out_write(text, 1);
}

/* ---- bash ---- */

/* A line of a `case` over "VERB FLAG": which rows have values of that kind. */
static void bash_values(value_kind kind, const char *action)
{
  for (size_t i = 0; i < cli_n_flags; i++) {
    if (kind_of(&cli_flags[i]) != kind)
      continue;
    int some = 0;
    out_printf("    ");
    for (int v = 0; v < VERB_COUNT; v++) {
      if (!has_flag(v, i))
        continue;
      for (const char *at = cli_flags[i].names; at; at = strchr(at, '|')) {
        at += *at == '|';
        out_printf("%s'%s %.*s'", some++ ? "|" : "", cli_verbs[v].name, (int)strcspn(at, "|"), at);
      }
    }
    if (kind == VALUE_CHOICE) {
      out_printf(") COMPREPLY=($(compgen -W '");
      print_list(cli_flags[i].choices, " ");
      out_printf("' -- \"$word\")); return ;;\n");
    } else {
      out_printf(") %s; return ;;\n", action);
    }
  }
}

static void print_bash(void)
{
  out_printf("# bash completion of tern, made by `tern completions bash`\n"
             /* Names are whoever's: they are compared as text, and nothing of them is ever expanded. */
             "_tern_files()\n{\n"
             "  local name\n"
             "  while IFS= read -r name; do COMPREPLY+=(\"$name\"); done < <(compgen -f -- \"$word\")\n"
             "  compopt -o filenames 2>/dev/null\n}\n"
             "_tern_models()\n{\n"
             "  local name\n"
             "  while IFS= read -r name; do\n"
             "    [[ $name == \"$word\"* ]] && COMPREPLY+=(\"$name\")\n"
             "  done < <(tern ls --ids 2>/dev/null)\n"
             "  [[ ${models-} == ids ]] || _tern_files\n}\n" /* rm takes no paths */
             "_tern_words()\n{\n"
             "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
             "    COMPREPLY=($(compgen -W '");
  print_verbs(" ");
  out_printf("' -- \"$word\"))\n    return\n  fi\n"
             "  case \"$verb $before\" in\n");
  bash_values(VALUE_CHOICE, NULL);
  bash_values(VALUE_FILE, "_tern_files");
  bash_values(VALUE_MODEL, "_tern_models");
  bash_values(VALUE_OTHER, ":");
  out_printf("  esac\n  local flags= models=\n  case $verb in\n");
  for (int v = 0; v < VERB_COUNT; v++) {
    if (!cli_verbs[v].name)
      continue;
    out_printf("    %s) models=%s flags='", cli_verbs[v].name, v == VERB_RM ? "ids" : takes_model(v) ? "yes" : "");
    for (size_t i = 0, some = 0; i < cli_n_flags; i++)
      if (has_flag(v, i)) {
        out_printf("%s", some++ ? " " : "");
        print_list(cli_flags[i].names, " ");
      }
    out_printf("' ;;\n");
  }
  out_printf("  esac\n"
             "  case $word in\n"
             "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")) ;;\n"
             "    *)\n"
             "      case $verb in\n"
             "        help) COMPREPLY=($(compgen -W '");
  print_verbs(" ");
  out_printf("' -- \"$word\")) ;;\n"
             "        completions) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$word\")) ;;\n"
             "        *)\n"
             "          if [ -n \"$models\" ]; then\n            _tern_models\n          else\n"
             "            _tern_files\n          fi ;;\n"
             "      esac ;;\n"
             "  esac\n}\n"
             /* So is ORG/NAME:FILE where it has a colon: what stands before that is not written again. */
             /* --flag=value is three words where COMP_WORDBREAKS has a =, as it usually has, and else one. */
             "_tern()\n{\n"
             "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} flag= "
             "repo= i=$COMP_CWORD\n"
             "  COMPREPLY=()\n"
             "  if [[ $COMP_WORDBREAKS == *:* && $i -gt 3 && $before == : ]]; then\n"
             "    repo=${COMP_WORDS[i-2]}: before=${COMP_WORDS[i-3]}\n"
             "  elif [[ $COMP_WORDBREAKS == *:* && $i -gt 2 && $word == : ]]; then\n"
             "    repo=$before: before=${COMP_WORDS[i-2]} word=\n"
             "  fi\n"
             "  word=$repo$word\n"
             "  if [[ $word == = ]]; then\n    word=\n"
             "  elif [[ $before == = && $COMP_CWORD -gt 2 ]]; then\n    before=${COMP_WORDS[COMP_CWORD-2]}\n"
             "  elif [[ $word == -*=* ]]; then\n"
             "    flag=${word%%%%=*}=\n    before=${word%%%%=*}\n    word=${word#*=}\n  fi\n"
             "  _tern_words\n"
             "  COMPREPLY=(\"${COMPREPLY[@]#\"$repo\"}\")\n"
             "  if [ -n \"$flag\" ] && [ ${#COMPREPLY[@]} -gt 0 ]; then\n"
             "    COMPREPLY=(\"${COMPREPLY[@]/#/$flag}\")\n  fi\n}\n"
             "complete -F _tern tern\n");
}

/* ---- zsh ---- */

/* Inside '...[HELP]...' of _arguments: brackets and colons have a meaning. */
static void zsh_text(const char *text)
{
  for (; *text; text++) {
    if (strchr("[]:\\", *text))
      out_printf("\\");
    char one[2] = {*text, 0};
    print_quoted(one);
  }
}

static void zsh_flag(const cli_flag *f)
{
  value_kind kind = kind_of(f);
  const char *mark = f->kind == FLAG_STRINGS ? "*" : "";
  for (const char *at = f->names; at; at = strchr(at, '|')) {
    at += *at == '|';
    int length = (int)strcspn(at, "|");
    bool is_long = at[1] == '-';
    out_printf("      '%s%.*s%s[", mark, length, at, kind == VALUE_NONE ? "" : is_long ? "=" : "+");
    zsh_text(f->help);
    out_printf("]");
    if (kind != VALUE_NONE) {
      out_printf(":");
      zsh_text(f->value);
      out_printf(":");
    }
    if (kind == VALUE_CHOICE) {
      out_printf("(");
      print_list(f->choices, " ");
      out_printf(")");
    } else if (kind == VALUE_FILE) {
      out_printf("_files");
    } else if (kind == VALUE_MODEL) {
      out_printf("_tern_models");
    }
    out_printf("'\n");
  }
}

static void print_zsh(void)
{
  out_printf("#compdef tern\n# zsh completion of tern, made by `tern completions zsh`\n"
             "_tern_models() {\n"
             "  local -a found\n"
             "  found=(${(f)\"$(tern ls --ids 2>/dev/null)\"})\n"
             "  compadd -a found\n"
             "  _files\n}\n"
             "_tern() {\n"
             "  local -a verbs flags\n"
             "  verbs=(\n");
  for (int v = 0; v < VERB_COUNT; v++) {
    if (!cli_verbs[v].name)
      continue;
    out_printf("    '%s:", cli_verbs[v].name);
    zsh_text(cli_verbs[v].summary);
    out_printf("'\n");
  }
  out_printf("  )\n"
             "  if (( CURRENT == 2 )); then\n    _describe verb verbs\n    return\n  fi\n"
             "  local verb=$words[2] operand=_files\n"
             "  case $verb in\n");
  for (int v = 0; v < VERB_COUNT; v++) {
    if (!cli_verbs[v].name)
      continue;
    out_printf("    %s)\n", cli_verbs[v].name);
    if (takes_model(v))
      out_printf("      operand=_tern_models\n");
    out_printf("      flags=(\n");
    for (size_t i = 0; i < cli_n_flags; i++)
      if (has_flag(v, i))
        zsh_flag(&cli_flags[i]);
    out_printf("      ) ;;\n");
  }
  out_printf("  esac\n"
             "  case $verb in\n"
             "    help) operand='(");
  print_verbs(" ");
  out_printf(")' ;;\n"
             "    completions) operand='(bash zsh fish)' ;;\n"
             "  esac\n"
             "  shift words\n  (( CURRENT-- ))\n"
             "  _arguments -S $flags \"*:operand:$operand\"\n}\n"
             "if [ \"$funcstack[1]\" = _tern ]; then\n  _tern \"$@\"\nelse\n  compdef _tern tern\nfi\n");
}

/* ---- fish ---- */

static void print_fish(void)
{
  out_printf("# fish completion of tern, made by `tern completions fish`\n");
  for (int v = 0; v < VERB_COUNT; v++) {
    if (!cli_verbs[v].name)
      continue;
    out_printf("complete -c tern -n __fish_use_subcommand -f -a %s -d '", cli_verbs[v].name);
    for (const char *at = cli_verbs[v].summary; *at; at++)
      out_printf(*at == '\'' || *at == '\\' ? "\\%c" : "%c", *at);
    out_printf("'\n");
    if (takes_model(v))
      out_printf("complete -c tern -n '__fish_seen_subcommand_from %s' -a '(tern ls --ids 2>/dev/null)'\n",
                 cli_verbs[v].name);
    for (size_t i = 0; i < cli_n_flags; i++) {
      const cli_flag *f = &cli_flags[i];
      if (!has_flag(v, i))
        continue;
      value_kind kind = kind_of(f);
      out_printf("complete -c tern -n '__fish_seen_subcommand_from %s'", cli_verbs[v].name);
      for (const char *at = f->names; at; at = strchr(at, '|')) {
        at += *at == '|';
        bool is_long = at[1] == '-';
        out_printf(" -%c %.*s", is_long ? 'l' : 's', (int)strcspn(at, "|") - (is_long ? 2 : 1), at + (is_long ? 2 : 1));
      }
      if (kind == VALUE_CHOICE) {
        out_printf(" -x -a '");
        print_list(f->choices, " ");
        out_printf("'");
      } else if (kind == VALUE_MODEL) {
        out_printf(" -r -a '(tern ls --ids 2>/dev/null)'");
      } else if (kind != VALUE_NONE) {
        out_printf(kind == VALUE_FILE ? " -r" : " -x");
      }
      out_printf(" -d '");
      for (const char *at = f->help; *at; at++)
        out_printf(*at == '\'' || *at == '\\' ? "\\%c" : "%c", *at);
      out_printf("'\n");
    }
  }
  out_printf("complete -c tern -n '__fish_seen_subcommand_from help' -f -a '");
  print_verbs(" ");
  out_printf("'\ncomplete -c tern -n '__fish_seen_subcommand_from completions' -f -a 'bash zsh fish'\n");
}

tern_status verb_completions(const cli_args *a, tern_error *err)
{
  static const struct {
    const char *name;
    void (*print)(void);
  } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
  if (a->n_words == 0)
    return err_set(err, TERN_E_USAGE, "completions: no SHELL: tern completions bash, zsh or fish");
  for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
    if (!strcmp(a->words[0], shells[i].name)) {
      shells[i].print();
      return TERN_OK;
    }
  return err_set(err, TERN_E_USAGE, "completions: \"%.60s\" is not bash, zsh or fish", a->words[0]);
}
