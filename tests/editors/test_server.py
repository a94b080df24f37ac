"""`hccc lsp`, asked by a client over stdin and stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="pip install 'hccc[lsp]'")

from lsprotocol import types

from tests.editors.editor import LONGEST, Editor, editing

EXAMPLES = Path(__file__).parents[2] / "examples"
RING = (EXAMPLES / "ring_allreduce.rccl").read_text()
PAIR = """\
# a pair, with an é and a 𝄞 before the code, which counts two in UTF-16
def ResCCLAlgo(nRanks=2, AlgoName="pair", OpType="Allreduce", nChunks=1):
    transfer(1, 0, 0, 0, rrc)
    transfer(0, 1, 1, 0, recv)
"""


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    with editing({"size": "1M", "seconds": 60}) as started:
        yield started


@pytest.mark.slow
def test_a_mistake_is_told_at_its_place_and_goes_as_it_is_mended(editor: Editor) -> None:
    uri = "file:///work/ring.rccl"
    editor.open(uri, RING)
    assert editor.problems(uri) == editor.problems(uri) == ()  # what is read; what is proved

    version = editor.type(uri, RING.replace("rrc)", "rrx)"))
    (problem,) = editor.problems(uri, version)
    assert (problem.code, problem.source) == ("E014", "hccc")
    assert problem.severity == types.DiagnosticSeverity.Error
    line = RING.split("\n")[problem.range.start.line]
    assert line[problem.range.start.character : problem.range.end.character] == "rrc"
    assert "help: recv copies the chunk" in problem.message

    version = editor.type(uri, RING)
    assert editor.problems(uri, version) == ()


@pytest.mark.slow
def test_a_proof_that_fails_is_told_with_its_notes(editor: Editor) -> None:
    uri = "file:///work/twice.rccl"
    wrong = PAIR + "    transfer(1, 0, 2, 0, rrc)\n"
    editor.open(uri, wrong)
    assert editor.problems(uri) == ()  # it can be read
    (problem,) = editor.problems(uri)
    assert problem.code == "E203" and problem.range.start.line == 4
    notes = problem.related_information or ()
    assert [note.location.range.start.line for note in notes]


def test_only_the_last_of_many_changes_is_checked(editor: Editor) -> None:
    """An old check is ended: nothing is told of an earlier text."""
    uri = "file:///work/fast.rccl"
    editor.open(uri, PAIR)
    assert editor.problems(uri) == editor.problems(uri) == ()
    texts = [PAIR.replace("transfer(1, 0", f"transfer({n}, 0") for n in range(2, 9)]
    version = editor.type(uri, *texts)
    (problem,) = editor.problems(uri, version)  # `problems` refuses any other version
    assert "8" in problem.message


def test_columns_are_those_of_the_client(editor: Editor) -> None:
    uri = "file:///work/wide.rccl"
    editor.open(uri, PAIR.replace('"pair"', '"𝄞"'))
    (problem,) = editor.problems(uri)
    line = PAIR.replace('"pair"', '"𝄞"').split("\n")[1].encode("utf-16-le")
    begin, end = problem.range.start.character, problem.range.end.character
    assert line[2 * begin : 2 * end].decode("utf-16-le") == '"𝄞"'


def test_hover_says_what_a_transfer_brings_and_when(editor: Editor) -> None:
    uri = "file:///work/hover.rccl"
    editor.open(uri, PAIR)
    assert editor.problems(uri) == editor.problems(uri) == ()
    found = editor.run(
        editor.client.text_document_hover_async(types.HoverParams(**editor.at(uri, 2, 20)))
    )
    assert found is not None and isinstance(found.contents, types.MarkupContent)
    says = found.contents.value
    assert "| 1 → 0 | 0 | 0 | the value of rank 1, added |" in says
    assert "on 2 H100 (assumed), 1 MiB" in says and "| line 4: step 1, 0 → 1 |" in says


def test_definition_is_the_next_use_of_a_chunk_or_the_name(editor: Editor) -> None:
    uri = "file:///work/ring2.rccl"
    editor.open(uri, RING)
    lines = RING.split("\n")
    (first, second) = [n for n, line in enumerate(lines) if "transfer(" in line]

    def lines_of(line: int, word: str) -> list[int]:
        at = types.DefinitionParams(**editor.at(uri, line, lines[line].index(word)))
        found = editor.run(editor.client.text_document_definition_async(at))
        assert isinstance(found, list | tuple)
        return [one.range.start.line for one in found if isinstance(one, types.Location)]

    assert lines_of(first, "transfer") == [first, second]
    assert lines_of(second, "transfer") == [second]
    assert lines_of(second, "s, (r") == [second - 1]  # the loop
    at = types.ReferenceParams(types.ReferenceContext(True), **editor.at(uri, first, 14))
    uses = editor.run(editor.client.text_document_references_async(at))
    assert [one.range.start.line for one in uses or ()] == [first, second]


def test_completion_and_symbols(editor: Editor) -> None:
    uri = "file:///work/site.cluster"
    editor.open(uri, "define device = H\ndefine node1 = 8\n")
    (problem,) = editor.problems(uri)
    assert problem.code == "E138"
    at = types.CompletionParams(**editor.at(uri, 0, 17))
    found = editor.run(editor.client.text_document_completion_async(at))
    assert isinstance(found, list | tuple)
    assert {"H100", "MI300X"} <= {one.label for one in found}
    about = types.DocumentSymbolParams(types.TextDocumentIdentifier(uri))
    symbols = editor.run(editor.client.text_document_document_symbol_async(about))
    assert [one.name for one in symbols or ()] == ["device", "node1"]


@pytest.mark.slow
def test_a_job_is_proved_on_the_cluster_that_its_text_names(editor: Editor) -> None:
    uri, job = (
        "file:///work/job.rccl",
        'HetCCLJob(OpType="Broadcast"):\n    homColl(0, reduce, part(0))\n',
    )
    editor.open(uri, job)
    (problem,) = editor.problems(uri)
    assert problem.severity == types.DiagnosticSeverity.Information and "syntax" in problem.message
    editor.problems(uri)
    version = editor.type(uri, f"# cluster: hetccl-snu\n{job}")
    (problem,) = editor.problems(uri, version)
    assert problem.severity == types.DiagnosticSeverity.Error and problem.range.start.line == 2
    version = editor.type(uri, f"# cluster: nowhere\n{job}")
    (problem,) = editor.problems(uri, version)
    assert (problem.code, problem.range.start.line) == ("E401", 0)


@pytest.mark.slow
def test_what_takes_too_long_to_prove_is_told() -> None:
    with editing({"seconds": 0.001}) as editor:
        uri = "file:///work/slow.rccl"
        editor.open(uri, RING)
        assert editor.problems(uri) == ()
        (problem,) = editor.problems(uri)
        assert problem.severity == types.DiagnosticSeverity.Information
        assert "`hccc check` proves it" in problem.message
        version = editor.type(uri, RING.replace("rrc)", "rrx)"))  # and reading goes on
        assert [one.code for one in editor.problems(uri, version)] == ["E014"]


@pytest.mark.slow
def test_an_editor_that_says_goodbye_ends_it_without_a_word() -> None:
    asked = (
        {"id": 1, "method": "initialize", "params": {"processId": None, "capabilities": {}}},
        {"id": 2, "method": "shutdown"},
        {"method": "exit"},
    )
    texts = [json.dumps({"jsonrpc": "2.0", **one}).encode() for one in asked]
    ended = subprocess.run(
        [sys.executable, "-m", "hccc", "lsp", "--stdio"],
        input=b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(one), one) for one in texts),
        capture_output=True,
        check=False,
        timeout=LONGEST,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"completionProvider" in ended.stdout and b'"id":2' in ended.stdout.replace(b" ", b"")
