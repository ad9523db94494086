/* chat.c - a conversation in the terminal, or over a pipe.
 *
 * A line is a message. One that ends in a backslash goes on in the next line; """ begins a block that ends with """.
 * Lines that begin with a slash are commands. Answers go to stdout, everything else to stderr, so that a script can
 * feed questions and read answers. Ctrl-C stops an answer (what was said stays in the conversation); at the prompt it
 * drops the line, and twice in a row it ends the program.
 *
 * Every turn renders the whole conversation; the session reuses what it has read before. The
 * random numbers start from the seed once and go on from turn to turn.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/distance.h"
#include "base/mem.h"
#include "cli/answer.h"
#include "cli/env.h"
#include "cli/lines.h"
#include "cli/out.h"
#include "cli/prompt_cache.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "cli/whole_file.h"
#include "format/json_util.h"

enum { MOST_FILE = 64 << 20 };

typedef struct talk {
  answerer r;
  lines *in;
  char *history; /* a file; NULL: none */
  tern_session *session;
  json_t *messages;
  uint64_t seed;
  unsigned turn;
  buf answer;       /* the running one */
  bool failed;      /* a message had no answer, or a command came to nothing */
  tern_result last; /* of the last answer, without its text and ids */
  bool answered;
  /* Where the last answer was stopped, what is known of it: the engine gives no result then. */
  bool stopped;
  size_t prompt_tokens, stopped_after;
  double stopped_seconds;
} talk;

/* ---- reading ---- */

static bool ends_with(const buf *b, const char *end)
{
  size_t n = strlen(end);
  return b->length >= n && !memcmp(b->data + b->length - n, end, n);
}

static void cut(buf *b, size_t n)
{
  b->length -= n;
  b->data[b->length] = 0;
}

/* One message, which may be several lines. `typed`: as the history has it, a block with its quotes. */
static lines_end read_lines(talk *t, buf *text, buf *typed)
{
  lines_end end = lines_read(t->in, ">>> ", text);
  if (end != LINES_READ)
    return end;
  bool block = text->length >= 3 && !memcmp(text->data, "\"\"\"", 3);
  if (text->length)
    buf_add(typed, text->data, text->length);
  if (block) {
    memmove(text->data, text->data + 3, text->length - 2);
    text->length -= 3;
  }
  for (;;) {
    bool closed = block && ends_with(text, "\"\"\"");
    bool goes_on = block ? !closed : ends_with(text, "\\");
    if (closed)
      cut(text, 3);
    if (!goes_on || text->failed)
      return LINES_READ;
    if (!block) {
      cut(text, 1);
      if (!typed->failed)
        cut(typed, 1);
    }
    buf_addc(text, '\n');
    size_t before = text->length;
    buf line = {0};
    end = lines_read(t->in, "... ", &line);
    buf_add(text, line.data ? line.data : "", line.length);
    text->failed = text->failed || line.failed;
    if (end == LINES_READ) {
      buf_addc(typed, '\n');
      buf_add(typed, line.data ? line.data : "", line.length);
    }
    buf_free(&line);
    if (text->failed)
      return LINES_READ;
    if (end == LINES_EOF) {
      cut(text, text->length - before + 1);
      return LINES_READ;
    }
    if (end != LINES_READ)
      return end;
  }
}

/* What was typed of a message that came to nothing is kept too: it can be taken up again. */
static lines_end read_message(talk *t, buf *text)
{
  buf typed = {0};
  buf_clear(text);
  lines_end end = read_lines(t, text, &typed);
  if (!typed.failed)
    lines_keep(t->in, typed.data, typed.length);
  buf_free(&typed);
  return end;
}

/* ---- answering ---- */

/* Told at once, and over a pipe by the exit status too. */
static void tell_failure(talk *t, const char *why)
{
  say_error(why);
  t->failed = true;
}

static bool print(void *user, const char *text, size_t length)
{
  talk *t = user;
  buf_add(&t->answer, text, length);
  out_write(text, length);
  out_flush();
  return out_ok();
}

static void drop_last(talk *t)
{
  json_array_remove(t->messages, json_array_size(t->messages) - 1);
}

/* Puts the answer into the conversation; where memory runs out, it and its question leave it. */
static void keep_answer(talk *t)
{
  tern_error why = {0};
  const char *text = t->answer.data ? t->answer.data : "";
  tern_status status = t->answer.failed ? err_nomem(&why, "answer")
                                        : answer_add_message(t->messages, "assistant", text, t->answer.length, &why);
  if (status == TERN_OK)
    return;
  tell_failure(t, why.text);
  drop_last(t);
  buf_free(&t->answer);
}

/* Answers the last message. What goes wrong is said and the message dropped; only a lost stdout ends the program. */
static void reply(talk *t)
{
  int32_t *ids = NULL;
  size_t n = 0;
  tern_result result = {0};
  tern_error why = {0};
  double start = use_seconds();
  buf_clear(&t->answer);
  tern_status status = answer_chat_ids(&t->r, t->messages, &ids, &n, &why);
  if (status == TERN_OK)
    status = answer_generate(&t->r, t->session, ids, n, t->seed, print, t, &result, &why);
  mem_free(ids);
  bool stopped = status == TERN_E_CANCELLED;
  if (status != TERN_OK && !stopped) {
    if (status == TERN_E_LIMIT && n > (size_t)session_context(t->session->timeline) &&
        json_array_size(t->messages) > 1) {
      const tern_error full = why;
      err_set(&why, status, "%s; /clear forgets the conversation", full.text);
    }
    tell_failure(t, why.text);
    drop_last(t);
    return;
  }
  out_write("\n", 1);
  out_flush();
  keep_answer(t);
  t->stopped = stopped;
  if (stopped) {
    size_t length = session_length(t->session->timeline);
    t->prompt_tokens = n;
    t->stopped_after = length > n ? length - n : 0;
    t->stopped_seconds = use_seconds() - start;
  } else {
    t->last = result;
    t->last.text = NULL;
    t->last.ids = NULL;
    t->answered = true;
    answer_hint_length(t->r.args, &result);
    if (t->r.args->stats)
      answer_say_stats(&result, t->seed);
    tern_result_clear(&result);
  }
  t->turn++;
}

static void take_message(talk *t, const buf *text)
{
  tern_error why;
  if (text->length == 0)
    return;
  if (use_check_utf8("message", text->data, text->length, &why) != TERN_OK) {
    tell_failure(t, why.text);
    return;
  }
  if (answer_add_message(t->messages, "user", text->data, text->length, &why) != TERN_OK)
    tell_failure(t, why.text);
  else {
    sig_hush(lines_typed(t->in));
    reply(t);
    sig_hush(false);
  }
}

/* ---- commands ---- */

/* The old one stays where there is no memory for the new one. */
static tern_status set_system(talk *t, const char *text, tern_error *err)
{
  json_t *first = json_array_get(t->messages, 0);
  const char *role = json_string_value(json_object_get(first, "role"));
  size_t old = role && !strcmp(role, "system") ? 1 : 0;
  if (*text) {
    TRY(answer_add_message(t->messages, "system", text, strlen(text), err));
    old *= 2; /* it now stands at 1 */
  }
  if (old)
    json_array_remove(t->messages, old - 1);
  return TERN_OK;
}

static bool command_help(talk *t, const char *rest)
{
  (void)t, (void)rest;
  say("/help            this\n"
      "/clear           forget the conversation, keep the system message\n"
      "/system [TEXT]   set the system message, or take it away\n"
      "/save FILE       write the conversation as JSON\n"
      "/load FILE       take one up again\n"
      "/stats           speed and memory of the last answer\n"
      "/exit            leave (so do /quit, /bye and the end of input)\n"
      "A line that ends in \\ goes on, and \"\"\" begins and ends a block;\n"
      "Alt-Enter breaks a line, and a paste keeps its lines;\n"
      "up, down and Ctrl-R find what was typed before; Ctrl-C stops an answer");
  return true;
}

static bool command_clear(talk *t, const char *rest)
{
  (void)rest;
  json_t *first = json_array_get(t->messages, 0);
  const char *role = json_string_value(json_object_get(first, "role"));
  bool keep = role && !strcmp(role, "system");
  while (json_array_size(t->messages) > (keep ? 1u : 0u))
    drop_last(t);
  say("cleared");
  return true;
}

static bool command_system(talk *t, const char *rest)
{
  tern_error why;
  if (use_check_utf8("message", rest, strlen(rest), &why) != TERN_OK || set_system(t, rest, &why) != TERN_OK) {
    tell_failure(t, why.text);
    return true;
  }
  say("%s", *rest ? "system message set" : "no system message");
  return true;
}

/* Whole or not at all: what stood under the name stays until the new text is complete. */
static tern_status save(const talk *t, const char *path, tern_error *err)
{
  whole_file f;
  json_t *document = json_pack("{sO}", "messages", t->messages);
  if (!document)
    return err_nomem(err, "messages");
  tern_status status = whole_open(&f, path, err);
  if (status == TERN_OK && json_dumpf(document, f.file, JSON_INDENT(2)) != 0)
    status = ferror(f.file) ? err_errno(err, path, "write") : err_nomem(err, "messages");
  if (status == TERN_OK)
    status = whole_finish(&f, err);
  whole_abandon(&f);
  json_decref(document);
  return status;
}

/* What stands behind a command as the name of a file, in `out`: quotes around all of it are a shell's habit, and go. A
 * quote inside is of the name. NULL: there is none, which is said. */
static const char *file_name(talk *t, const char *command, const char *rest, buf *out)
{
  size_t n = strlen(rest);
  while (n && strchr(" \t\n", rest[n - 1]))
    n--;
  bool quoted = n > 1 && (rest[0] == '"' || rest[0] == '\'') && rest[n - 1] == rest[0];
  buf_adds(out, "");
  buf_add(out, rest + quoted, n - 2 * quoted);
  if (!out->failed && out->length)
    return out->data;
  char line[80];
  snprintf(line, sizeof line, out->failed ? "%s: out of memory" : "%s needs a file name", command);
  tell_failure(t, line);
  return NULL;
}

static bool command_save(talk *t, const char *rest)
{
  tern_error why;
  buf name = {0};
  const char *path = file_name(t, "/save", rest, &name);
  if (path && save(t, path, &why) != TERN_OK)
    tell_failure(t, why.text);
  else if (path)
    say("saved %zu messages to %s", json_array_size(t->messages), path);
  buf_free(&name);
  return true;
}

/* Whether all of it is {"role", "content"} in strings, and what else is there can go to a template. */
static bool is_conversation(json_t *messages)
{
  size_t i;
  json_t *message;
  if (!json_is_array(messages) || !jsonu_finite(messages))
    return false;
  json_array_foreach(messages, i, message) if (!json_is_string(json_object_get(message, "role")) ||
                                               !json_is_string(json_object_get(message, "content"))) return false;
  return true;
}

static void load(talk *t, const char *path)
{
  tern_error why;
  json_t *document;
  if (jsonu_file(path, MOST_FILE, &document, &why) != TERN_OK) {
    tell_failure(t, why.text);
    return;
  }
  json_t *messages = json_object_get(document, "messages");
  if (is_conversation(messages)) {
    json_decref(t->messages);
    t->messages = json_incref(messages);
    say("loaded %zu messages from %s", json_array_size(messages), path);
  } else {
    err_set(&why, TERN_E_FORMAT, "%s: \"messages\" is not a list of {\"role\", \"content\"}", path);
    tell_failure(t, why.text);
  }
  json_decref(document);
}

static bool command_load(talk *t, const char *rest)
{
  buf name = {0};
  const char *path = file_name(t, "/load", rest, &name);
  if (path)
    load(t, path);
  buf_free(&name);
  return true;
}

/* Whether anything was said since the last /clear: the session keeps a state for longer, for what begins alike. */
static bool is_begun(const talk *t)
{
  size_t n = json_array_size(t->messages);
  const char *role = n ? json_string_value(json_object_get(json_array_get(t->messages, n - 1), "role")) : NULL;
  return role && strcmp(role, "system") != 0;
}

static bool command_stats(talk *t, const char *rest)
{
  (void)rest;
  if (t->stopped)
    say("prompt %zu tokens; answer stopped after %zu tokens and %.1f s; peak memory %.0f MB; seed %llu",
        t->prompt_tokens, t->stopped_after, t->stopped_seconds, use_peak_mb(), (unsigned long long)t->seed);
  else if (t->answered)
    answer_say_stats(&t->last, t->seed);
  else
    say("no answer yet; seed %llu", (unsigned long long)t->seed);
  size_t n = json_array_size(t->messages), used = is_begun(t) ? session_length(t->session->timeline) : 0;
  say("%zu messages, %zu of %d positions in use", n, used, session_context(t->session->timeline));
  return true;
}

static bool command_exit(talk *t, const char *rest)
{
  (void)t, (void)rest;
  return false;
}

static const struct {
  const char *name;
  bool (*run)(talk *t, const char *rest);
} commands[] = {{"/help", command_help}, {"/clear", command_clear}, {"/system", command_system},
                {"/save", command_save}, {"/load", command_load},   {"/stats", command_stats},
                {"/exit", command_exit}, {"/quit", command_exit},   {"/bye", command_exit}};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* Runs one; false: leave. */
static bool take_command(talk *t, const char *line)
{
  size_t length = strcspn(line, " \t\n");
  const char *rest = line + length, *nearest = NULL;
  rest += strspn(rest, " \t\n");
  size_t best = (size_t)-1;
  char name[32];
  snprintf(name, sizeof name, "%.*s", (int)(length < 31 ? length : 31), line);
  for (size_t i = 0; i < COMMANDS; i++) {
    size_t distance = text_distance(name, commands[i].name);
    if (distance == 0)
      return commands[i].run(t, rest);
    if (distance < best) {
      best = distance;
      nearest = commands[i].name;
    }
  }
  tern_error why;
  if (text_is_slip(name, best))
    err_set(&why, TERN_E_USAGE, "unknown command %s: did you mean %s? (/help lists all)", name, nearest);
  else
    err_set(&why, TERN_E_USAGE, "unknown command %s (/help lists all)", name);
  tell_failure(t, why.text);
  return true;
}

/* ---- the loop ---- */

/* A script that feeds questions has the exit status alone to see by that some had no answer. */
static tern_status judge(const talk *t, tern_error *err)
{
  if (!t->failed || lines_typed(t->in))
    return TERN_OK;
  return err_set(err, TERN_E_IO, "%s", ""); /* each was told */
}

static tern_status cancelled(tern_error *err)
{
  return err_set(err, TERN_E_CANCELLED, "interrupted");
}

static tern_status loop(talk *t, tern_error *err)
{
  buf text = {0};
  int interrupts = 0; /* in a row, at the prompt */
  tern_status status = TERN_OK;
  sig_hold(); /* all the time: from here on a signal ends the program only where this loop says so */
  for (bool on = true; on && out_ok() && status == TERN_OK;) {
    lines_end end = read_message(t, &text);
    if (end == LINES_INTERRUPTED && sig_caught() == SIGINT && lines_dropped(t->in)) {
      sig_forget();
      interrupts = 0;
      say("%s", ""); /* the next prompt stands on a line of its own */
    } else if (end == LINES_INTERRUPTED && sig_caught() == SIGINT && ++interrupts < 2) {
      sig_forget();
      say("\n(Ctrl-C again, /exit or Ctrl-D leaves)");
    } else if (end == LINES_INTERRUPTED) {
      status = cancelled(err);
    } else if (end == LINES_TOO_LONG) {
      status = err_set(err, TERN_E_LIMIT, "stdin: a line of more than %d bytes", LINES_MOST);
    } else if (end == LINES_FAILED) {
      status = err_set(err, TERN_E_IO, "stdin: read: %s", strerror(lines_error(t->in)));
    } else if (end == LINES_EOF) {
      on = false;
    } else {
      interrupts = 0;
      if (text.failed)
        status = err_nomem(err, "message");
      else if (text.length && text.data[0] == '/')
        on = take_command(t, text.data);
      else
        take_message(t, &text);
      if (sig_caught() == SIGINT)
        sig_forget(); /* it stopped an answer, or came too late to */
      else if (sig_caught())
        status = cancelled(err);
    }
  }
  if (lines_typed(t->in))
    say("%s", ""); /* what the shell says next stands on a line of its own */
  sig_release();
  buf_free(&text);
  return status;
}

static tern_status talk_in(const cli_args *a, const char *dir, talk *t, tern_error *err)
{
  tern_session_options options = {.context = a->context};
  const char *words[COMMANDS];
  for (size_t i = 0; i < COMMANDS; i++)
    words[i] = commands[i].name;
  TRY(answer_open(a, dir, &t->r, err));
  options.draft = t->r.draft;
  if (!answer_has_template(&t->r))
    return err_set(err, TERN_E_NOT_FOUND,
                   "%s: the model has no chat template: --use-default-chat-template gives one, and tern run needs none",
                   dir);
  TRY(tern_session_open(t->r.model, &options, &t->session, err));
  TRY(prompt_cache_load(a, t->session, err));
  if (a->system) {
    TRY(use_check_utf8("--system", a->system, strlen(a->system), err));
    TRY(set_system(t, a->system, err));
  }
  lines_options typing = {words, COMMANDS, t->history};
  TRY(lines_open(&typing, &t->in, err));
  if (lines_typed(t->in))
    say("%s, %s on %s. /help tells the commands", dir, t->r.model->info.numerics, t->r.model->info.backend);
  tern_status status = loop(t, err);
  if (status == TERN_OK)
    status = judge(t, err);
  lines_close(t->in);
  /* However it ended: the conversation is there. Of two failures the first is the status, and both are told. */
  tern_error why = {0};
  if (status == TERN_OK)
    return prompt_cache_save(a, t->session, err);
  if (prompt_cache_save(a, t->session, &why) != TERN_OK)
    say("%s", why.text);
  return status;
}

tern_status verb_chat(const cli_args *a, tern_error *err)
{
  const char *name, *ignored;
  char *dir;
  args_model_and_text(a, &name, &ignored);
  if (a->model && a->n_words)
    return err_set(err, TERN_E_USAGE, "chat: \"%.60s\": --model names the model already", a->words[0]);
  TRY(use_dir(a, name, NEED_WEIGHTS, &dir, err));
  talk t = {.messages = json_array(), .seed = answer_seed(a), .history = a->no_history ? NULL : env_history()};
  tern_status status = talk_in(a, dir, &t, err);
  tern_session_close(t.session);
  answer_close(&t.r);
  json_decref(t.messages);
  buf_free(&t.answer);
  mem_free(t.history);
  mem_free(dir);
  return status;
}
