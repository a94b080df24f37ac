"""Inputs for the parsers: made from a grammar, or by damaging right inputs.

Everything is drawn from one `random.Random`, so a seed and a number name an input.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

Text = bytes

NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "-1",
    "71",
    "72",
    "127",
    "255",
    "1024",
    "32767",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "00",
    "1e3",
    "0x10",
    "1_0",
    "١",
    "99999999999999999999999999",
)
RCCL_WORDS = (
    "def",
    "ResCCLAlgo",
    "transfer",
    "for",
    "in",
    "range",
    "if",
    "elif",
    "else",
    "and",
    "or",
    "not",
    "min",
    "max",
    "recv",
    "rrc",
    "nRanks",
    "nChannels",
    "nWarps",
    "AlgoName",
    "OpType",
    "GPUPerNode",
    "NICPerNode",
    "nChunks",
    "Root",
    '"Allreduce"',
    '"Alltoall"',
    "(",
    ")",
    ",",
    "[",
    "]",
    "abs",
    "len",
    "+=",
    "//=",
    "srcRank",
    "dstRank",
    "step",
    "chunkId",
    "op",
    ":",
    "=",
    "==",
    "!=",
    "<",
    "<=",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "^",
    "&",
    "|",
    "<<",
    ">>",
    "\n",
    "\n    ",
    "\n        ",
    "\t",
    "#",
    '"',
    "'",
    "\\",
    ";",
    ".",
    "\r",
    "\r\n",
    "\x00",
    "\ufeff",
    "\x0c",
    "\u2028",
    "é",
    "def ",
    "True",
    "None",
    "lambda",
    "while",
    "return",
    "\ndef f(x): return x\n",
    "f(",
    "g(2, ",
)
XML_WORDS = (
    "<",
    ">",
    "/>",
    "</",
    "<algo",
    "<gpu",
    "<tb",
    "<step",
    "<copy",
    "</algo>",
    "</gpu>",
    "</tb>",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?xml?>",
    "<!DOCTYPE a [",
    "&amp;",
    "&#0;",
    "&#x41;",
    "&e;",
    '"',
    "'",
    "=",
    ' name="x"',
    ' cnt="',
    ' depid="',
    ' deps="',
    ' hasdep="1"',
    ' type="',
    "nop",
    "rrcs",
    "rcs",
    "rrs",
    "rrc",
    "cpy",
    "re",
    "s",
    "r",
    "i",
    "o",
    "allreduce",
    "custom",
    "alltoall",
    "\t",
    "\n",
    "\x00",
    "\ufeff",
    "é",
)
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


def damaged(rng: Random, seeds: list[Text], words: tuple[str, ...]) -> Text:
    """Makes one to eight changes to a seed, by bytes or by tokens."""
    data = rng.choice(seeds)
    for _ in range(1 + int(rng.expovariate(0.5))):
        change = rng.choice(CHANGES)
        data = change(rng, data, seeds, words)
    return data


def _cut(rng: Random, data: Text) -> tuple[int, int]:
    a = rng.randrange(len(data) + 1)
    return a, min(len(data), a + int(rng.expovariate(1 / 20)))


def _flip(rng: Random, data: Text, seeds: list[Text], words: tuple[str, ...]) -> Text:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _insert(rng: Random, data: Text, seeds: list[Text], words: tuple[str, ...]) -> Text:
    at, _ = _cut(rng, data)
    return data[:at] + rng.randbytes(rng.randrange(1, 5)) + data[at:]


def _delete(rng: Random, data: Text, seeds: list[Text], words: tuple[str, ...]) -> Text:
    a, b = _cut(rng, data)
    return data[:a] + data[b:]


def _repeat(rng: Random, data: Text, seeds: list[Text], words: tuple[str, ...]) -> Text:
    a, b = _cut(rng, data)
    return data[:a] + data[a:b] * rng.choice((2, 3, 10, 1000)) + data[b:]


def _splice(rng: Random, data: Text, seeds: list[Text], words: tuple[str, ...]) -> Text:
    other = rng.choice(seeds)
    return data[: _cut(rng, data)[0]] + other[_cut(rng, other)[0] :]


def _truncate(rng: Random, data: Text, seeds: list[Text], words: tuple[str, ...]) -> Text:
    return data[: _cut(rng, data)[0]]


def _tokens(rng: Random, data: Text, seeds: list[Text], words: tuple[str, ...]) -> Text:
    """Replaces, drops, doubles, swaps or joins one token."""
    tokens = _TOKEN.findall(data.decode("utf-8", "replace"))
    if not tokens:
        return data
    at = rng.randrange(len(tokens))
    match rng.randrange(5):
        case 0:
            numbers = tokens[at].isdigit() and rng.random() < 0.9
            tokens[at] = rng.choice(NUMBERS if numbers else words)
        case 1:
            del tokens[at]
        case 2:
            tokens.insert(at, tokens[at])
        case 3:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case _:
            tokens.insert(at, rng.choice(words + NUMBERS))
    return "".join(tokens).encode("utf-8", "replace")


CHANGES: tuple[Callable[[Random, Text, list[Text], tuple[str, ...]], Text], ...] = (
    _flip,
    _insert,
    _delete,
    _repeat,
    _splice,
    _truncate,
    *[_tokens] * 6,
)


# the transfer language
NAMES = ("nRanks", "nChunks", "Root", "a", "b", "r", "s", "x1", "_y", "missing")
LISTS = ("ring", "rings", "[0, 2, 1, 3]", "[]", "[a, b + 1]", "[[0, 1], [2]]", "rings[1]")
BINARY = ("+", "-", "*", "//", "/", "%", "**", "^", "&", "|", "<<", ">>")
COMPARE = ("<", "<=", ">", ">=", "==", "!=")
COLLECTIVES = (
    "Allreduce",
    "Allgather",
    "Reducescatter",
    "Broadcast",
    "Reduce",
    "Gather",
    "Scatter",
    "Alltoall",
    "SendRecv",
    "Bogus",
)


def program(rng: Random) -> Text:
    """Draws a program of the transfer language, mostly well formed."""
    n = rng.choice((2, 3, 4, 8, 16, 64))
    pairs = [f"nRanks={n}", f'OpType="{rng.choice(COLLECTIVES)}"', 'AlgoName="fuzz"']
    for key in ("nChannels", "nWarps", "GPUPerNode", "NICPerNode", "nChunks", "Root"):
        if rng.random() < 0.3:
            value = rng.choice((1, 2, n)) if rng.random() < 0.8 else rng.choice(NUMBERS)
            pairs.append(f"{key}={value}")
    rng.shuffle(pairs)
    lines = []
    if rng.random() < 0.3:
        lines += ["ring = [0, 2, 1, 3]", "rings = [ring, [1], []]", f"a = {_expression(rng, 2)}"]
    if rng.random() < 0.3:
        lines.append(f"def f({rng.choice(NAMES[3:])}): return {_expression(rng, 2)}")
        lines += [f"def g(i, {rng.choice(('', 'j'))}):", f"    i = f({_expression(rng, 1)})"]
        lines.append(f"    return {rng.choice((_expression(rng, 2), rng.choice(LISTS)))}")
    lines.append(f"{rng.choice(('', 'def '))}ResCCLAlgo({', '.join(pairs)}):")
    for _ in range(rng.randrange(1, 6)):
        lines += _statement(rng, 1, 3)
    return "\n".join([*lines, ""]).encode()


def _statement(rng: Random, depth: int, budget: int) -> list[str]:
    pad = "    " * depth
    kind = rng.random()
    if budget and kind < 0.35:
        bounds = ", ".join(_expression(rng, 1) for _ in range(rng.choice((1, 1, 2, 3))))
        over = rng.choice(LISTS) if rng.random() < 0.2 else f"range({bounds})"
        return [f"{pad}for {rng.choice(NAMES[3:])} in {over}:", *_block(rng, depth + 1, budget - 1)]
    if budget and kind < 0.5:
        lines = [f"{pad}if {_condition(rng)}:", *_block(rng, depth + 1, budget - 1)]
        if rng.random() < 0.3:
            lines += [f"{pad}elif {_condition(rng)}:", *_block(rng, depth + 1, budget - 1)]
        if rng.random() < 0.3:
            lines += [f"{pad}else:", *_block(rng, depth + 1, budget - 1)]
        return lines
    if kind < 0.55:
        name, op = rng.choice(NAMES[3:]), rng.choice(BINARY)
        both = f"{name}, {rng.choice(LISTS[:2])} = {_expression(rng, 1)}, {rng.choice(LISTS)}"
        augmented = f"{name} {op}= {_expression(rng, 2)}"
        return [pad + rng.choice((augmented, both, f"ring = {rng.choice(LISTS)}"))]
    if kind < 0.65:
        return [f"{pad}{rng.choice(NAMES[3:])} = {_expression(rng, 3)}"]
    if kind < 0.7:
        names = ("srcRank", "dstRank", "step", "chunkId")
        pairs = [f"{name}={_expression(rng, 1)}" for name in names]
        return [f"{pad}transfer({', '.join(rng.sample([*pairs, 'op=rrc'], 5))})"]
    ends = ", ".join(_expression(rng, 2) for _ in range(4))
    note = rng.choice(("", "  # note"))
    return [f"{pad}transfer({ends}, {rng.choice(('recv', 'rrc'))}){note}"]


def _block(rng: Random, depth: int, budget: int) -> list[str]:
    lines: list[str] = []
    for _ in range(rng.randrange(1, 4)):
        lines += _statement(rng, depth, budget)
    return lines


def _condition(rng: Random) -> str:
    test = f"{_expression(rng, 1)} {rng.choice(COMPARE)} {_expression(rng, 1)}"
    if rng.random() < 0.3:
        test = f"{test} {rng.choice(('and', 'or'))} not ({test})"
    return test


def _expression(rng: Random, depth: int) -> str:
    if not depth or rng.random() < 0.4:
        if rng.random() < 0.6:
            return rng.choice(NAMES)
        return rng.choice(NUMBERS) if rng.random() < 0.1 else str(rng.randrange(9))
    left, right = _expression(rng, depth - 1), _expression(rng, depth - 1)
    match rng.randrange(10):
        case 6:
            return f"{rng.choice(LISTS)}[{left}]"
        case 7:
            return f"({left} if {right} else {_expression(rng, depth - 1)})"
        case 8:
            return f"{rng.choice(('abs', 'len', 'abs', 'len', 'f'))}({left})"
        case 9:
            return f"len({rng.choice(LISTS)})"
        case 0:
            return f"({left} {rng.choice(BINARY)} {right}) % nRanks"
        case 1:
            return f"{rng.choice(('min', 'max'))}({left}, {right})"
        case 2:
            return f"-{left}"
        case _:
            return f"({left} {rng.choice(BINARY)} {right})"


# MSCCL XML
KINDS = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
COLLS = (
    "allreduce",
    "allgather",
    "reduce",
    "broadcast",
    "alltoall",
    "reduce_scatter",
    "reducescatter",
    "gather",
    "scatter",
    "custom",
)


def schedule(rng: Random) -> Text:
    """Draws an MSCCL XML file: connections whose ends match, most of the time."""
    n, chunks = rng.choice((2, 2, 3, 4)), rng.choice((1, 2, 4, 6, 12))
    parts = [
        f'<algo name="f" proto="{rng.choice(("Simple", "LL", "LL128"))}" nchannels="2" '
        f'nchunksperloop="{chunks}" ngpus="{n}" coll="{rng.choice(COLLS)}" '
        f'inplace="{rng.randrange(2)}"'
        + rng.choice(("", f' outofplace="{rng.randrange(2)}"'))
        + ">"
    ]
    turns = [rng.choice((1, 1, 1, 2, chunks)) for _ in range(rng.randrange(1, 5))]
    for r in range(n):
        parts.append(f'<gpu id="{r}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{chunks}">')
        shift = rng.randrange(1, n) if rng.random() < 0.05 else 1
        ends = [((r + shift) % n, (r - 1) % n)] + ([(-1, -1)] if rng.random() < 0.5 else [])
        for b, (send, recv) in enumerate(ends):
            parts.append(f'<tb id="{b}" send="{send}" recv="{recv}" chan="{b % 2}">')
            parts += _steps(rng, turns, chunks, local=send < 0, blocks=len(ends))
            parts.append("</tb>")
        parts.append("</gpu>")
    return rng.choice(("", "\n")).join([*parts, "</algo>"]).encode()


def _steps(rng: Random, turns: list[int], chunks: int, *, local: bool, blocks: int) -> list[str]:
    kinds: list[tuple[str, int]] = []
    for count in turns:
        if local:
            kinds.append((rng.choice(("cpy", "re", "nop")), 0))
        elif rng.random() < 0.5:
            kinds += [("s", count), (rng.choice(("r", "rrc")), count)]
        else:
            kinds += [("s", count), ("r", count)]
    if rng.random() < 0.1:
        kinds.append((rng.choice(KINDS), 1))
    lines = []
    for s, (kind, count) in enumerate(kinds):
        count = count or rng.choice((1, 1, 2))
        a, b = (rng.randrange(max(1, chunks - count + 1)) for _ in range(2))
        wait = rng.random() < 0.2
        dep = (rng.randrange(blocks), rng.randrange(len(kinds))) if wait else (-1, -1)
        lines.append(
            f'<step s="{s}" type="{kind}" srcbuf="{rng.choice("iios")}" srcoff="{a}" '
            f'dstbuf="{rng.choice("iios")}" dstoff="{b}" cnt="{0 if kind == "nop" else count}" '
            f'depid="{dep[0]}" deps="{dep[1]}" hasdep="{rng.randrange(2)}"/>'
        )
    return lines
