/* manual.c - man pages from the tables of verbs and flags: `tern help --man [VERB]`, in man(7)'s macros.
 *
 * tern(1) lists the verbs; tern-VERB(1) has the flags of one. The build writes them all into files (CMakeLists.txt), so
 * a page cannot say what the program does not do. No dates: the same sources make the same bytes.
 */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/args.h"
#include "cli/examples.h"
#include "cli/out.h"

/* Text as troff wants it: no escape or request of its own, a dash that can be copied into a shell, and ASCII alone. */
static void print_text(const char *text)
{
  uint32_t c;
  for (const char *at = text; *at; at += utf8_decode(at, strlen(at), &c)) { /* the tables are UTF-8 */
    utf8_decode(at, strlen(at), &c);
    if ((c == '.' || c == '\'') && (at == text || at[-1] == '\n'))
      out_printf("\\&");
    if (c == '\\')
      out_printf("\\e");
    else if (c == '-')
      out_printf("\\-");
    else if (c < 0x80)
      out_write(at, 1);
    else
      out_printf("\\[u%04X]", (unsigned)c);
  }
}

static void print_heading(const char *page, const char *summary)
{
  out_printf(".TH ");
  for (const char *at = page; *at; at++)
    out_printf("%c", *at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
  out_printf(" 1 \"\" \"tern %s\" \"User Commands\"\n.SH NAME\n", tern_version());
  print_text(page);
  out_printf(" \\- ");
  print_text(summary);
  out_printf("\n");
}

static void print_flag(const cli_flag *f)
{
  out_printf(".TP\n");
  for (const char *at = f->names; at; at = strchr(at, '|')) {
    char one[64];
    at += *at == '|';
    out_printf("%s\\fB", at == f->names ? "" : ", ");
    size_t length = strcspn(at, "|");
    length = length < sizeof one ? length : sizeof one - 1;
    memcpy(one, at, length);
    one[length] = 0;
    print_text(one);
    out_printf("\\fR");
  }
  if (f->value) {
    out_printf(" \\fI");
    print_text(f->value);
    out_printf("\\fR");
  }
  out_printf("\n");
  print_text(f->help);
  if (f->choices) {
    out_printf(" (");
    for (const char *at = f->choices; *at; at++)
      out_write(*at == '|' ? ", " : at, *at == '|' ? 2 : 1);
    out_printf(")");
  }
  if (help_shows_default(f)) {
    out_printf(" [");
    char number[32];
    snprintf(number, sizeof number, "%.15g", f->fallback);
    print_text(number);
    out_printf("]");
  }
  out_printf("\n");
}

static void print_examples(cli_verb_id verb)
{
  const char *heading = ".SH EXAMPLES\n";
  for (size_t i = 0; i < examples_n; i++) {
    if (examples[i].verb != verb)
      continue;
    out_printf("%s.TP\n\\fB", heading);
    print_text(examples[i].line);
    out_printf("\\fR\n");
    print_text(examples[i].what);
    out_printf("\n");
    heading = "";
  }
}

void manual_verb(cli_verb_id verb)
{
  const cli_verb *v = &cli_verbs[verb];
  char page[64];
  snprintf(page, sizeof page, "tern-%s", v->name);
  print_heading(page, v->summary);
  out_printf(".SH SYNOPSIS\n\\fBtern %s\\fR ", v->name);
  print_text(v->operands);
  out_printf(" [\\fIflags\\fR]\n.SH FLAGS\nFlags stand anywhere after the verb, as \\fB\\-\\-flag value\\fR or "
             "\\fB\\-\\-flag=value\\fR; \\fB\\-\\-\\fR ends them.\n");
  for (size_t i = 0; i < cli_n_flags; i++)
    if (cli_flags[i].verbs >> verb & 1)
      print_flag(&cli_flags[i]);
  for (const char *const *at = examples_notes; *at; at += 2)
    if (!strcmp(at[0], v->name)) {
      out_printf(".SH NOTES\n");
      print_text(at[1]);
      out_printf("\n");
    }
  print_examples(verb);
  out_printf(".SH SEE ALSO\n\\fBtern\\fR(1)\n");
}

void manual_all(void)
{
  print_heading("tern", "runs MLX-format checkpoints with the numbers of mlx-lm");
  out_printf(".SH SYNOPSIS\n\\fBtern\\fR \\fIVERB\\fR [\\fIMODEL\\fR] [\\fIflags\\fR]\n.SH DESCRIPTION\n");
  print_text(help_model);
  out_printf("\n.SH VERBS\n");
  for (int i = 0; i < VERB_COUNT; i++) {
    if (!cli_verbs[i].name)
      continue;
    out_printf(".TP\n\\fB%s\\fR ", cli_verbs[i].name);
    print_text(cli_verbs[i].operands);
    out_printf("\n");
    print_text(cli_verbs[i].summary);
    out_printf("\n");
  }
  out_printf(".SH EXIT STATUS\n0; 1: bad input; 2: bad usage; 130: interrupted.\n.SH ENVIRONMENT\n");
  print_text(help_environment);
  out_printf("\n.SH SEE ALSO\n");
  for (int i = 0, some = 0; i < VERB_COUNT; i++)
    if (cli_verbs[i].name)
      out_printf("%s\\fBtern\\-%s\\fR(1)", some++ ? ",\n" : "", cli_verbs[i].name);
  out_printf("\n");
}
