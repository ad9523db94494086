/* responses_store.c - responses that were answered with `store`, by id, for a while. See responses.h.
 *
 * A list, the newest first: few enough to be looked through. Texts are copied out under the lock, so that no reader
 * holds what may go.
 */
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "server/responses.h"

enum { PARTS = 3 };

typedef struct kept kept;
struct kept {
  kept *next;
  char id[RESP_ID];
  char *text[PARTS]; /* by resp_part */
  size_t bytes;
};

struct resp_store {
  pthread_mutex_t lock;
  kept *first;
  int n;
  size_t bytes;
};

static void free_kept(kept *k)
{
  for (int i = 0; i < PARTS; i++)
    mem_free(k->text[i]);
  mem_free(k);
}

resp_store *resp_store_open(void)
{
  resp_store *s = mem_zalloc(sizeof *s);
  if (s)
    pthread_mutex_init(&s->lock, NULL);
  return s;
}

void resp_store_close(resp_store *s)
{
  if (!s)
    return;
  while (s->first) {
    kept *k = s->first;
    s->first = k->next;
    free_kept(k);
  }
  pthread_mutex_destroy(&s->lock);
  mem_free(s);
}

/* Takes it out of the list. */
static kept *take(resp_store *s, kept **at)
{
  kept *k = *at;
  *at = k->next;
  s->n--;
  s->bytes -= k->bytes;
  return k;
}

static kept **find(resp_store *s, const char *id, size_t n)
{
  kept **at = &s->first;
  while (*at && (strlen((*at)->id) != n || memcmp((*at)->id, id, n) != 0))
    at = &(*at)->next;
  return at;
}

/* Old ones go until all fit; the newest stays, whatever it takes. */
static void make_room(resp_store *s)
{
  while (s->first && s->first->next && (s->n > RESP_MOST || s->bytes > RESP_MOST_BYTES)) {
    kept **at = &s->first->next;
    while ((*at)->next)
      at = &(*at)->next;
    free_kept(take(s, at));
  }
}

void resp_store_add(resp_store *s, const char *id, char *response, char *input, char *items)
{
  kept *k = mem_zalloc(sizeof *k);
  char *text[PARTS] = {response, input, items};
  if (!k || !response || !input || !items) {
    for (int i = 0; i < PARTS; i++)
      mem_free(text[i]);
    mem_free(k);
    return;
  }
  strncpy(k->id, id, sizeof k->id - 1);
  for (int i = 0; i < PARTS; i++) {
    k->text[i] = text[i];
    k->bytes += strlen(text[i]);
  }
  pthread_mutex_lock(&s->lock);
  k->next = s->first;
  s->first = k;
  s->n++;
  s->bytes += k->bytes;
  make_room(s);
  pthread_mutex_unlock(&s->lock);
}

char *resp_store_get(resp_store *s, const char *id, size_t n, resp_part part)
{
  pthread_mutex_lock(&s->lock);
  const kept *k = *find(s, id, n);
  char *out = k ? mem_strdup(k->text[part]) : NULL;
  pthread_mutex_unlock(&s->lock);
  return out;
}

bool resp_store_delete(resp_store *s, const char *id, size_t n)
{
  pthread_mutex_lock(&s->lock);
  kept **at = find(s, id, n), *k = *at ? take(s, at) : NULL;
  pthread_mutex_unlock(&s->lock);
  if (k)
    free_kept(k);
  return k != NULL;
}
