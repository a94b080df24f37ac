"""completion: the words that may stand at a place of a text, read up to there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hccc.editors.outline import DefinedName, Symbol, outline
from hccc.editors.words import tables
from hccc.ir.collective import spellings
from hccc.ir.job import HOM_OPS
from hccc.lang.cluster import text as cluster_text
from hccc.lang.cluster.read_site import defined, keys_of
from hccc.lang.transfer import header, jobs, tokens
from hccc.lang.transfer.calls import PARAMETERS
from hccc.lang.transfer.preamble import JOB, PROGRAM
from hccc.shipped import find as shipped
from hccc.shipped.hardware.load import devices, networks

_CLUSTER_NAME = re.compile(r"#[ \t]*cluster:[ \t]*\S*$")
_OPEN = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Offer:
    """A word to complete. kind: `key`, `value`, `function`, `variable` or `keyword`; insert: what
    is written, if that is more than the word."""

    label: str
    kind: str
    says: str = ""
    insert: str = ""


@dataclass(slots=True)
class _Bracket:
    """An open bracket: the word before it, its commas so far, the names given as `name =`."""

    opens: str
    word: str
    commas: int = 0
    given: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Before:
    """What stands before a place: open brackets, the last tokens (of which the word that is being
    written is none), whether the place is in a string or comment."""

    brackets: list[_Bracket]
    tokens: list[str]
    inside: str

    @property
    def last(self) -> str:
        return self.tokens[-1] if self.tokens else ""


def completions(text: str, kind: str, line: int, column: int) -> list[Offer]:
    """Returns what may stand at a place (from 0), whatever of it is written already."""
    lines = text.split("\n")
    here = lines[line][:column] if line < len(lines) else ""
    if kind != "cluster" and _CLUSTER_NAME.search(here):
        return [Offer(name, "value") for name in shipped.names(shipped.ShippedKind.CLUSTER)]
    head = "\n".join([*lines[:line], here])
    if kind == "cluster":
        before = _read(head, cluster_text.TOKEN)
        return [] if before.inside else [*_of_cluster(before, outline(text, kind))]
    before = _read(head, tokens.TOKEN)
    if before.inside == "comment":
        return []
    return [*_of_program(before, outline(text, kind), line, job=kind == "job")]


def _read(head: str, token: re.Pattern[str]) -> _Before:
    """Reads the tokens of a text up to the word that is being written at its end."""
    begun = re.search(r"[A-Za-z_][A-Za-z0-9_]*$", head)
    end = begun.start() if begun else len(head)
    found, brackets, inside, at = list[str](), list[_Bracket](), "", 0
    while at < end:
        match = token.match(head, at)
        if match is None:
            inside = "string" if head[at] in "\"'" else ""
            at += 1
            if inside:
                at = head.find("\n", at) + 1 or end
                inside = "string" if at == end else ""
            continue
        word = match.group()
        at = match.end()
        if match.lastgroup == "skip":
            inside = "comment" if word.startswith("#") and match.end() >= end else ""
            continue
        if match.lastgroup == "newline" and brackets:
            continue
        _count(word, found, brackets)
        found.append(word)
    return _Before(brackets, found, inside)


def _count(word: str, before: list[str], brackets: list[_Bracket]) -> None:
    if word in _OPEN:
        brackets.append(_Bracket(word, before[-1] if before else ""))
    elif word in _OPEN.values():
        if brackets and _OPEN[brackets[-1].opens] == word:
            brackets.pop()
    elif brackets and word == ",":
        brackets[-1].commas += 1
    elif brackets and word in ("=", "=>") and before:
        brackets[-1].given.append(before[-1])


def _of_program(
    before: _Before, names: list[DefinedName], line: int, *, job: bool
) -> Iterator[Offer]:
    call = next((b for b in reversed(before.brackets) if b.opens == "("), None)
    word, last = call.word if call else "", before.last
    at_start = call is not None and call is before.brackets[-1] and last in ("(", ",")
    if word in (PROGRAM, JOB):
        assert call is not None
        if last == "=" and call.given[-1:] == ["OpType"]:
            yield from (_quoted(name, before) for name in spellings())
        elif before.inside:
            return
        elif at_start:
            keys, table = (jobs.KEYS, "job_header") if job else (header.KEYS, "header")
            left = [key for key in keys if key not in call.given]
            yield from (Offer(key, "key", tables()[table][key], f"{key}=") for key in left)
        else:
            yield from _values(names, line, job=job, body=False)
        return
    if before.inside:
        return
    if word == "transfer" and call is not None:
        if (at_start and call.commas == 4) or (last == "=" and call.given[-1:] == ["op"]):
            yield from _table("operations", "value")
            return
        if at_start:
            left = [one for one in PARAMETERS if one not in call.given]
            yield from (Offer(one, "key", "", f"{one}=") for one in left[call.commas :])
    elif word in jobs.FORMS and call is not None and at_start:
        if word == "homColl" and call.commas == 1:
            yield from (Offer(op.name.lower(), "value") for op in HOM_OPS)
            return
        left = [one for one in jobs.FORMS[word] if one not in call.given]
        yield from (Offer(one, "key", "", f"{one}=") for one in left[call.commas :])
    statement = not before.brackets and last in ("", "\n", "\r\n", ":")
    yield from _values(names, line, job=job, body=True, statement=statement)


def _quoted(name: str, before: _Before) -> Offer:
    return Offer(name, "value", "", name if before.inside == "string" else f'"{name}"')


def _values(
    names: list[DefinedName], line: int, *, job: bool, body: bool, statement: bool = False
) -> Iterator[Offer]:
    """Yields names in scope, functions, and keywords."""
    seen = dict[str, str]()
    for one in names:
        known = not one.within or one.line <= line <= one.last
        if one.symbol in (Symbol.VARIABLE, Symbol.FUNCTION) and one.line < line and known:
            seen[one.name] = one.symbol.value
    yield from (Offer(name, kind) for name, kind in seen.items())
    if body:
        variables = dict(tables()["job_header" if job else "header"])
        variables |= (
            dict(tables()["variables"]) | {"nRanks": tables()["header"]["nRanks"]} if job else {}
        )
        hidden = {"AlgoName", "OpType", "Demand", *seen}
        yield from (Offer(k, "variable", says) for k, says in variables.items() if k not in hidden)
    calls = [*_table("functions", "function"), *(_table("job_calls", "function") if job else ())]
    moves = {"transfer", *jobs.FORMS}
    for offer in calls:
        if (offer.label in moves) <= statement and not (job and offer.label == "transfer"):
            yield offer
    words = ("for", "if", "elif", "else", "def", "return") if statement else ("and", "or", "not")
    yield from (Offer(word, "keyword", tables()["keywords"][word]) for word in words)


def _table(name: str, kind: str) -> Iterator[Offer]:
    return (Offer(word, kind, says) for word, says in tables()[name].items())


def _of_cluster(before: _Before, names: list[DefinedName]) -> Iterator[Offer]:
    last = before.last
    defining = [b for a, b in zip(before.tokens, before.tokens[1:], strict=False) if a == "define"]
    if last == "define":
        nodes = [int(one.name[4:]) for one in names if re.fullmatch(r"node[0-9]+", one.name)]
        yield Offer(f"node{max(nodes, default=0) + 1}", "key", tables()["defines"]["node"])
        yield from (Offer(name, "key", tables()["defines"][name]) for name in defined())
        return
    if not defining:
        yield Offer("define", "keyword")
        return
    name, keys = defining[-1], keys_of()
    key = before.tokens[-2] if last in ("=", "=>") and before.tokens[1:] else ""
    if name in ("device", "network") and key in (name, "name"):
        yield from _called(devices() if name == "device" else networks())
    elif before.brackets and before.brackets[0].opens == "{" and name in keys:
        if len(before.brackets) == 1 and last in ("{", ","):
            left = [one for one in keys[name] if one not in before.brackets[0].given]
            yield from (Offer(one, "key", "", f"{one} => ") for one in left)
    elif not before.brackets:
        yield Offer("define", "keyword")
    else:
        yield from (Offer(one.name, "value") for one in names if one.name.startswith("node"))


def _called(names: Iterable[str]) -> Iterator[Offer]:
    for name in names:
        plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*", name)
        yield Offer(name, "value", "", name if plain else f'"{name}"')
