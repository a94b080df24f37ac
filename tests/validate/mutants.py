"""Texts of kernels with one token changed, each as an emitter's mistake or a slip would."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|[A-Za-z_]\w*|\d+|##|\+\+|--|&&|\|\||[<>=!]=|\S', re.DOTALL
)
NUMBER = re.compile(r"\d+")
NAME = re.compile(r"[A-Za-z_]\w*")
OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "%",
    "%": "/",
    "<": "<=",
    ">": ">=",
    "<=": "<",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "|": "&",
    "++": "--",
    "!": "",
}
ALIKE: Sequence[Sequence[str]] = (  # any of which may stand where another does
    ("hccc_input", "hccc_output", "hccc_scratch", "hccc_stage"),
    ("hccc_packets_in", "hccc_packets_out"),
    ("HCCC_COPY", "HCCC_REDUCE", "HCCC_FINAL", "HCCC_IF_IN_PLACE", "HCCC_IF_OUT_OF_PLACE"),
    ("HCCC_RANKS", "HCCC_SUB", "HCCC_CHANNELS", "HCCC_BLOCKS", "HCCC_FLAGS", "HCCC_SCRATCH"),
    ("HCCC_BAD_ARGUMENT", "HCCC_NOT_BUILT", "HCCC_OK"),
    ("in_place", "window"),
)
OF_ALL = {"rank", "node", "local", "tb", "i", "turn", "at"}
LOCAL = re.compile(r"(?:rank|node|local|tb|i|turn|at|[a-z]+\d+|hccc_table\d+|\w+_blocks\d+)\Z")


class TextMutant(NamedTuple):
    """A mutated text, and the change with its line."""

    text: str
    line: int
    what: str


def mutants(text: str) -> Iterator[TextMutant]:
    """Yields every mutant of a text: numbers, operators, names, arguments and statements. Comments
    and includes stay."""
    tokens = [
        t
        for t in TOKEN.finditer(text)
        if not t[0].startswith(("//", "/*", '"')) and not _included(text, t.start())
    ]
    for k, token in enumerate(tokens):
        for other in _others(token[0], text):
            yield _mutant(text, token.start(), token.end(), other)
        if token[0] == ",":
            yield _without_argument(text, tokens, k)
    for statement in re.finditer(r"^ *(?!//)[^\n]*;\n", text, re.MULTILINE):
        if "(b, " in statement[0] and statement[0].count("(") == statement[0].count(")"):
            yield _mutant(text, statement.start(), statement.end(), "")


def _included(text: str, at: int) -> bool:
    start = text.rfind("\n", 0, at) + 1
    return text.startswith(("#include", "#ifdef", "#endif", "#ifndef"), start)


def _others(token: str, text: str) -> Iterator[str]:
    if NUMBER.fullmatch(token):
        yield str(int(token) + 1)
        if int(token):
            yield str(int(token) - 1)
    elif token in OPERATORS:
        yield OPERATORS[token]
    elif NAME.fullmatch(token):
        for family in ALIKE:
            yield from (other for other in family if token in family and other != token)
        if LOCAL.match(token):
            names = sorted(OF_ALL | {n for n in NAME.findall(text) if LOCAL.match(n)})
            stem = token.rstrip("0123456789")
            near = [n for n in names if n.rstrip("0123456789") == stem] if stem != token else names
            yield from [n for n in near if n != token][:3]


def _without_argument(text: str, tokens: Sequence[re.Match[str]], comma: int) -> TextMutant:
    """Drops the text between a comma and the next comma of its depth, or the end."""
    depth, k = 0, comma + 1
    while k < len(tokens) and (depth or tokens[k][0] not in ",)}"):
        depth += (tokens[k][0] in "([{") - (tokens[k][0] in ")]}")
        k += 1
    return _mutant(text, tokens[comma].start(), tokens[min(k, len(tokens) - 1)].start(), "")


def _mutant(text: str, start: int, end: int, other: str) -> TextMutant:
    line = text.count("\n", 0, start) + 1
    return TextMutant(text[:start] + other + text[end:], line, f"{text[start:end]!r} -> {other!r}")
