"""Small templates for the differential test, written for tern: every construct, filter, test, method and trap that a
chat template can meet. Rendered with VARS."""

VARS = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <b>there</b> & \"you\""},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": [True, None, 1.5]}}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "{\"x\": 1}"},
        {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]},
    ],
    "tools": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
    "s": "Hello, World", "u": "stra\u00dfe \u00c9t\u00e9 \u03a3\u0391\u03a3 \u01c6 \U0001f600", "empty": "", "ws": " \t x y \n ",
    "n": 7, "neg": -7, "f": 2.5, "big": 12345678901234567890, "yes": True, "no": False, "nothing": None,
    "l": [3, 1, 2], "mixed": ["b", "A", "c", "B", "a"], "el": [], "nested": [[1, 2], [3, [4, 5]], []],
    "d": {"b": 1, "a": 2, "C": 3}, "ed": {}, "deep": {"x": {"y": {"z": [10, {"k": "v"}]}}},
    "rows": [{"name": "x", "v": 2, "g": "one"}, {"name": "Y", "v": 1, "g": "Two"}, {"name": "z", "v": 3, "g": "ONE"},
             {"name": "w", "g": "two"}],
    "schema": {"type": "object", "properties": {"p": {"type": "string", "enum": ["a", "b"]}, "items": {"type": "array"}},
               "required": ["p"]},
    "date_string": "1 Jan 2025", "long": "The quick brown fox jumps over the lazy dog near the river bank today",
    "html": "<p class=\"x\">it's</p>", "unicode_ws": "\u00a0\u3000a\u2028b\u0085", "crlf": "a\r\nb\rc\n\nd",
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 // -2, -7 // -2, 7.5 // 2, -7.5 // 2
7 % 3, -7 % 3, 7 % -3, -7 % -3, 7.5 % 2, -7.5 % 2, 5 % 2.5
2 ** 10, 2 ** -2, 2.0 ** 3, 2 ** 0.5, -2 ** 2, 2 ** 3 ** 2, (-2) ** 3
1 / 3, 10 / 4, 6 / 3, -1 / 3, 1e308 * 10, 9007199254740993 / 3, 1 / 9007199254740993
9223372036854775807 / 10, 9223372036854775807 / 3, 1 / 3.0
0 // 5, 0.0 // 5, -0.0, 0 * -1.5
1 / 0
1 // 0
1 % 0
1.5 % 0
1.5 // 0
0 ** -1
9223372036854775807, -9223372036854775808, 9223372036854775808, 18446744073709551616
big, -big, big == 12345678901234567890, big > 9223372036854775807, big < 1e30, big|string, [big]
big + 0.5, big * 1.0, big|float, big|abs, -big|abs
12345678901234567890 == 12345678901234567890.0, 9007199254740993 == 9007199254740992.0, 9007199254740993 > 9007199254740992.0
1 == 1.0, 1 == true, 0 == false, 1.0 == true, '1' == 1, none == false, none == none
true + true, true * 3, -true, +true, true / 2, true < 2, [true] == [1]
1.0, 0.1, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 0.00012345, 1e100, 1.5e300, 5e-324, 3.0e2, 100.0, 1234567.891
0.1 + 0.2, 1e22, 1e23, 2.0 ** 70, 1 / 7
1_000, 0x1F, 0o17, 0b101, 1_0.5, 1e3, 1E3, 1e+3, 0, 00
'a' + 'b', 'a' * 3, 3 * 'a', 'a' * 0, 'a' * -1, [1] * 2, 2 * [1], (1,) * 2, [1] + [2], (1,) + (2,)
'a' + 1
1 + 'a'
[1] + (2,)
[1] + 'a'
none + 1
'a' - 'b'
'a' * 'b'
'a' * 1.5
{} + {}
n < 'a'
none < 1
[1] < 'a'
{} < {}
'a' < 'b', 'Z' < 'a', 'a' < 'B', 'ab' < 'abc', '' < 'a', 'é' > 'z', 'a' <= 'a', 'b' >= 'a'
[1, 2] < [1, 3], [1, 2] < [1, 2, 0], [] < [1], [1, 'a'] < [2, 1], (1, 2) >= (1, 2), [2] > [1, 9]
1 < 2 < 3, 1 < 3 < 2, 3 > 2 > 1, 1 < 2 > 1, 1 == 1 == 1, 1 < 2 == true, 1 in [1] in [[1]]
'a' in 'abc', 'd' in 'abc', '' in '', 1 in [1, 2], 1.0 in [1], 'b' in d, 1 in d, 'x' in {}, 2 in (1, 2), 3 in range(5)
1 in 'abc'
1 in 5
1 in none
[] in d
'a' not in 'abc', not 'a' in 'abc', 'z' not in d, 1 not in []
not true, not not 1, not '', not [], not {}, not none, not 0, not 0.0, not 'x'
1 and 2, 0 and 2, 1 or 2, 0 or 2, '' or none or [], none and x.y.z, true or x.y.z
1 ~ 'a' ~ none ~ true ~ 1.5 ~ [1, 'x'] ~ {'a': none} ~ (1,)
1 ~ 2 + 3
'x' ~ 1 + 2
1 + 2 ~ 3
'a' ~ 'b' * 2
n ~ undefined_name ~ 'x'
'yes' if yes else 'no', 'yes' if no else 'no', 'x' if no, ('x' if no) is defined
'a' if no else 'b' if no else 'c'
('a' if yes else 'b') ~ 'c'
[1, 2, 3][0], [1, 2, 3][-1], [1, 2, 3][5], [1, 2, 3][true], [1, 2, 3]['x'], [1, 2, 3][1.0], [1, 2, 3][none]
s[0], s[-1], s[100], s[1:5], s[:-3], s[::2], s[::-1], s[5:1:-1], s[-3:], s[:100], s[3:3], s[none:3], s[1:none:2]
u[3:8], u[::-1], u[-1], u[-3:-1], u|length, u[1::3]
l[1:], l[:-1], l[::-1], l[::2], l[5:], l[-2:], l[1:2], (1, 2, 3)[1:], l[true:]
l[::0]
l['a':]
l[1.0:]
nothing[1:]
d[1:]
n[0]
n['x'] is defined, none['x'] is defined, none.x is defined, f.x is defined
undefined_name[1:]
undefined_name.x
undefined_name['x']
undefined_name()
undefined_name + 1
1 + undefined_name
undefined_name < 1
-undefined_name
undefined_name|int
undefined_name|float
undefined_name|abs
undefined_name|round
undefined_name|items|list, undefined_name|list, undefined_name|join('-'), undefined_name|length, undefined_name|string
undefined_name|first, undefined_name|sum, undefined_name|sort, undefined_name|unique|list, undefined_name|map('upper')|list
undefined_name|last
undefined_name|reverse|list
undefined_name|dictsort
undefined_name|tojson
undefined_name|upper, undefined_name|trim, undefined_name|title, undefined_name|replace('a', 'b'), undefined_name|e
undefined_name|indent
undefined_name|default, undefined_name|default('x'), undefined_name|d(none), undefined_name == other_undefined, undefined_name == none
undefined_name is none, undefined_name is string, undefined_name is mapping, undefined_name is iterable, undefined_name is sequence
undefined_name is callable, undefined_name is number, undefined_name in [1], undefined_name in [other_undefined]
[undefined_name], {'a': undefined_name}, (undefined_name,)
d.missing is defined, d['missing'] is defined, d.missing, d.get('missing'), d.get('missing', 'x'), d.get('b')
d.missing.more
d['missing']['more']
deep.x.y.z[1].k, deep['x']['y'].z[0], deep.x.y.z.0, deep.x.y.z.1.k, deep.x['y'].q is defined
schema.items is defined, schema['items'] is defined, schema.properties.items is mapping, schema.properties['items'].type
schema.items is callable, schema.items() | length, schema.keys()|list, schema.values()|list|length, schema.type
schema.properties.items.type
d.items()|list, d.keys(), d.values(), d.items(), d|items|list, d|length, d.items()|length
'b' in d.keys(), 1 in d.values(), ('b', 1) in d.items(), d.keys()|sort, d.items()|sort
d.copy(), d.fromkeys([1, 2]), d.fromkeys('ab', 0), dict(a=1, b=2), dict([('x', 1)]), dict(d, z=9), dict(), dict.fromkeys('ab')
dict(1)
dict([1])
dict([(1, 2, 3)])
d.pop('a')
d.update({'x': 1})
d.setdefault('x', 1)
d.clear()
d.popitem()
l.append(1)
l.extend([1])
l.insert(0, 1)
l.pop()
l.remove(1)
l.reverse()
l.sort()
l.clear()
l.append is defined, d.update is defined, d.pop
l.index(1), l.count(1), l.copy(), (1, 2).index(2), (1, 1).count(1), range(5).index(3), range(5).count(9)
l.index(99)
l.index(1, 0, 1)
{'a': 1}.a, {'a': 1}['a'], {1: 'x'}[1], {1: 'x'}[1.0], {1: 'x'}[true], {none: 1}[none], {(1, 2): 3}[(1, 2)], {'a': 1, 'a': 2}
{1: 'a', 1.0: 'b', true: 'c'}
{[]: 1}
{{}: 1}
(), (1,), (1, 2), [], [1,], {}, {'a': 1,}, ((1, 2), 3), [[]], [()]
'\x41\u00e9\n\t\\\'\"\a\b\f\v\r\0\101\q\/'
"it's", 'say "x"', 'both \' and "', "tab\t", ['it\'s', "a\"b", 'c\\d', 'e\nf', 'é', '\x7f', '\xa0', '\u200b', '😀', '\x00']
'one' 'two' "three"
''.__class__, ().__class__.__bases__ is defined
''.__class__.__mro__
d.__class__, l.__len__, n.__add__, none.__class__, d._private is defined, d['__class__']
''.__class__()
x.__class__
1.5.is_integer(), 2.0.is_integer(), (5).bit_length(), (255).bit_count(), n.real, n.imag, f.real, n.numerator, n.denominator
true.real, true.bit_length(), f.conjugate()
range(5)|list, range(2, 8, 3)|list, range(5, 0, -2)|list, range(0)|list, range(3)[1], range(10)[2:5], range(10)[::-1]|list
range(3), range(1, 3), range(0, 10, 2), range(3)|length, range(5, 1)|length, 3 in range(3), range(3) == range(0, 3)
range(10)[0:5:2], range(3).start, range(3).stop, range(3).step
range(100000)|length
range(100001)
range()
range(1, 2, 0)
range(1.5)
range('a')
namespace(a=1).a, namespace({'b': 2}).b, namespace(a=1), namespace().x is defined, namespace(a=1)['a']
namespace(_a=1)
namespace({'_a': 1})
namespace(1)
joiner()() ~ 'a', cycler(1, 2, 3).next(), cycler('a', 'b').current
cycler()
lipsum is defined, range is callable, namespace is callable, dict is callable, raise_exception is callable
lipsum is string, range is iterable, dict is mapping
raise_exception('boom')
raise_exception('boom %d' % 3)
raise_exception(none)
raise_exception()
strftime_now('%Y-%m-%d'), strftime_now('%d %B %Y, %H:%M:%S %p %j %U %w %y %a %b %c %x %X'), strftime_now('%-d/%-m %%'), strftime_now('')
strftime_now('%f'), strftime_now('%Z%z'), strftime_now('%e|%I|%l|%k|%D|%T|%R|%F|%G|%V|%u|%C|%h|%n|%t'), strftime_now('é %d')
strftime_now(1)
self is defined
1 is odd, 2 is even, 3 is odd, 0 is even, 9 is divisibleby 3, 9 is divisibleby(2), true is odd
'a' is odd
1 is divisibleby 0
1 is defined, x is defined, x is undefined, x is not defined, 1 is not undefined
1 is number, 1.5 is number, true is number, '1' is number, big is number, 1 is integer, true is integer, big is integer, 1.0 is integer
1.0 is float, 1 is float, true is boolean, 1 is boolean, none is none, 0 is none, true is true, 1 is true, false is false, 0 is false
'a' is string, 1 is string, d is mapping, l is mapping, l is iterable, 1 is iterable, 'a' is iterable, none is iterable, d is iterable
l is sequence, 'a' is sequence, d is sequence, 1 is sequence, (1,) is sequence, range(2) is sequence, d.items() is sequence, d.keys() is iterable
l|map('string') is iterable, l|map('string') is sequence, l|select is string, (l|select) is defined
'abc' is lower, 'ABC' is upper, 'aBc' is lower, '123' is lower, '' is upper, 'ß' is lower, u is lower
'a' is in 'abc', 1 is in [1], 1 is not in [2], 'upper' is filter, 'nosuch' is filter, 'defined' is test, 'nosuch' is test
1 is eq 1, 1 is equalto 2, 1 is ne 2, 1 is lt 2, 1 is lessthan 2, 2 is gt 1, 2 is greaterthan 1, 1 is le 1, 1 is ge 1, 1 is sameas 1, none is sameas none, true is sameas true
'x'|safe is escaped, 'x' is escaped, 'x'|e is escaped
1 is nosuchtest
1 is defined is defined
1|nosuchfilter
'Hello'|upper, 'Hello'|lower, 'hello world-foo (bar) {baz} <qux>'|title, 'hELLO wORLD'|capitalize, "it's o'clock"|title, 123|upper, none|lower, ['a', none]|upper
u|upper, u|lower, u|title, u|capitalize, u.upper(), u.lower(), u.title(), u.capitalize(), u.swapcase(), 'ŉﬁ'|upper, 'ǆ'|title, 'İ'|lower, 'ΑΣ Σ'|lower
ws|trim, '[' ~ ws|trim ~ ']', 'xxaxx'|trim('x'), 5|trim, none|trim, unicode_ws|trim, unicode_ws.strip(), 'abc'|trim('')
'a-b-c'|replace('-', '+'), 'a-b-c'|replace('-', '+', 1), 'aaa'|replace('a', 'b', 0), 'abc'|replace('', '.'), 123|replace(2, 'x'), 'aaa'|replace('aa', 'b'), 'abc'|replace('b', ''), 'abc'|replace(old='a', new='z')
s|length, l|length, d|length, (1, 2)|count, 'é😀'|length
5|length
none|length
true|length
'a\nb\n\nc'|indent, 'a\nb'|indent(2), 'a\nb'|indent(2, true), 'a\n\nb'|indent(2, false, true), 'a\nb'|indent('> '), 'a\nb'|indent(width=1, first=true), ''|indent, 'a\n'|indent, crlf|indent, 'x'|indent(first=true)
5|indent
none|indent
'5'|int, '5.7'|int, 'x'|int, 'x'|int(7), '0x1f'|int(0, 16), '1f'|int(base=16), '0b11'|int(base=0), ' 12 '|int, '1_000'|int, '-3'|int, none|int, [1]|int, true|int, 2.9|int, -2.9|int, '1e3'|int, ''|int, '12345678901234567890'|int, 1e20|int, '9' * 25|int, '+5'|int
'inf'|int, 'nan'|int, '--5'|int, '5 5'|int, '0x'|int(base=16), '_1'|int
'inf'|float|int
'5.5'|float, 'x'|float, 'x'|float(1.5), '1e3'|float, ' 2 '|float, none|float, true|float, 3|float, '1_0.5'|float, 'inf'|float, '-Infinity'|float, '.5'|float, '5.'|float, '1e'|float, 'infinit'|float
-5|abs, 5|abs, -2.5|abs, true|abs, -0.0|abs
'a'|abs
2.5|round, 3.5|round, -2.5|round, 2.567|round(2), 2.567|round(1), 1234.5678|round(-2), 5|round, 15|round(-1), 25|round(-1), 2.5|round(0, 'ceil'), 2.1|round(method='ceil'), 2.9|round(0, 'floor'), 2.345|round(2, 'floor'), 1.005|round(2), 0.5|round, 1e20|round, 2|round(2), true|round
2.567|round(2, 'ceil'), 7|round(0, 'ceil'), 7|round(-1, 'floor')
'a'|round
2.5|round(0, 'up')
l|first, l|last, 'abc'|first, 'abc'|last, el|first, el|last, d|first, d|last, (1, 2)|last, range(3)|last, ''|first is defined, d.items()|first, d.items()|last
5|first
l|select|last
l|sort, l|sort(true), mixed|sort, mixed|sort(case_sensitive=true), mixed|sort(reverse=true), d|sort, 'hello'|sort, rows|sort(attribute='v')|map(attribute='name')|list if no else 'skip'
rows[:3]|sort(attribute='v')|map(attribute='name')|list, rows|sort(attribute='name')|map(attribute='name')|list, rows|sort(attribute='g,name')|map(attribute='name')|list, rows|sort(attribute='g', reverse=true)|map(attribute='name')|list
rows|sort(attribute='v')
[1, 'a']|sort
[none, 1]|sort
[none, none]|sort, [x, y]|sort, [d, d]|sort
[none, none]|min
[[2, 'b'], [1, 'c'], [1, 'a']]|sort, [(2,), (1, 2)]|sort, [[1, 2], [0, 3]]|sort(attribute=1), [[1, 2], [0, 3]]|sort(attribute='0')
d|dictsort, d|dictsort(true), d|dictsort(by='value'), d|dictsort(reverse=true), d|dictsort(false, 'value', true), ed|dictsort
d|dictsort(by='x')
l|dictsort
{1: 'a', 'b': 2}|dictsort
mixed|unique|list, mixed|unique(true)|list, [1, 1.0, true, 2]|unique|list, rows|unique(attribute='g')|map(attribute='name')|list, 'hello'|unique|join, el|unique|list
[[1], [1]]|unique|list
l|min, l|max, mixed|min, mixed|max, mixed|max(case_sensitive=true), rows|max(attribute='name'), el|min is defined, 'hello'|max, [1.5, 2, true]|min
[1, 'a']|min
l|sum, [0.1, 0.2, 0.3]|sum, [[1], [2]]|sum(start=[]), rows[:3]|sum(attribute='v'), el|sum, el|sum(start=5), [true, 2]|sum
['a']|sum
rows|sum(attribute='v')
['a', 'b']|sum(start='')
l|reverse|list, 'abc'|reverse, (1, 2)|reverse|list, range(3)|reverse|list, d|reverse|list, l|select|reverse
5|reverse
l|join, l|join(', '), mixed|join('-'), 'abc'|join('.'), d|join(','), rows|join('|', attribute='name'), [1, none, true, 1.5, 'x']|join(' '), el|join('x'), l|join(1), rows|map(attribute='v')|join(',')
5|join
'abc'|list, d|list, (1, 2)|list, range(3)|list, d.items()|list, ''|list, 'é😀'|list
5|list
none|list
d|items|list, ed|items|list
l|items
l|items|list
nothing|items|list
l|map('string')|list, mixed|map('upper')|list, rows|map(attribute='name')|list, rows|map(attribute='v', default=0)|list, rows|map(attribute='v')|list, [['a', 1]]|map(attribute=0)|list, [['a', 1]]|map(attribute='1')|list, [{'x': {'y': 1}}]|map(attribute='x.y')|list
['a b', 'c d']|map('replace', ' ', '_')|list, [1.25, 2.75]|map('round', 1)|list, [' a ', 'b ']|map('trim')|list, ['1', 'x']|map('int', default=-1)|list, [[2, 1], [4, 3]]|map('sort')|list, [[1, 2]]|map('join', '-')|list, mixed|map('lower')|unique|sort|join
l|map|list
l|map('nosuch')|list
el|map('nosuch')|list, none|map('upper')|list, 0|select|list, ''|map('upper')|list
5|map('upper')|list
rows|map(attribute='name', x=1)|list
[1, 0, 2, none, '', 'a']|select|list, [1, 0, 2]|reject|list, [1, 2, 3, 4]|select('odd')|list, [1, 2, 3, 4]|reject('odd')|list, [1, 2, 3]|select('gt', 1)|list, [1, 2, 3]|select('>', 1)|list, mixed|select('in', 'AB')|list, mixed|reject('equalto', 'a')|list, [1, 'a', none]|select('string')|list, [1, 2]|select('==', 2)|list, [3, 6, 7]|select('divisibleby', 3)|list
l|select('nosuch')|list
rows|selectattr('v')|map(attribute='name')|list, rows|rejectattr('v')|map(attribute='name')|list, rows|selectattr('v', 'defined')|list|length, rows|selectattr('g', 'equalto', 'one')|map(attribute='name')|list, rows|selectattr('name', 'in', ['x', 'z'])|list|length, rows|rejectattr('name', 'lower')|map(attribute='name')|list, messages|selectattr('role', 'equalto', 'user')|list|length, messages|selectattr('role', '==', 'system')|first|tojson
rows|selectattr|list
messages|selectattr('content.0.type', 'defined')|list|length
[1, 2, 3, 4, 5]|batch(2)|list, [1, 2, 3]|batch(2, 'x')|list, el|batch(3)|list, 'abcde'|batch(2)|list, [1, 2, 3, 4, 5]|slice(2)|list, [1, 2, 3, 4, 5]|slice(3, 'x')|list, [1]|slice(3)|list, [1, 2, 3, 4]|batch(2)|map('join', '-')|join(';')
l|slice(0)|list
rows|groupby('g')|map(attribute='grouper')|list, rows|groupby('g')|list|length, rows|groupby('v', default=0)|map(attribute=0)|list, rows|groupby('g', case_sensitive=true)|map('first')|list, rows|groupby('name')|first|last|length, (rows|groupby('g'))[0].list|length, (rows|groupby('g'))[0].grouper
rows|groupby('v')
x|default('y'), ''|default('y'), ''|default('y', true), none|default('y'), none|default('y', boolean=true), false|d('y', true), 0|d('z'), s|default('q', true), d.q|default({})|length
1|default(2, 3, 4)
long|truncate(20), long|truncate(20, true), long|truncate(20, true, ''), long|truncate(20, false, '…', 0), 'short'|truncate(20), long|truncate(66), long|truncate(length=9, killwords=true), long|truncate(60, leeway=0)
long|truncate(2)
long|wordcount, ''|wordcount, 'a b  c-d e_f é1'|wordcount, 123|wordcount
'x'|center(5), 'xy'|center(5), 'xyz'|center(6), 'x'|center(1), '[' ~ 'ab'|center(7) ~ ']'
'%s-%d'|format('a', 5), '%.2f'|format(3.14159), '%(a)s'|format(a=1), '%5s|%-5s|%05d'|format('a', 'b', 42), '%s'|format(none), 'x'|format
'%s'|format
'%s %s'|format('a')
'%d'|format('a')
'%s'|format('a', 'b')
html|e, html|escape, html|safe, html|forceescape, (html|e)|e, (html|safe)|e, (html|e)|forceescape, 5|e, none|e, ['<']|e, ['<'|safe]
('<a>'|safe) + '<b>', '<b>' + ('<a>'|safe), ('<a>'|safe) ~ '<b>', ('<a>'|safe) * 2, ('<a>'|safe)[1:], ('<a>'|safe)|upper, ('<a>'|safe)|replace('a', '<'), ('<a>'|safe).replace('a', '<'), ('<a>'|safe)|trim + '<', ('a,b'|safe).split(',')
('<a>'|safe)|string + '&', ('<a>'|safe)|length, ('<a>'|safe) == '<a>', ('<a>'|safe) in ['<a>'], ('<a>'|safe)|tojson, ('<'|safe).join(['&', '>'|safe]), ['<a>'|safe, '<']|join('&'), ('x\ny'|safe)|indent + '<', ('x'|safe)|list, ('<a> b'|safe).partition(' '), ('<'|safe)|title + '<'
'a b&c=d/é'|urlencode, {'a': 1, 'b c': 'd&e'}|urlencode, [('x', 'y z')]|urlencode, 5|urlencode
0|filesizeformat, 1|filesizeformat, 999|filesizeformat, 1000|filesizeformat, 1024|filesizeformat(true), 123456789|filesizeformat, 1e30|filesizeformat, '5000'|filesizeformat
d|attr('items') is defined, d|attr('b') is defined, namespace(a=1)|attr('a'), s|attr('upper') is callable, s|attr('nosuch') is defined
d|tojson, l|tojson, s|tojson, n|tojson, f|tojson, big|tojson, yes|tojson, nothing|tojson, (1, 2)|tojson, deep|tojson, rows|tojson, {}|tojson, []|tojson, ''|tojson, 1e20|tojson, 1e-7|tojson, messages|tojson
d|tojson(indent=2), nested|tojson(indent=4), [[], {}, [{}]]|tojson(indent=1), schema|tojson(indent=2), {'a': []}|tojson(indent='\t'), [1]|tojson(indent=0), [1, [2]]|tojson(indent=-1), {}|tojson(indent=2)
d|tojson(separators=(',', ':')), nested|tojson(separators=[', ', '=']), d|tojson(indent=2, separators=(',', ':')), d|tojson(sort_keys=true), deep|tojson(sort_keys=true, indent=2)
u|tojson, u|tojson(ensure_ascii=true), u|tojson(true), '\x7f\x80\u2028\u2029<>&\'"\\/\b\f\n\r\t\x01\x1f'|tojson, '😀'|tojson(ensure_ascii=true), '\x7f'|tojson(ensure_ascii=true)
{1: 2, 1.5: 3, true: 4, none: 5, 'x': 6}|tojson, {1.0: 'a'}|tojson, {12345678901234567890: 1}|tojson
{(1, 2): 3}|tojson
{1: 2, 'x': 3}|tojson(sort_keys=true)
{'b': 1, 'a': 2, 'B': 3, 'é': 4}|tojson(sort_keys=true), {2: 1, 10: 2, 1.5: 3}|tojson(sort_keys=true)
l|map('string')|tojson
d.items()|tojson
d.keys()|tojson
range(3)|tojson
namespace(a=1)|tojson
d.get|tojson
d|tojson(1, 2, (',', ':'), true, 5)
d|tojson(foo=1)
d|tojson(separators=',')
'inf'|float|tojson, 'nan'|float|tojson, -('inf'|float), 'nan'|float == 'nan'|float, 'inf'|float > 10
s.upper(), s.lower(), s.title(), s.capitalize(), s.swapcase(), 'heLLo woRLD 2nd'.title(), "they're bill's".title(), 'x'.casefold()
ws.strip(), ws.lstrip(), ws.rstrip(), 'xxaxx'.strip('x'), 'abcba'.strip('ab'), 'abcba'.lstrip('ab'), 'abcba'.rstrip('ab'), 'éaé'.strip('é'), 'a'.strip(none), ''.strip(), '\x1c\x85a'.strip()
'a'.strip(1)
s.split(), s.split(','), s.split(', '), s.split('o', 1), 'a  b c'.split(), 'a  b c'.split(' '), ' a b '.split(none, 1), ''.split(), ''.split(','), 'a,b,c'.split(',', 0), 'a,b,c'.split(sep=',', maxsplit=1), 'aXXbXXc'.split('XX'), ' a  b '.split(maxsplit=1)
'a b c'.rsplit(), 'a b c'.rsplit(none, 1), 'a,b,c'.rsplit(',', 1), ' a  b  c '.rsplit(none, 1), 'a,b'.rsplit(','), ''.rsplit(), 'x'.rsplit('y')
'a'.split('')
'a'.split(1)
crlf.splitlines(), crlf.splitlines(true), ''.splitlines(), 'a\n'.splitlines(), 'a\x0bb\x0cc\x1cd\u2028e'.splitlines(), '\n\n'.splitlines()
'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('-'), 'abc'.rpartition('-')
'a'.partition('')
s.startswith('Hello'), s.startswith('x'), s.startswith(('x', 'He')), s.endswith('World'), s.endswith(('a', 'd')), s.startswith(''), s.startswith('World', 7), s.endswith('Hello', 0, 5), s.startswith('', 50), s.endswith('')
s.startswith(['He'])
s.startswith(1)
s.find('o'), s.find('o', 5), s.find('z'), s.rfind('o'), s.find(''), s.find('', 50), s.find('o', -3), s.find('o', 0, 3), s.index('W'), s.rindex('l'), s.count('l'), s.count(''), s.count('l', 4), s.count('lo'), 'aaaa'.count('aa'), u.find('É'), u.rfind('t'), u.index('😀')
s.index('z')
s.replace('l', 'L'), s.replace('l', 'L', 2), s.replace('', '-', 3), 'aaa'.replace('a', ''), s.replace('xyz', 'q'), s.replace('l', 'L', -1)
s.replace('l')
s.replace('l', 1)
s.replace(old='l', new='x')
'-'.join(['a', 'b']), ''.join(mixed), ', '.join('abc'), '-'.join([]), '-'.join(d), '-'.join(['x']), '-'.join(mixed|map('upper'))
'-'.join([1, 2])
'-'.join(5)
'abc'.isalpha(), 'ab1'.isalpha(), ''.isalpha(), 'é'.isalpha(), '123'.isdigit(), '12a'.isdigit(), '²'.isdigit(), '½'.isdigit(), '½'.isnumeric(), '一'.isnumeric(), '12'.isdecimal(), '²'.isdecimal(), 'a1'.isalnum(), 'a-'.isalnum(), ' \t'.isspace(), ''.isspace(), '\u00a0'.isspace()
'ABC'.isupper(), 'ABc'.isupper(), '123'.isupper(), 'abc'.islower(), 'Abc Def'.istitle(), 'Abc def'.istitle(), 'abc'.isascii(), 'é'.isascii(), 'a b'.isprintable(), 'a\n'.isprintable(), 'a_1'.isidentifier(), '1a'.isidentifier(), ''.isascii()
'ab'.ljust(5, '.'), 'ab'.rjust(5, '.'), 'ab'.center(5, '.'), 'abc'.center(6, '.'), 'ab'.ljust(1), '5'.zfill(3), '-5'.zfill(4), '+5'.zfill(4), 'abc'.zfill(2), ''.zfill(2), 'é'.ljust(3, '·')
'ab'.ljust(5, 'xy')
'a\tb\tcd\te'.expandtabs(), 'a\tb'.expandtabs(4), '\t'.expandtabs(0), 'ab\n\tc'.expandtabs(3)
'prefix-x'.removeprefix('prefix-'), 'x-suffix'.removesuffix('-suffix'), 'abc'.removeprefix('x'), 'abc'.removesuffix(''), 'abc'.removeprefix('abc')
'{} {}'.format(1, 'a'), '{0} {1} {0}'.format('x', 'y'), '{a} {b!r}'.format(a=1, b='q'), '{{}} {}'.format(5), '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c'), '{:05d} {:+d} {:,} {:_}'.format(42, 7, 1234567, 1234567), '{:.2f} {:e} {:g} {:%}'.format(3.14159, 12345.678, 0.0001, 0.25), '{0[a]} {1.x}'.format({'a': 1}, {'x': 2}), '{:x} {:X} {:o} {:b} {:#x} {:#b}'.format(255, 255, 8, 5, 255, 5)
'{:*^9}'.format('mid'), '{:>{w}}'.format('a', w=4), '{:{}}'.format('a', 3), '{!s:>6}'.format(none), '{:10.3}|'.format('abcdef'), '{:.3}'.format(3.14159), '{:10}|{:<10}|'.format(1, 2), '{:n}'.format(1.5), '{:,.2f}'.format(1234567.891), '{:010.2f}'.format(-3.14159), '{:=+6}'.format(5), '{: d}'.format(5), '{:.0f}'.format(2.5), '{}'.format(1.0), '{:.1%}'.format(0.123), '{:08,}'.format(1234), '{:é>4}'.format(1)
'{} {}'.format(1)
'{} {0}'.format(1)
'{a}'.format(b=1)
'{'.format(1)
'}'.format(1)
'{:d}'.format('a')
'{:s}'.format(1)
'{:q}'.format(1)
'{:>5}'.format([1])
'{!x}'.format(1)
'{.__class__}'.format(1)
'{a} {b}'.format_map({'a': 1, 'b': 2}), '{}'.format([1, 'a']), '{}'.format(none), '{:}'.format(true), '{:d}'.format(true), '{:5}|'.format(true), '{}'.format(undefined_name)
'%s %d %r' % ('a', 3, 'b'), '%s' % 'x', '%s' % [1, 2], '%d%%' % 5, '%5.1f|%-8s|%+d|% d' % (3.14159, 'ab', 5, 5), '%x %X %o %#x %c %c' % (255, 255, 8, 255, 65, 'z'), '%(a)s %(b)05d' % {'a': 1, 'b': 42}, '%e %g %G' % (12345.678, 0.00001, 1e20), '%.3s' % 'abcdef', '%*d' % (5, 42), '%s' % none, '%s' % (('a', 'b'),), '%5s' % 'é', '%.3d' % 5, '%05d' % -42, '%d' % 3.9, '%i %u' % (1, 2), '%s' % true, '%d' % true, 'x' % [], 'x' % {}
'%s %s' % 'a'
'%s' % ('a', 'b')
'%d' % 'a'
'%q' % 1
'x' % 1
'%(a)s' % 5
'%(a)s' % {'b': 1}
'%' % ()
'%c' % 'ab'
messages[0].role ~ ': ' ~ messages[0]['content'], messages[-1]['content'][0]['text'], messages[2].tool_calls[0].function.arguments|tojson, messages[2].tool_calls[0].function.name, messages|length, messages[1:]|length
messages[0].content is string, messages[-1].content is string, messages[-1].content is iterable, 'tool_calls' in messages[2], messages[2].get('tool_calls', [])|length, messages[0].tool_calls is defined, messages[3].content|length
(messages|last).role, (messages|first).role, messages|map(attribute='role')|join(','), messages|map(attribute='role')|unique|list, messages|selectattr('tool_calls', 'defined')|list|length
s|replace('World', 'X')|upper|reverse, (s|lower).split(',')[0]|capitalize, [s, u]|map('length')|sum, s|list|unique|length, -n|abs, -(n|abs), (-n)|abs, n|string|length, not n is odd, n is odd and f is float
n if n > 5 else f, (n, f)[n > 5], n > 5 and 'big' or 'small', [n, f]|max, d.a + d['b'] * d.C, (l|sort)[0], l|sort|first, l|length > 2, 'x' * n, s[n:], s[:n]|length
nested|tojson, nested[1][1][0], nested|map('length')|list, nested|sum(start=[]), nested[0] + nested[2], nested == [[1, 2], [3, [4, 5]], []]
big // 2
big % 10
big + 1
9223372036854775807 + 1
2 ** 64
10 ** 18, 7 ** 20, (-3) ** 3, 0 ** 0, 1.5 ** 2, 2 ** -1
l|random is defined
html|striptags
html|xmlattr
l|pprint
"a" "b" ~ "c" 'd'
{'a': {'b': {'c': 1}}}.a.b.c, {'a': [1, {'b': 2}]}['a'][1]['b'], [{'a': 1}][0].a, ({'a': 1}).a
[1, 2, 3]|length == 3, not ([]|length), ''|length or 'empty', (none or {}).x is defined, (d.q or {}).get('z', 1)
s is string and s|length > 3, s is not string or n is number, n is not none and n is not string, d is mapping and 'a' in d
l is sameas l, 5 is in l, n is between
s. upper(), s .upper(), s[ 0 ], d [ 'a' ], ( n ), [ 1 , 2 ], { 'a' : 1 }
f(
1 +
)
a b
'abc
{'a' 1}
[1 2]
x.
x[
x|
1 is
not
{{
a if
a if b else
-
~
a..b
a!b
a && b
a = b
lambda x: x
[x for x in l]
f'x'
1 if 2 if 3 else 4
x ? y : z
a | b c
$x
`x`
0x
1__0
é + 1
"\N{DASH}"
"\ud800"
"\x4"
*l
**d
dict(**d), dict(**{'x': 1}), range(*[1, 3])|list, '{} {}'.format(*['a', 'b']), '{a}'.format(**{'a': 1}), [3, 1]|sort(**{'reverse': true})
dict(**5)
range(*5)
dict(a=1, a=2)
dict(a=1, **{'a': 2})
s.upper(1)
s.strip('a', 'b')
d.get()
d.get(key='a')
l|join(', ', 'x', 'y')
l|first(1)
1 is odd(1)
"""

TEMPLATES = [
    # white space
    "a\n{% if true %}\n  b\n{% endif %}\nc\n", "a\n  {% if true %}  \n b {%- endif %}\n c", "  {{ 1 }}  \n  {{- 2 -}}  \n  3",
    "x {#- c -#} y {# d #} z\n{# e #}\nw", "{%- if true -%}\n x \n{%- endif -%}\n", "a{%+ if true +%}\n b{%+ endif +%}\nc",
    "\n\n{{ 1 }}\n\n", "\r\na\r{{ 1 }}\r\n", " \t{% set x = 1 %}\t {{ x }}", "a {% if 1 %}\n\n\n b{% endif %}", "x\n\n   {%- if 1 %} y{% endif %}",
    "{% raw %}{{ x }}{% endraw %}", "a  {%- raw -%}  {{ b }}  {%- endraw -%}  c", "  {% raw %}\n  {% if %}\n  {% endraw %}\nx", "{% raw %}{# c #}{% endraw %}{# d #}",
    "{{ '}}' }}{{ '%}' }}{{ \"{{\" }}", "{{ {'a': {'b': 1}}['a'] }}}", "{ { } } {{ '{' }}{% if 1 %}}{% endif %}", "{", "{{ 1 }", "}} %} #}", "{% if 1 %}a{% endif %}{", "{#", "{# a", "{# a #", "{%", "{{",
    "", "\n", "\n\n", " ", "a\n\n\n", "\t{# c #}\tx", "{{ 1 }}\n", "{% set x = 1 %}\n", "{% set x = 1 -%}\n\n y", "{{ 1 -}}\n\n y", "\u00a0{%- if 1 %}x{% endif %}\u3000{{- 1 }}", "a\x0b{%- if 1 %}b{% endif %}",
    "line\n    {% for i in [1,2] %}\n    {{ i }}\n    {% endfor %}\nend", "{% for i in [1,2] -%}\n  {{ i }}\n{%- endfor %}", "{%if 1%}a{%endif%}", "{{1}}{{'a'}}", "{%- set a = 1 -%}\n{%- set b = 2 -%}\n{{ a + b }}",
    "{{ 'multi\nline' }}", "{{\n  1\n  +\n  2\n}}", "{% if 1\n and 2 %}x{% endif %}", "{{ 1 }}{# {{ 2 }} {% raw %} #}{{ 3 }}",
    # if, for
    "{% if no %}a{% elif n == 7 %}b{% elif true %}c{% else %}d{% endif %}", "{% if no %}a{% elif no %}b{% else %}d{% endif %}", "{% if el %}a{% endif %}{% if l %}b{% endif %}{% if x %}c{% endif %}", "{% if not x is defined and n %}a{% endif %}", "{% if n in [1, 7] and s.startswith('H') or no %}y{% endif %}", "{% if 1, 2 %}t{% endif %}",
    "{% for i in l %}{{ i }}{% endfor %}", "{% for i in el %}{{ i }}{% else %}none{% endfor %}", "{% for i in x %}{{ i }}{% else %}none{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}", "{% for k, v in d|dictsort %}{{ k }}={{ v }} {% endfor %}", "{% for c in 'héé😀' %}[{{ c }}]{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for (a, b) in [[1, 2]] %}{{ a + b }}{% endfor %}", "{% for a, in [[1], [2]] %}{{ a }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}", "{% for a, b in [[1]] %}{{ a }}{% endfor %}", "{% for a, b in [5] %}{{ a }}{% endfor %}", "{% for a, b in ['xy'] %}{{ a }}-{{ b }}{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for i in tools %}{% endfor %}", "{% for t in tools or [] %}x{% endfor %}ok",
    "{% for i in l %}{{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.previtem }} {{ loop.nextitem }} {{ loop.depth }} {{ loop.depth0 }} {{ loop.cycle('a', 'b') }} {{ loop.changed(i) }}\n{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}:{{ i }}:{{ loop.last }}:{{ loop.length }} {% endfor %}", "{% for i in l if i > 10 %}x{% else %}empty{% endfor %}", "{% for i in l %}{% for j in l if j < i %}{{ i }}{{ j }} {% endfor %}{% endfor %}", "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.role }}{% endfor %}", "{% for k, v in d.items() if v > 1 %}{{ k }}{{ loop.previtem }}{% endfor %}", "{% for i in range(3) if loop %}{% endfor %}",
    "{% for i in range(10) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in range(5) %}{% if i is odd %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in [1] %}{% break %}{% else %}E{% endfor %}", "{% for i in [1, 2] %}{% if loop.last %}{% break %}{% endif %}{% else %}E{% endfor %}", "{% for i in [1] %}{% continue %}{% else %}E{% endfor %}", "{% break %}", "{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for i in [] %}{% else %}{% break %}{% endfor %}", "{% for i in l %}{% for j in [] %}{% else %}{% break %}{% endfor %}{{ i }}{% endfor %}", "{% for i in l %}{% set x %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endset %}{{ x }}{% endfor %}",
    "{% for i in l %}{% if loop.first %}F{% endif %}{{ i }}{{ ', ' if not loop.last }}{% endfor %}", "{% for a in l %}{% for b in mixed %}{{ loop.index0 }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for a in l %}{% set outer = loop %}{% for b in [1] %}{{ outer.index }}{{ loop.index }}{% endfor %}{% endfor %}", "{% for i in [1, 1, 2, 2, 1] %}{{ 'c' if loop.changed(i) else '.' }}{% endfor %}", "{{ loop }}", "{{ loop.index }}", "{% for i in l %}{{ loop.nope is defined }}{% endfor %}", "{% for i in l %}{{ loop }}{{ loop|length }}{% endfor %}", "{% for i in l|select('odd') %}{{ i }}{{ loop.length }}{{ loop.last }}{% endfor %}", "{% for i in l|map('string') %}{{ loop.last }}{{ loop.length }}{{ i }}{% endfor %}",
    "{% for item in [{'n': 1, 'c': [{'n': 2, 'c': [{'n': 3}]}]}] recursive %}{{ item.n }}{{ loop.depth }}{% if item.c %}({{ loop(item.c) }}){% endif %}{% endfor %}", "{% for i in l %}{{ loop([1]) }}{% endfor %}", "{% for i in nested recursive %}{% if i is iterable %}[{{ loop(i) }}]{% else %}{{ i }}{% endif %}{% endfor %}", "{% for i in [1] recursive %}{{ loop([]) }}{% else %}E{% endfor %}",
    "{% for loop in l %}{% endfor %}", "{% for i in l %}{% set loop = 1 %}{% endfor %}", "{% set loop = 5 %}{{ loop }}", "{% for true in l %}{% endfor %}", "{% for 1 in l %}{% endfor %}", "{% for i in %}{% endfor %}", "{% for i l %}{% endfor %}", "{% for i in l %}", "{% for i in l %}{% endif %}", "{% if 1 %}{% endfor %}", "{% if %}{% endif %}", "{% else %}", "{% endfor %}", "{% nosuch %}", "{% do l %}", "{% 1 %}", "{% set %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% set a.b = 1 %}", "{% set x.y.z = 1 %}", "{% if 1 %}{% else %}{% else %}{% endif %}",
    # scopes
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}", "{% for i in l %}{% set y = i %}{% endfor %}{{ y is defined }}", "{% if true %}{% set y = 1 %}{% endif %}{{ y }}", "{% if false %}{% set s = 1 %}{% endif %}{{ s }}", "{% for i in [1] %}{{ s }}{% set s = 'q' %}{{ s }}{% endfor %}{{ s }}", "{% for i in [1] %}{% for j in [1] %}{{ s }}{% endfor %}{% set s = 'q' %}{% endfor %}{{ s }}", "{% for j in [1] %}[{{ s }}]{% endfor %}{% set s = 5 %}{{ s }}", "{% for j in [1] %}[{{ s }}]{% endfor %}{% set s = s ~ '!' %}{{ s }}", "{% for i in l %}{% if i == 1 %}{% set q = i %}{% endif %}{{ q is defined }}{% endfor %}", "{% set q = 0 %}{% for i in l %}{% if i == 1 %}{% set q = i %}{% endif %}{{ q }}{% endfor %}{{ q }}", "{{ x }}{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set (x, y) = (1, 2) %}{{ x }}{{ y }}", "{% set x = 1, %}{{ x }}", "{% set x, y = 1 %}", "{% set x = y = 1 %}",
    "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{% set ns.b = [ns.a] %}{{ ns.a }}{{ ns.b }}{{ ns }}", "{% set ns = namespace() %}{% for i in l %}{% set ns.last = i %}{% endfor %}{{ ns.last }}", "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x + m.role %}{% endfor %}{{ ns.x }}", "{% set d.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "{% set nope.x = 1 %}", "{% set ns = namespace(items=3) %}{{ ns.items }}{{ ns['items'] }}", "{% set ns = namespace(a=1) %}{% set other = ns %}{% set other.a = 2 %}{{ ns.a }}{{ ns == other }}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace(a=1) %}{{ ns['b'] is defined }}{{ 'a' in ns }}", "{% set ns = namespace(a=1) %}{% set ns.self = ns %}{{ ns.self.a }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x is string }}{{ x|length }}", "{% set x | upper | trim %} abc {% endset %}[{{ x }}]", "{% set x | replace('a', 'b') %}aaa{% endset %}{{ x }}", "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ y is defined }}{{ x }}", "{% set ns = namespace() %}{% set ns.x %}blk{% endset %}{{ ns.x }}", "{% set x = 1 %}{% set x %}{{ x }}{% endset %}{{ x }}", "{% set x %}", "{% set x | nosuch %}{% endset %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", "{% with n = n + 1 %}{{ n }}{% endwith %}{{ n }}", "{% with a = 1, b = a %}{{ b is defined }}{% endwith %}", "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% with a, b = (1, 2) %}{{ a }}{% endwith %}", "{% with a %}{% endwith %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter trim | replace('a', 'b') %} aa {% endfilter %}|", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter upper %}{% set q = 1 %}{{ q }}{% endfilter %}{{ q is defined }}", "{% filter nosuch %}{% endfilter %}", "{% filter %}{% endfilter %}",
    "{% generation %}abc{{ s }}{% endgeneration %}", "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}", "{%- generation -%} x {%- endgeneration -%}", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q is defined }}", "{% generation %}", "{% print 1, 'a', l %}", "{% print %}",
    "{% block a %}A{{ n }}{% endblock %}", "{% set q = 1 %}{% block a %}{{ q }}{% set q = 2 %}{{ q }}{% endblock %}{{ q }}", "{% block a %}1{% endblock a %}", "{% for i in l %}{% block a %}{{ i is defined }}{% endblock %}{% endfor %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% if no %}{% include 'x' %}{% endif %}ok", "{% autoescape true %}{% endautoescape %}",
    # macros
    "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(1, c=9) }}|{{ f(c=1, a=2) }}|{{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}{{ f() }}", "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", "{% macro f() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b=3, c=4) f() %}{{ a }}{{ b }}{{ c }}{% endcall %}", "{% macro f(x) %}{{ x }}{{ caller() if caller else '-' }}{% endmacro %}{{ f(1) }}{% call f(2) %}C{% endcall %}", "{% macro f(caller) %}{{ caller() }}{% endmacro %}{% call f() %}x{% endcall %}", "{% macro f(caller=none) %}{{ caller() if caller }}{% endmacro %}{% call f() %}x{% endcall %}{{ f() }}", "{% call f %}{% endcall %}", "{% call 1 %}{% endcall %}", "{% call s.upper() %}x{% endcall %}",
    "{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro even(n) %}{{ 'y' if n == 0 else odd(n - 1) }}{% endmacro %}{% macro odd(n) %}{{ 'n' if n == 0 else even(n - 1) }}{% endmacro %}{{ even(10) }}", "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "{% macro f(a=1, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f() }}{{ f(2) }}{{ f(b=3) }}", "{% macro f(a, b=s) %}{{ b }}{% endmacro %}{{ f(1) }}{% set s = 'changed' %}{{ f(1) }}", "{% macro f() %}{{ s }}{% set s = 'in' %}{{ s }}{% endmacro %}{{ f() }}{{ s }}", "{{ f is defined }}{% macro f() %}{% endmacro %}{{ f is defined }}", "{{ f() }}{% macro f() %}x{% endmacro %}", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}G{% endmacro %}{{ f() }}",
    "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}", "{% macro f() %}{{ i }}{{ q }}{% endmacro %}{% set q = 1 %}{% for i in l %}{{ f() }}{% endfor %}", "{% if yes %}{% macro f() %}a{% endmacro %}{% else %}{% macro f() %}b{% endmacro %}{% endif %}{{ f() }}", "{% macro f() %}  x  {% endmacro %}[{{ f()|trim }}]{{ f()|length }}", "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}{{ f('a') }}", "{{ f }}{% macro f(a) %}{% endmacro %}{{ f }}{{ f.name }}{{ f.arguments }}{{ f.caller }}{{ f.catch_kwargs }}", "{% macro f(a, a) %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{% macro f %}{% endmacro %}", "{% macro f() %}", "{% macro 1() %}{% endmacro %}", "{% macro f(1) %}{% endmacro %}", "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}", "{% set ns = namespace() %}{% macro f() %}{% set ns.v = 5 %}{% endmacro %}{{ f() }}{{ ns.v }}", "{% macro f(l) %}{% for i in l %}{{ i }}{% endfor %}{% endmacro %}{{ f([1, 2]) }}", "{% macro f(d) %}{% for k, v in d.items() %}{{ k }}:{% if v is mapping %}{ {{- f(v) -}} }{% else %}{{ v }}{% endif %} {% endfor %}{% endmacro %}{{ f(deep) }}", "{% macro f(a) %}{{ a|default('D') }}{{ a is defined }}{% endmacro %}{{ f() }}{{ f(none) }}", "{% macro f(a) %}{{ a.x }}{% endmacro %}{{ f() }}", "{% macro outer() %}{% macro inner() %}I{{ v }}{% endmacro %}{% set v = 1 %}{{ inner() }}{% endmacro %}{{ outer() }}", "{% macro f() %}{{ kwargs.x }}{{ kwargs|length }}{% endmacro %}{{ f(x=1, y=2) }}", "{% macro f() %}{{ varargs|join('-') }}{% endmacro %}{{ f(*l) }}", "{% set f = s.upper %}{{ f() }}", "{% macro f() %}{% call g() %}{{ caller() }}{% endcall %}{% endmacro %}{% macro g() %}<{{ caller() }}>{% endmacro %}{% call f() %}x{% endcall %}", "{% macro loop() %}{% endmacro %}x",
    "{% set a = namespace(f=none) %}{% for i in l %}{% macro g() %}{{ i }}{% endmacro %}{% set a.f = g %}{{ a.f() }}{% endfor %}", "{{ s|nosuch if no else 'ok' }}", "{% if no %}{{ s|nosuch }}{% endif %}ok", "{% if yes %}{{ s|nosuch }}{% endif %}", "{% if no %}{% for i in l %}{{ i|nosuch }}{% endfor %}{% endif %}", "{% macro f() %}{{ s|nosuch }}{% endmacro %}", "{% if no %}{{ s is nosuch }}{% endif %}ok", "{% for i in [] %}{{ s|nosuch }}{% endfor %}", "{% set x = 5 if no else s %}{{ x }}", "{% if no %}{{ 1 / 0 }}{% endif %}ok",
    "{% set m = l|map('string') %}{{ m|list }}{{ m|list }}", "{% set m = rows|selectattr('v', 'defined') %}{% for r in m %}{{ r.name }}{% endfor %}{% for r in m %}{{ r.name }}{% endfor %}", "{% set m = l|map('string') %}{{ m|first }}{{ m|list }}", "{% set m = d.items() %}{{ m|list }}{{ m|list }}", "{% set i = d|items %}{{ '2' in i }}{{ i|list }}", "{{ 3 in l|select }}",
    "{% set j = joiner(' | ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}", "{% set ns = namespace(i=0) %}{% for x in range(3) %}{% set ns.i = ns.i + x %}{% endfor %}{{ ns.i }}", "{% for g in rows|groupby('g') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join(',') }};{{ g[0] }}{{ g|length }} {% endfor %}", "{% for g, items in rows|groupby('g') %}{{ g }}={{ items|length }} {% endfor %}", "{{ rows|groupby('g') }}", "{% for b in range(7)|batch(3, '-') %}{{ b }}{% endfor %}", "{% for c in range(7)|slice(3) %}{{ c }}{% endfor %}",
    # like chat templates
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m['content'] if m['content'] is string else m['content']|tojson) + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{{- bos_token }}{%- for message in messages %}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('Roles must alternate!') }}{%- endif %}{%- endfor %}",
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}{{ system_message }}|{{ loop_messages|length }}",
    "{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi_step and message.role == 'user' %}{%- set ns.multi_step = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }}{{ ns.multi_step }}",
    "{%- for m in messages %}{%- if m.tool_calls %}{%- for tc in m.tool_calls %}{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}{{ tc.name }}({% for k, v in tc.arguments|items %}{{ k }}={{ v|tojson if v is not string else v }}{% if not loop.last %}, {% endif %}{% endfor %}){%- endfor %}{%- endif %}{%- endfor %}",
    "{%- macro render(schema, depth=0) %}{%- for k, v in schema.items() %}{{ '  ' * depth }}{{ k }}: {% if v is mapping %}\n{{ render(v, depth + 1) }}{% elif v is iterable and v is not string %}[{{ v|join(', ') }}]\n{% else %}{{ v }}\n{% endif %}{%- endfor %}{%- endmacro %}{{ render(schema) }}",
    "{% set content = messages[1].content %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ content|trim }}", "{%- set dt = strftime_now('%d %b %Y') if not date_string is defined else date_string %}{{ dt }}", "{{ '' if messages|selectattr('role', 'equalto', 'system')|list else 'no system' }}", "{%- for p in messages[-1].content %}{%- if p.type == 'text' %}{{ p.text }}{%- elif p['type'] == 'image' %}<image>{%- endif %}{%- endfor %}",
    "{{ raise_exception('multi\nline \"quoted\" é') }}", "{% if not messages %}{{ raise_exception('empty') }}{% endif %}x", "{% set keys = ['a', 'b'] %}{% for k in keys if k in d %}{{ k }}{% endfor %}", "{{ messages|map(attribute='content')|map('string')|map('length')|list }}", "{% for m in messages|rejectattr('role', 'equalto', 'system') %}{{ loop.index }}{{ m.role }}{% endfor %}", "{{ (messages|selectattr('role', 'in', ['user', 'tool'])|list)[-1].role }}",
]
for _value in ("s", "u", "n", "f", "l", "d", "nothing", "yes", "el", "rows[0]", "undefined_name", "range(3)", "d.items()"):
    TEMPLATES.append("{{ %s }}|{{ %s|string }}|{{ [%s] }}|{{ %s ~ '' }}" % ((_value,) * 4))
    for _test in ("defined", "string", "mapping", "iterable", "sequence", "number", "none", "boolean", "callable", "true", "integer", "escaped"):
        TEMPLATES.append("{{ %s is %s }}" % (_value, _test))
    for _filter in ("length", "first", "list", "upper", "tojson", "int", "float", "trim", "join(',')", "sort", "default(1, true)",
                    "reverse|list", "items|list", "dictsort", "sum", "unique|list", "map('string')|list", "select|list", "abs", "title", "e",
                    "capitalize", "wordcount", "replace('a', 'b')", "last", "max", "batch(2)|list", "round", "indent", "urlencode", "string|length"):
        TEMPLATES.append("{{ %s|%s }}" % (_value, _filter))


def all_snippets():
    """(name, source) pairs, numbered in order."""
    sources = []
    for line in EXPRESSIONS.strip("\n").split("\n"):
        sources.append("{{ %s }}" % line)
    sources += TEMPLATES
    return [("own#%d" % i, source) for i, source in enumerate(sources)]
