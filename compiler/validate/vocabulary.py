"""vocabulary: checks that a text has only the words and the lines that hccc writes.

A text is run once, by one compiler with one set of flags, for one type. That shows all that it does
only if nothing in it can ask which compiler, flag or type there is, keep something for the next
call, or read what was never written. So it has no directives but those below: no `#if`, no `##`
that makes other names, no header but hccc's. What a kernel declares is constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hccc.base.diagnostics import fail
from hccc.base.dtypes import NAMES, OPS, named
from hccc.emit.targets import Target

_COMMENT = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TOKEN = re.compile(r'"[^"]*"|[A-Za-z_]\w*|\d\w*|\S', re.ASCII)
_STRING = re.compile(r'"[\w.+! -]*"', re.ASCII)
_NUMBER = re.compile(r"\d+(LL)?|0x[0-9a-f]{16}ULL", re.ASCII)
_PUNCTUATION = frozenset("(){}[]<>,;=+-*/%?:|&!.")
_CONTINUED = re.compile(r"\\|\?\?")
# Trigraphs, other spellings of `#` and of brackets, half a comment.
_ODD = re.compile(r"\?\?|%:|<:|:>|<%|%>|/\*|\*/")
_CAST = re.compile(r"static_cast<(int|long long)>")
_SHOWN = 60  # characters of a line in an error
_HELP = "compile the program again; nothing of this text was compiled or run"

_TYPES = "|".join(NAMES)
# An expression of a reduction of one's own: calls of these functions (types.h), a, b and numbers.
_TERMS = (
    "add|subtract|multiply|divide|negate|magnitude|smaller|larger|both|either|differ|flip|equal|"
    "unequal|less|more|most|least|any|every|deny|pick|number"
)
_EXPRESSION = rf"(?:t::(?:{_TERMS})\(|[ab]|\)|, |\d+LL|\d+\.\d+(?:e[+-]?\d+)?|\de[+-]\d+)+"
_CONSTANTS = (
    "RANKS|SUB|CHANNELS|BLOCKS|FLAGS|SCRATCH|STAGE|QUEUES|SENDS|SLOTS|GRAIN|PACKETS|LINES|"
    "THREADS|OPERANDS|TOUCHES_PEERS|NETWORK|GREETS|MULTICAST|UNEVEN|ACCUMULATE|INLINE"
)

# @ is the plan's or the library's name, TARGET the target's, STREAM the type of its stream. A line
# has these words and no others, or is one of those below.
_KERNEL_WORDS = (
    r"b|rank|tb|node|local|i|at|turn|call|comm|stream|narrowed|in_place|window|kind|kind_of|"
    r"(?:row|x|chunk|flag|length|own|peer|prim|queue|slot|turn)\d+|row\d+_of|hccc_table\d+|"
    r"@_blocks\d*|return|if|switch|case|default|break|HCCC_WINDOWS|HCCC_UNROLL|HCCC_COPY|"
    r"HCCC_REDUCE|HCCC_FINAL|HCCC_FAR|HCCC_FROM_ALL|HCCC_TO_ALL|HCCC_IF_IN_PLACE|HCCC_IF_OUT_OF_PLACE|HCCC_BAD_ARGUMENT|"
    r"hccc_prim|hccc_waits|hccc_from|hccc_to|hccc_put|hccc_posts|hccc_post|hccc_input|hccc_output|"
    r"hccc_scratch|hccc_stage|hccc_recv|hccc_send|hccc_send_far|hccc_packets_in|hccc_packets_out|hccc_cpu_launch|hccc_gpu_launch"
)
# Lines that declare or direct, without comments. `once`, or the line, may be there once, unless the
# line begins with `*`; `rest` has the words above, but not `new`, which is not yet there.
_KERNEL_LINES = (
    rf"#define HCCC_(?P<once>{_CONSTANTS}) \d+",
    r"#define HCCC_(?P<once>INPUT_BLOCKS)\(rank\) \((rank (==|<) \d+ \? \d+ : )*\d+\)",
    r"#define HCCC_(?P<once>OUTPUT_BLOCKS)\(rank\) \((rank (==|<) \d+ \? \d+ : )*\d+\)",
    rf'#define HCCC_(?P<once>REDUCTIONS)( HCCC_OWN\([a-z]\w*, "[iuf]+", {_EXPRESSION}\))+',
    r'#include "hccc/device\.h"',
    r'#include "hccc/(cpu_runtime|gpu_launch)\.h"',
    r"*static (__device__ |__attribute__\(\(device\)\) )?const (short|int) hccc_table\d+"
    r"(\[\d+\])+ = \{",
    r"*HCCC_FN void @_blocks\d*\(hccc_block& b(, int turn)?\) \{",
    r"HCCC_FN void hccc_program\(hccc_block& b\) \{",
    r"HCCC_FN int hccc_neighbour_count\(int( rank)?\) \{",
    r"HCCC_FN int hccc_neighbour\(int rank, int i\) \{",
    r"HCCC_FN int hccc_memory_domain\(int rank\) \{",
    r"* *const int (?P<new>(rank|node|local|tb|at|kind_of|row\d+_of|[a-z]+\d+)) = (?P<rest>[^;]*);",
    r"* *const auto\* (?P<new>kind|row\d+) = (?P<rest>hccc_table\d+ \+ [^;]*);",
    r"* *for \(int i = 0; (i < \d+|kind\[i\] != -?\d+); \+\+i\) \{",
    r"  hccc_call narrowed;",
    r"HCCC_KERNEL",
    r"#ifdef HCCC_GPU",
    r"#define HCCC_NAME_OF\(dtype, op\) @_TARGET_##dtype##_##op",
    r"#define HCCC_NAME\(dtype, op\) HCCC_NAME_OF\(dtype, op\)",
    r'extern "C" int HCCC_NAME\(HCCC_DTYPE, HCCC_OP\)\(const hccc_comm\* comm, '
    r"const hccc_call\* call(,|\) \{)",
    r" *HCCC_GPU\(Stream_t\) stream\) \{",
    r"#endif",
)
_FIRST_HEADER = '#include "hccc/device.h"'  # which reads the constants

_LIBRARY_WORDS = (
    rf"return|if|for|const|int|long|void|char|bool|auto|true|false|nullptr|sizeof|"
    r"static_cast|struct|enum|CUstream_st|ihipStream_t|strcmp|rank|count|size|micro_batch_bytes|"
    r"comm|call|dtype|op|stream|library|name|type|reduction|pair|range|plan|plans|bad|picked|"
    rf"dtypes|ops|names|hccc_(?:call|comm|shape|range|catalogue|library|entry|picked|domain|known|"
    r"same_width|launch_it|plans|shapes|ranges|scratch_of|flags_of|range_of|scratch_bytes|"
    rf"flag_bytes|this_library|pick_plan)|hccc_size_of_(?:{_TYPES})|"
    r"HCCC_(?:ABI|BAD_ARGUMENT|NOT_BUILT|BUILT|ENTRY|PICK)|@(?:_\d+)?(?:_(?:cpu|cuda|hip))?"
    rf"(?:_library|_(?:{_TYPES})_(?:_OPS_))?|@(?:_\d+)?_shapes?|@_(?:ranges|catalogue|"
    r"input_blocks|output_blocks|scratch_bytes|flag_bytes|plan_of)"
)
_LIBRARY_LINES = (
    r"#ifndef HCCC_GENERATED_@_H",
    r"#define HCCC_GENERATED_@_H",
    r'*#include "hccc/(hccc|library)\.h"',
    r'*#include ("@\.h"|"@_built\.h"|<string\.h>)',
    r"*#ifdef __cplusplus",
    r"#ifndef HCCC_BUILT",
    r"*#endif",
    r'*extern "C" \{',
    r"*static const hccc_shape (@|@_\d+)_shape = \{",
    r"static const hccc_shape \*const @_shapes\[\] = \{",
    r"static const hccc_shape\* const hccc_shapes\[\] = \{&@_shape\};",
    r"static const hccc_range (@|hccc)_ranges\[\] = \{",
    r"static const hccc_catalogue (@_catalogue|hccc_plans) = \{(\d+, \d+, hccc_shapes, "
    r"hccc_ranges\};)?",
    r"static inline int @_(?P<once>input|output)_blocks\(int rank\) \{",
    r"static inline int @_plan_of\(const hccc_call\* call, int size\) \{",
    r"static inline long long @_scratch_bytes\(const hccc_call\* call, int size\) \{",
    r"static inline long long @_flag_bytes\(void\) \{",
    r"static bool hccc_known\(const char\* dtype, const char\* op\) \{",
    r"static const char\* hccc_same_width\(const char\* dtype\) \{",
    r"  static const char\* const (?P<once>dtypes\[\]|ops\[\]|names\[\]\[2\]) = \{(?P<rest>.*)",
    r"static const int hccc_domain\[\] = \{",
    r"static int hccc_launch_it\(const hccc_comm\* comm, const hccc_call\* call, "
    r"const char\* dtype,",
    r"  static const hccc_library library = \{",
    r"__attribute__\(\(weak\)\) const hccc_library\* hccc_this_library\(void\) \{",
    r"typedef int hccc_entry\(const hccc_comm\*, const hccc_call\*(, STREAM)?\);",
    r"#define HCCC_PICK\(d, o\) \\",
    r"*  hccc_entry @_\d+_TARGET_##d##_##o; \\",
    r"  int @_TARGET_##d##_##o\(const hccc_comm\* comm, const hccc_call\* call"
    r"(, STREAM stream)?\) \{ \\",
    r"    static hccc_entry\* const plans\[\] = \{ \\",
    r"*        @_\d+_TARGET_##d##_##o, \\",
    r"    \}; \\",
    r"    hccc_picked picked; \\",
    r"    const int bad = hccc_pick_plan\(&@_catalogue, comm, call, hccc_size_of_##d, "
    r"&picked\); \\",
    r"    return bad \? bad : plans\[picked\.plan\]\(&picked\.comm, &picked\.call(, stream)?\); \\",
    r"  \}",
    r"#undef HCCC_PICK",
    r"#define HCCC_ENTRY\(d, o\) *\\",
    r"  if \(!strcmp\(dtype, #d\) && !strcmp\(op, #o\)\) \\",
    r"    return @_TARGET_##d##_##o\(comm, call(, stream)?\);",
)


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """What a file may hold: words, and whole lines with whether each may be there again."""

    words: re.Pattern[str]
    lines: tuple[tuple[re.Pattern[str], bool], ...]
    kernels: bool


def check(
    name: str, body: bytes, own: str, target: Target, reductions: tuple[str, ...] = ()
) -> None:
    """Checks a file: kernels, the C header or the dispatcher of the plan or library called `own`.

    target: that it is compiled for; reductions: the plan's, of one's own. O(characters).

    Raises:
        UserError: E439 it has a word or a line that hccc does not write, which the message quotes.
    """
    kernels = name == f"{own}{target.suffix}"
    known = _vocabulary(own, target, tuple(map(named, reductions)), kernels=kernels)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise fail("E439", f"{name}: is no text", help=_HELP) from None
    lines = text.split("\n")
    for number in _wrong(known, text, lines):
        quoted = ascii(lines[number].strip()[:_SHOWN])[1:-1]
        message = f"{name}:{number + 1}: hccc does not write `{quoted}`"
        raise fail("E439", message, help=_HELP)


@lru_cache(maxsize=128)
def _vocabulary(own: str, target: Target, ops: tuple[str, ...], *, kernels: bool) -> _Vocabulary:
    stream = re.escape(target.stream)

    def compiled(pattern: str) -> re.Pattern[str]:
        given = pattern.replace("@", own).replace("STREAM", stream)
        given = given.replace("_OPS_", "|".join((*OPS, *ops)))
        return re.compile(given.replace("TARGET", target.name), re.ASCII)

    lines = _KERNEL_LINES if kernels else _LIBRARY_LINES
    return _Vocabulary(
        compiled(_KERNEL_WORDS if kernels else _LIBRARY_WORDS),
        tuple((compiled(line.removeprefix("*")), line.startswith("*")) for line in lines),
        kernels,
    )


def _wrong(known: _Vocabulary, text: str, lines: Sequence[str]) -> Iterator[int]:
    """Yields the indices of lines that hccc does not write."""
    yield from (k for k, line in enumerate(lines) if not line.isprintable())
    for found in _COMMENT.finditer(text):
        if not found[1] and _CONTINUED.search(found[0]):  # the next line would be part of it
            yield text.count("\n", 0, found.start())
    plain = _COMMENT.sub(lambda m: m[1] or " " + "\n" * m[0].count("\n"), text).split("\n")
    seen: set[str] = set()
    first = False  # whether the first header was there
    for k, line in enumerate(map(str.rstrip, plain)):
        if _ODD.search(line):
            yield k
        if known.kernels:
            line = _CAST.sub("", line)
        if _has_words(known, line):
            continue
        match, again = _matching(known, line)
        if match is None or _has_new(match) or not _has_words(known, _part(match, "rest")):
            yield k
            continue
        key = _part(match, "once") or line
        if key in seen and not again:
            yield k
        seen.add(key)
        if first and line.startswith("#define") and _part(match, "once"):
            yield k
        first = first or line == _FIRST_HEADER


def _matching(known: _Vocabulary, line: str) -> tuple[re.Match[str] | None, bool]:
    """Finds the line that a text's line is; also whether it may be there again."""
    for pattern, again in known.lines:
        if match := pattern.fullmatch(line):
            return match, again
    return None, False


def _part(match: re.Match[str], name: str) -> str:
    return (match.groupdict().get(name) or "").strip()


def _has_words(known: _Vocabulary, line: str) -> bool:
    """Tells whether every token is a word of the vocabulary, a number, a string or punctuation."""
    return all(
        token in _PUNCTUATION
        or known.words.fullmatch(token)
        or _NUMBER.fullmatch(token)
        or (not known.kernels and _STRING.fullmatch(token))
        for token in _TOKEN.findall(line)
    )


def _has_new(match: re.Match[str]) -> bool:
    """Tells whether what a line declares is read in it; `b.rank` is no `rank`."""
    new = _part(match, "new")
    return bool(new and re.search(rf"(?<![\w.]){new}\b", _part(match, "rest"), re.ASCII))
