/* ask.c - see ask.h. */
#include "cli/ask.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/out.h"

bool ask_can(void)
{
  return isatty(STDIN_FILENO) && out_err_is_terminal();
}

bool ask_yes(const char *question)
{
  say_progress_end();
  fprintf(stderr, "%s [y/N] ", question);
  fflush(stderr);
  int first = getchar(), c = first;
  while (c != '\n' && c != EOF)
    c = getchar();
  return first == 'y' || first == 'Y';
}
