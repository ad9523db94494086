/* test_tmpl.c - the template engine from the outside: errors and where they are, limits that hold against hostile
 * templates, every allocation failing once, threads sharing one template. That texts are the reference's is shown by
 * tests/text/. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/tmpl.h"
#include "thorough.h"

static const tmpl_clock clock_2026 = {.year = 2026, .month = 1, .day = 15, .hour = 12};

static tern_status run(const char *source, size_t n, const char *vars, char **out, size_t *length, tern_error *err)
{
  tmpl *t;
  *err = (tern_error){0};
  TRY(tmpl_compile(source, n, &t, err));
  tern_status status = tmpl_render(t, vars, strlen(vars), &clock_2026, out, length, err);
  tmpl_free(t);
  return status;
}

static void gives(const char *source, const char *vars, const char *want)
{
  char *out;
  size_t n;
  tern_error err;
  if (run(source, strlen(source), vars, &out, &n, &err) != TERN_OK)
    fail_msg("%s: %s", source, err.text);
  assert_string_equal(out, want);
  assert_int_equal(n, strlen(want));
  mem_free(out);
}

static void fails(const char *source, tern_status status, const char *part)
{
  char *out = NULL;
  size_t n;
  tern_error err;
  tern_status got = run(source, strlen(source), "{}", &out, &n, &err);
  if (got != status || !strstr(err.text, part))
    fail_msg("%.200s: status %d, \"%s\"; wanted %d with \"%s\"", source, got, err.text, status, part);
  assert_null(out);
}

static void a_template_renders(void **state)
{
  (void)state;
  gives("", "{}", "");
  gives("Hello {{ name }}!", "{\"name\": \"W\\u00f6rld\"}", "Hello W\xc3\xb6rld!");
  gives("{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{% endfor %}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}", "<user>x");
  gives("{{ strftime_now('%Y-%m-%d') }}", "{}", "2026-01-15");
  gives("{{ big }} {{ big == 12345678901234567890 }} {{ 12345678901234567891 > big }}",
        "{\"big\": 12345678901234567890}", "12345678901234567890 True True");
}

static void zero_bytes_are_text(void **state)
{
  (void)state;
  char *out;
  size_t n;
  tern_error err;
  static const char source[] = "a\0{{ x }}{{ '\\0'|length }}";
  assert_int_equal(run(source, sizeof source - 1, "{\"x\": \"\\u0000\"}", &out, &n, &err), TERN_OK);
  assert_int_equal(n, 4);
  assert_memory_equal(out, "a\0\0001", 5);
  mem_free(out);
}

static void errors_name_the_line(void **state)
{
  (void)state;
  fails("a\n{{ x.y }}", TERN_E_TEMPLATE, "line 2: 'x' is undefined");
  fails("\n\n{% if %}", TERN_E_TEMPLATE, "line 3:");
  fails("{% if 1 %}\n\n", TERN_E_TEMPLATE, "'elif' or 'else' or 'endif'");
  fails("{{ 'a\nb' }}{% nosuch %}", TERN_E_TEMPLATE, "line 2: Encountered unknown tag 'nosuch'");
  fails("{% for x in [1] %}\n{{ x|nosuch }}\n{% endfor %}", TERN_E_TEMPLATE, "line 2: No filter named 'nosuch'");
  fails("{#\n#}\n{{ raise_exception('said: \"no\"') }}", TERN_E_TEMPLATE, "said: \"no\"");
  fails("{{ raise_exception('two\nlines') }}", TERN_E_TEMPLATE, "two lines");
  fails("{{ '\xff' }}", TERN_E_TEMPLATE, "not valid UTF-8 at byte 4");
  fails("{% include 'x' %}", TERN_E_TEMPLATE, "include");
  fails("{{ [].append(1) }}", TERN_E_TEMPLATE, "unsafe");
  fails("{{ 2 ** 64 }}", TERN_E_TEMPLATE, "64 bits");
  fails("{{ [1]|random }}", TERN_E_TEMPLATE, "'random' is not supported");
  fails("{{ \xe2\x82\xac }}", TERN_E_TEMPLATE, "unexpected char");
}

static void variables_must_be_an_object(void **state)
{
  (void)state;
  static const char *const bad[] = {"",
                                    "[]",
                                    "1",
                                    "{",
                                    "{\"a\": }",
                                    "{\"a\": 1,}",
                                    "{} x",
                                    "{\"a\": \"\\ud800\"}",
                                    "{\"a\": 01}",
                                    "{\"\xff\": 1}",
                                    "{\"a\": \"\n\"}"};
  tmpl *t;
  tern_error err;
  char *out;
  assert_int_equal(tmpl_compile("x", 1, &t, &err), TERN_OK);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (tmpl_render(t, bad[i], strlen(bad[i]), NULL, &out, NULL, &err) != TERN_E_FORMAT)
      fail_msg("accepted: %s", bad[i]);
    assert_non_null(strstr(err.text, i == 1 || i == 2 ? "not a JSON object" : "JSON: line"));
  }
  tmpl_free(t);
}

/* ---- limits ---- */

static void repeated(buf *b, const char *text, size_t times)
{
  for (size_t i = 0; i < times; i++)
    buf_adds(b, text);
}

/* head, `times` times middle, tail */
static void long_source_fails(const char *head, const char *middle, size_t times, const char *tail, tern_status status,
                              const char *part)
{
  buf b = {0};
  buf_adds(&b, head);
  repeated(&b, middle, times);
  buf_adds(&b, tail);
  assert_false(b.failed);
  fails(b.data, status, part);
  buf_free(&b);
}

static void nesting_is_limited(void **state)
{
  (void)state;
  long_source_fails("{{ ", "(", 100000, "", TERN_E_LIMIT, "nested more than");
  long_source_fails("{{ ", "[", 100000, "", TERN_E_LIMIT, "nested more than");
  long_source_fails("{{ ", "not ", 100000, "1 }}", TERN_E_LIMIT, "nested more than");
  long_source_fails("{{ ", "-", 100000, "1 }}", TERN_E_LIMIT, "nested more than");
  long_source_fails("{{ ", "1 if 1 else ", 100000, "1 }}", TERN_E_LIMIT, "nested more than");
  long_source_fails("", "{% if 1 %}", 100000, "", TERN_E_LIMIT, "nested more than");
  long_source_fails("", "{% for x in [1] %}", 100000, "", TERN_E_LIMIT, "nested more than");
  long_source_fails("{{ x", ".y", 100000, "}}", TERN_E_LIMIT, "operators");
  long_source_fails("{{ 1", " + 1", 100000, "}}", TERN_E_LIMIT, "operators");
  long_source_fails("{{ 1", "|abs", 100000, "}}", TERN_E_TEMPLATE, "filters in a row");
  long_source_fails("{% set x|a", "|abs", 100000, "%}{% endset %}", TERN_E_TEMPLATE, "filters in a row");
}

static void long_flat_sources_are_fine(void **state)
{
  (void)state;
  buf b = {0};
  buf_adds(&b, "{% if x == 0 %}");
  for (int i = 1; i < 20000; i++)
    buf_addf(&b, "{%% elif x == %d %%}%d", i, i);
  buf_adds(&b, "{% else %}E{% endif %}{{ ''");
  repeated(&b, " ~ 'a'", 20000);
  buf_adds(&b, " }}");
  char *out;
  size_t n;
  tern_error err;
  assert_int_equal(run(b.data, b.length, "{\"x\": 19998}", &out, &n, &err), TERN_OK);
  assert_int_equal(n, 5 + 20000);
  assert_memory_equal(out, "19998aaa", 8);
  mem_free(out);
  buf_free(&b);
}

static void recursion_ends_in_an_error(void **state)
{
  (void)state;
  fails("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", TERN_E_LIMIT, "recursion");
  fails("{% macro f(x) %}{% for i in [1] %}{% if x %}{{ 'a' ~ (f(x)|trim) }}{% endif %}{% endfor %}{% endmacro %}{{ "
        "f(1) }}",
        TERN_E_LIMIT, "recursion");
  fails("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", TERN_E_LIMIT, "recursion");
  fails("{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro "
        "%}{{ g() }}",
        TERN_E_LIMIT, "recursion");
  static const char grow[] =
      "{%% set ns = namespace(x=[]) %%}{%% for i in range(9000) %%}{%% set ns.x = %s %%}{%% endfor %%}%s";
  static const char *const growth[] = {"[ns.x]", "{'a': ns.x}", "(ns.x,)"};
  static const char *const use[] = {"{{ ns.x }}", "{{ ns.x|tojson }}",
                                    "{{ ns.x == [ns.x] }}{{ [ns.x] == [[ns.x]][0] and 0 }}"};
  for (size_t i = 0; i < 3; i++)
    for (size_t k = 0; k < 2; k++) {
      char source[300];
      snprintf(source, sizeof source, grow, growth[i], use[k]);
      fails(source, TERN_E_LIMIT, "recursion");
    }
  fails("{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(9000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}"
        "{% endfor %}{{ ns.x == ns.y }}",
        TERN_E_LIMIT, "recursion");
  fails("{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(9000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}"
        "{% endfor %}{{ ns.x < ns.y }}",
        TERN_E_LIMIT, "recursion");
  fails("{% set ns = namespace(x=(1,)) %}{% for i in range(9000) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}",
        TERN_E_LIMIT, "recursion");
  fails("{% set ns = namespace(x=[1]) %}{% for i in range(9000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}{{ "
        "ns.x|list }}",
        TERN_E_LIMIT, "recursion");
  fails("{% set ns = namespace(x=[1]) %}{% for i in range(9000) %}{% set ns.x = ns.x|unique %}{% endfor %}{{ ns.x|list "
        "}}",
        TERN_E_LIMIT, "recursion");
  fails("{% set ns = namespace(x=[1]) %}{% for i in range(9000) %}{% set ns.x = ns.x|batch(2) %}{% endfor %}{{ "
        "ns.x|list }}",
        TERN_E_LIMIT, "recursion");
}

static void memory_and_work_are_limited(void **state)
{
  (void)state;
  fails("{{ 'a' * 10 ** 9 }}", TERN_E_LIMIT, "MiB");
  fails("{{ [1] * 10 ** 9 }}", TERN_E_LIMIT, "MiB");
  fails("{{ 'a' * 10 ** 18 }}", TERN_E_LIMIT, "MiB");
  fails("{{ [1, 2] * 9223372036854775807 }}", TERN_E_LIMIT, "MiB");
  fails("{% set ns = namespace(x='abcdefgh') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        TERN_E_LIMIT, "MiB");
  fails("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", TERN_E_LIMIT,
        "");
  fails("{{ 'a'.ljust(10 ** 12) }}", TERN_E_LIMIT, "MiB");
  fails("{{ '{:>9999999999}'.format(1) }}", TERN_E_LIMIT, "width");
  fails("{{ '%9999999999d' % 1 }}", TERN_E_LIMIT, "width");
  fails("{{ [1]|tojson(indent=10 ** 9) }}", TERN_E_LIMIT, "indent");
  fails("{{ 'a\nb'|indent(10 ** 9) }}", TERN_E_LIMIT, "indent");
  fails("{{ range(10 ** 9) }}", TERN_E_TEMPLATE, "Range too big");
  fails("{{ 'x'|center(10 ** 12) }}", TERN_E_LIMIT, "MiB");
  fails("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", TERN_E_LIMIT, "steps");
  fails("{{ range(100000)|map('string')|select('in', range(100000))|list }}", TERN_E_LIMIT, "steps");
  fails("{{ [1]|batch(10 ** 15, 2)|list }}", TERN_E_LIMIT, "");
}

/* One step may touch a lot: it counts by what it touches. Each of these takes most of a second to reach the limit:
 * where not all of them may, the others run twice. */
static void the_work_of_single_operations_is_limited(void **state)
{
  (void)state;
  static const char *const setups[] = {
      "{% set a = range(100000)|list %}",
      "{% set a = 'x' * 9000000 %}{% set b = 'x' * 8999999 + 'y' %}",
      "{% set a = 'é' * 4000000 %}",
  };
  static const struct {
    int setup;
    const char *body;
  } cases[] = {
      {0, "{% if a == a %}{% endif %}"},
      {0, "{% if 1.5 in a %}{% endif %}"},
      {0, "{% if a < a %}{% endif %}"},
      {1, "{% set c = a.count('xy') %}"},
      {1, "{% set c = a.find('y') %}"},
      {1, "{% set c = a.rfind('y') %}"},
      {1, "{% set c = b.rfind('y' + 'x' * 4000000) %}"},
      {1, "{% set c = a.rfind('x' * 4000000 + 'y') %}"},
      {1, "{% if 'xy' in a %}{% endif %}"},
      {1, "{% set c = a.replace('y', '') %}"},
      {1, "{% set c = a.split('y') %}"},
      {1, "{% set c = a.split() %}"},
      {1, "{% set c = a.rsplit('y') %}"},
      {1, "{% set c = a.partition('y') %}"},
      {1, "{% set c = a.strip('x') %}"},
      {1, "{% set c = a.isalpha() %}"},
      {1, "{% set c = a is lower %}"},
      {1, "{% set c = a|wordcount %}"},
      {1, "{% if a == b %}{% endif %}"},
      {1, "{% if a < b %}{% endif %}"},
      {2, "{% set b = a[2000000] %}"},
      {2, "{% set b = a[2000000:2000001] %}"},
      {2, "{% set b = a.find('e', 2000000) %}"},
  };
  int n = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char source[400];
    const bool to_the_limit = take_case(&n, 7, 1);
    snprintf(source, sizeof source, "%s{%% for x in range(%d) %%}%s{%% endfor %%}", setups[cases[i].setup],
             to_the_limit ? 100000 : 2, cases[i].body);
    if (to_the_limit)
      fails(source, TERN_E_LIMIT, "");
    else
      gives(source, "{}", "");
  }
  fails("{% set ns = namespace(x=(1, 2)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: "
        "1} }}",
        TERN_E_LIMIT, "steps");
}

static void names_are_limited(void **state)
{
  (void)state;
  buf b = {0};
  tern_error err;
  tmpl *t = NULL;
  for (int i = 0; i < 100000; i++)
    buf_addf(&b, "{%% set v%d = %d %%}", i, i);
  assert_false(b.failed);
  assert_int_equal(tmpl_compile(b.data, b.length, &t, &err), TERN_E_LIMIT);
  assert_int_equal(tmpl_compile(b.data, 40000, &t, &err), TERN_E_TEMPLATE); /* some 2000 names, the last one torn */
  buf_free(&b);
}

static void strings_grow_in_linear_time(void **state)
{
  (void)state;
  char *out;
  size_t n;
  tern_error err;
  static const char source[] =
      "{% set ns = namespace(x='') %}{% for i in range(100000) %}{% set ns.x = ns.x + '0123456789' %}"
      "{% endfor %}{{ ns.x|length }}{{ ns.x[:3] }}{% set a = ns.x + 'a' %}{% set b = ns.x + 'b' %}"
      "{{ a[-1] }}{{ b[-1] }}{{ a[-1] }}";
  assert_int_equal(run(source, sizeof source - 1, "{}", &out, &n, &err), TERN_OK);
  assert_string_equal(out, "1000000012aba");
  mem_free(out);
}

/* ---- failing allocations and threads ---- */

static const char everything[] =
    "{%- macro f(a, b=2) %}{{ a }}{{ b }}{{ kwargs }}{{ varargs }}{% if caller %}{{ caller(a) }}{% endif %}{% endmacro "
    "-%}"
    "{% set ns = namespace(x=1) %}{% for m in messages if m.role %}{{ loop.index }}{{ m.role|upper }}{% set ns.x = "
    "ns.x + 1 %}"
    "{{ m|tojson(indent=2) }}{% endfor %}{% call(z) f(1, 3, 4, q=5) %}{{ z }}{% endcall %}{% set t %}{{ "
    "'a,b'.split(',') }}"
    "{% endset %}{{ t }}{{ messages|map(attribute='role')|unique|sort|join('-') }}{{ '%s %05.1f'|format('x', 2.5) }}"
    "{{ '{:>8} {!r}'.format('a', [1, 'b']) }}{{ messages|groupby('role')|list|length }}{{ ('<a>'|safe) + '<' }}"
    "{% filter indent(2) %}a\nb{% endfilter %}{{ range(5)|batch(2)|list }}{{ {'a': (1, 2)}|dictsort }}{{ 'abc'[::-1] }}"
    "{% block q %}{{ ns.x }}{% endblock %}{{ strftime_now('%d') }}{{ big }}{{ \"t\\n\\u00e9\" ~ 'x' ~ 1.5 }}"
    "{% for i in [1, [2]] recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}{{ cycler(1, 2).next() }}";
static const char everything_vars[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"\\u00e9\\n\"}, {\"role\": "
                                      "\"tool\", \"content\": [1, 2.5, null]}],"
                                      " \"big\": 12345678901234567890}";

static void every_allocation_may_fail(void **state)
{
  (void)state;
  for (int64_t n = 0;; n++) {
    char *out = NULL;
    size_t length;
    tern_error err;
    assert_true(n < 5000);
    mem_fail_after(n);
    tern_status status = run(everything, sizeof everything - 1, everything_vars, &out, &length, &err);
    mem_fail_after(-1);
    if (status == TERN_OK) {
      mem_free(out);
      assert_true(n > 5);
      return;
    }
    assert_int_equal(status, TERN_E_NOMEM);
    assert_null(out);
  }
}

static void *render_many(void *shared)
{
  const tmpl *t = shared;
  for (int i = 0; i < 200; i++) {
    char *out;
    tern_error err;
    if (tmpl_render(t, everything_vars, sizeof everything_vars - 1, &clock_2026, &out, NULL, &err) != TERN_OK)
      return shared;
    mem_free(out);
  }
  return NULL;
}

static void threads_share_a_template(void **state)
{
  (void)state;
  tmpl *t;
  tern_error err;
  pthread_t threads[4];
  assert_int_equal(tmpl_compile(everything, sizeof everything - 1, &t, &err), TERN_OK);
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, render_many, t), 0);
  for (int i = 0; i < 4; i++) {
    void *failed;
    assert_int_equal(pthread_join(threads[i], &failed), 0);
    assert_null(failed);
  }
  tmpl_free(t);
}

static void clocks_are_read(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    bool good;
  } cases[] = {
      {"2026-01-15T12:00:00", true},
      {"2026-01-15", true},
      {"2024-02-29T23:59", true},
      {"2026-01-15T12:00:00.5Z", true},
      {"2026-01-15 12:00:00", true},
      {"2023-02-29", false},
      {"2026-13-01", false},
      {"2026-01-32", false},
      {"2026-01-15T24:00:00", false},
      {"26-01-15", false},
      {"", false},
      {"2026-01-15T12:00:00+01:00", false},
      {"2026-01-15T12", false},
      {"yesterday", false},
      {"2026-01-15T12:00:00.1234567", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tmpl_clock c;
    tern_error err;
    tern_status status = tmpl_clock_parse(cases[i].text, strlen(cases[i].text), &c, &err);
    if ((status == TERN_OK) != cases[i].good)
      fail_msg("%s: status %d", cases[i].text, status);
  }
  tmpl_clock c;
  assert_int_equal(tmpl_clock_parse("2026-03-04T05:06:07.25", 22, &c, NULL), TERN_OK);
  assert_int_equal(c.month * 100000 + c.day * 10000 + c.hour * 1000 + c.minute * 100 + c.second * 10, 345670);
  assert_int_equal(c.microsecond, 250000);
}

static void the_machine_clock_is_the_default(void **state)
{
  (void)state;
  tmpl *t;
  tern_error err;
  char *out;
  size_t n;
  assert_int_equal(tmpl_compile("{{ strftime_now('%Y-%m-%dT%H:%M:%S') }}", 39, &t, &err), TERN_OK);
  assert_int_equal(tmpl_render(t, "{}", 2, NULL, &out, &n, &err), TERN_OK);
  tmpl_clock c;
  assert_int_equal(tmpl_clock_parse(out, n, &c, &err), TERN_OK);
  assert_true(c.year >= 2024);
  mem_free(out);
  tmpl_free(t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_template_renders),
      cmocka_unit_test(zero_bytes_are_text),
      cmocka_unit_test(errors_name_the_line),
      cmocka_unit_test(variables_must_be_an_object),
      cmocka_unit_test(nesting_is_limited),
      cmocka_unit_test(long_flat_sources_are_fine),
      cmocka_unit_test(recursion_ends_in_an_error),
      cmocka_unit_test(memory_and_work_are_limited),
      cmocka_unit_test(the_work_of_single_operations_is_limited),
      cmocka_unit_test(names_are_limited),
      cmocka_unit_test(strings_grow_in_linear_time),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(threads_share_a_template),
      cmocka_unit_test(clocks_are_read),
      cmocka_unit_test(the_machine_clock_is_the_default),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
