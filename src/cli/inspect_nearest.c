/* inspect_nearest.c - see inspect_nearest.h. The comparison itself is model/nearest.c. */
#include "cli/inspect_nearest.h"

#include "base/status.h"
#include "cli/out.h"
#include "model/nearest.h"

/* ---- JSON ---- */

static json_t *keys_json(const nearest_keys *keys)
{
  json_t *list = json_array();
  for (size_t i = 0; i < keys->count; i++)
    out_append(&list, json_string(keys->names[i]));
  return list;
}

static json_t *names_json(const nearest_row *row, const weights_names *names)
{
  if (!row->compared)
    return json_null();
  json_t *first = json_array();
  for (size_t i = 0; i < names->count && i < WEIGHTS_NAMED; i++)
    out_append(&first, json_string(names->names[i] ? names->names[i] : ""));
  return json_pack("{sI so}", "count", (json_int_t)names->count, "first", first);
}

static void print_json(const nearest *n, const char *error)
{
  json_t *rows = json_array();
  for (size_t i = 0; i < n->n; i++) {
    const nearest_row *row = &n->rows[i];
    out_append(&rows,
               json_pack("{ss sf ss? so so so so}", "type", row->arch->name, "score", row->score, "config_error",
                         row->complaint[0] ? row->complaint : NULL, "missing_keys", keys_json(&row->missing),
                         "unread_keys", keys_json(&row->unread), "tensors_without_part",
                         names_json(row, &row->gap.left), "tensors_missing", names_json(row, &row->gap.missing)));
  }
  out_json(json_pack("{ss so}", "error", error, "nearest", rows));
}

/* ---- text ---- */

static void print_line(const char *label, const char *text)
{
  out_printf("  %-22s%s\n", label, text);
}

/* Names come from files: a terminal may be shown them clean alone. */
static void print_name(size_t i, const char *name)
{
  char clean[200];
  out_printf("%s%s", i ? ", " : "", err_clean_copy(name ? name : "?", clean, sizeof clean));
}

static void print_keys(const char *label, const nearest_keys *keys)
{
  out_printf("  %-22s", label);
  for (size_t i = 0; i < keys->count; i++)
    print_name(i, keys->names[i]);
  out_printf("%s\n", keys->count ? "" : "none");
}

static void print_names(const char *label, const nearest_row *row, const weights_names *names)
{
  if (!row->compared || !names->count) {
    print_line(label, row->compared ? "none" : "not known: no weights that open");
    return;
  }
  out_printf("  %-22s%zu: ", label, names->count);
  for (size_t i = 0; i < names->count && i < WEIGHTS_NAMED; i++)
    print_name(i, names->names[i]);
  if (names->count > WEIGHTS_NAMED)
    out_printf(" and %zu more", names->count - WEIGHTS_NAMED);
  out_write("\n", 1);
}

static void print_text(const nearest *n)
{
  for (size_t i = 0; i < n->n; i++) {
    const nearest_row *row = &n->rows[i];
    bool own = !i && n->known;
    out_printf("%-14s%s (%s", own ? "type" : "nearest", row->arch->name, own ? "the row of this type" : "likeness ");
    if (!own)
      out_printf("%.2f", row->score);
    out_printf(")\n");
    if (row->complaint[0])
      print_line("config", row->complaint);
    print_keys("keys missing", &row->missing);
    print_keys("keys without meaning", &row->unread);
    print_names("tensors without part", row, &row->gap.left);
    print_names("tensors missing", row, &row->gap.missing);
  }
}

void inspect_nearest(const char *dir, const char *error, bool json)
{
  nearest n;
  if (nearest_find(dir, &n, NULL) != TERN_OK)
    return;
  if (nearest_differs(&n)) {
    if (json)
      print_json(&n, error);
    else
      print_text(&n);
  }
  nearest_free(&n);
}
