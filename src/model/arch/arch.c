/* arch.c - the register of architectures. */
#include <stdio.h>
#include <string.h>

#include "model/arch/rows.h"

static const arch *const rows[] = {&arch_llama, &arch_qwen2, &arch_qwen3, &arch_gemma3_text};

const arch *arch_at(size_t i)
{
  return i < sizeof rows / sizeof *rows ? rows[i] : NULL;
}

const arch *arch_find(const char *model_type)
{
  const arch *a;
  for (size_t i = 0; (a = arch_at(i)); i++) {
    if (strcmp(a->name, model_type) == 0)
      return a;
    for (int n = 0; n < ARCH_MAX_ALIASES && a->aliases[n]; n++)
      if (strcmp(a->aliases[n], model_type) == 0)
        return a;
  }
  return NULL;
}

const char *arch_list(char *out, size_t size)
{
  size_t used = 0;
  const arch *a;
  out[0] = '\0';
  for (size_t i = 0; (a = arch_at(i)) && used < size; i++) {
    used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", a->name);
    for (int n = 0; n < ARCH_MAX_ALIASES && a->aliases[n] && used < size; n++)
      used += (size_t)snprintf(out + used, size - used, ", %s", a->aliases[n]);
  }
  return out;
}
