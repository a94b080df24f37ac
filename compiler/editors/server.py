"""server: the Language Server Protocol over stdin and stdout (pygls): what editors ask, and when.

A changed text is read after a pause, and what is wrong is told at once; only then is it proved,
within a bound of time. What is asked of a text that has changed since is ended. Reading and
proofs have a worker each, so that a mistake is never told late because of a proof.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from hccc.base.sizes import size_of
from hccc.base.version import __version__
from hccc.editors.completion import completions
from hccc.editors.diagnosis import Found, Place
from hccc.editors.engine import WorkerFailed, WorkerProcess
from hccc.editors.outline import Symbol, definition, outline
from hccc.editors.subject import Text
from hccc.editors.words import said, word_at

PAUSE = 0.15  # s between a change and reading the text
MOST = 1 << 22  # characters of a text
SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "information": types.DiagnosticSeverity.Information,
}
SYMBOLS = {
    Symbol.HEADER: types.SymbolKind.Class,
    Symbol.FUNCTION: types.SymbolKind.Function,
    Symbol.VARIABLE: types.SymbolKind.Variable,
    Symbol.DEFINE: types.SymbolKind.Property,
}
OFFERS = {
    "key": types.CompletionItemKind.Property,
    "value": types.CompletionItemKind.Value,
    "function": types.CompletionItemKind.Function,
    "variable": types.CompletionItemKind.Variable,
    "keyword": types.CompletionItemKind.Keyword,
}


@dataclass(frozen=True, slots=True)
class EditorSettings:
    """What an editor sets under `hccc`: the cluster of texts that name none, the bytes of simulated
    calls, the most seconds of a proof, and of a simulation."""

    cluster: str = ""
    size: str = "64M"
    seconds: float = 10.0

    @staticmethod
    def of(given: object) -> EditorSettings:
        """Returns settings as a client sends them; what is none of them, or wrong, is left out."""
        known, found = EditorSettings(), dict[str, Any]()
        section = given.get("hccc", given) if isinstance(given, dict) else {}
        for name, value in section.items() if isinstance(section, dict) else ():
            if name == "seconds" and isinstance(value, int | float) and value > 0:
                found[name] = float(value)
            elif name == "cluster" and isinstance(value, str):
                found[name] = value
            elif name == "size" and isinstance(value, str):
                try:
                    size_of(value)
                except ValueError:
                    continue
                found[name] = value
        return replace(known, **found)


class Server(LanguageServer):
    """The server, its settings, and what is being done for each open text."""

    def __init__(self) -> None:
        super().__init__("hccc", __version__)
        self.settings = EditorSettings()
        self.reading, self.proving = WorkerProcess(), WorkerProcess()
        self._checks: dict[str, asyncio.Task[None]] = {}

    def text(self, document: TextDocument) -> Text:
        """Returns the text of a document with what is set for it."""
        name = uris.to_fs_path(document.uri) or document.uri
        return Text(document.source, name, self.settings.cluster, self.settings.size)

    def check(self, uri: str, pause: float = PAUSE) -> None:
        """Checks a text after a pause, instead of what was being checked of it."""
        if before := self._checks.pop(uri, None):
            before.cancel()
        self._checks[uri] = asyncio.ensure_future(self._check(uri, pause))

    def forget(self, uri: str) -> None:
        """Ends the check of a text that was closed, and its problems."""
        if before := self._checks.pop(uri, None):
            before.cancel()
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    async def _check(self, uri: str, pause: float) -> None:
        await asyncio.sleep(pause)
        document = self.workspace.get_text_document(uri)
        text, version = self.text(document), document.version
        if text.kind is None or len(text.text) > MOST:
            return
        try:
            found = await self.reading.ask("mistakes", text)
            self._publish(document, version, found)
            if any(one["severity"] == "error" for one in found):
                return
            try:
                more = await self.proving.ask("proofs", text, seconds=self.settings.seconds)
            except TimeoutError:
                more = await self.reading.ask("unproved", text, self.settings.seconds)
            self._publish(document, version, [*found, *(more or [])])
        except WorkerFailed as error:
            self._failed(error)

    def _publish(self, document: TextDocument, version: int | None, found: list[Found]) -> None:
        problems = [self._diagnostic(document, one) for one in found]
        about = types.PublishDiagnosticsParams(document.uri, problems, version)
        self.text_document_publish_diagnostics(about)

    def _diagnostic(self, document: TextDocument, found: Found) -> types.Diagnostic:
        notes = [
            types.DiagnosticRelatedInformation(
                types.Location(document.uri, self.range(document, note["place"] or found["place"])),
                note["text"],
            )
            for note in found["notes"]
        ]
        return types.Diagnostic(
            self.range(document, found["place"]),
            found["message"],
            SEVERITIES[found["severity"]],
            found["code"] or None,
            source="hccc",
            related_information=notes or None,
        )

    def range(self, document: TextDocument, place: Place) -> types.Range:
        """Returns a place as the client counts columns."""
        line = place["line"] - 1
        found = types.Range(
            types.Position(line, place["column"] - 1),
            types.Position(line, max(place["end"], place["column"] + 1) - 1),
        )
        codec = self.workspace.position_codec
        return codec.range_to_client_units(document.lines or [""], found)

    def line(self, document: TextDocument, number: int) -> types.Location:
        """Returns line `number`, from 1, without its indentation."""
        text = document.lines[number - 1].rstrip("\r\n") if number <= len(document.lines) else ""
        column = len(text) - len(text.lstrip()) + 1
        place: Place = {"line": number, "column": column, "end": len(text) + 1}
        return types.Location(document.uri, self.range(document, place))

    def at(
        self, document: TextDocument, position: types.Position
    ) -> tuple[types.Position, tuple[str, int] | None]:
        """Returns a position in characters, and the word there with its column."""
        lines = document.lines
        if position.line >= len(lines):
            return position, None
        found = self.workspace.position_codec.position_from_client_units(lines, position)
        word = word_at(lines[found.line].rstrip("\r\n"), found.character)
        return types.Position(found.line, found.character), word

    async def moved(self, call: str, text: Text, line: int) -> list[int]:
        """Asks for the lines of transfers that have to do with those of a line, from 0."""
        try:
            found = await self.proving.ask(call, text, line + 1, seconds=self.settings.seconds)
        except (TimeoutError, WorkerFailed) as error:
            self._failed(error)
            return []
        return found or []

    async def told(self, text: Text, line: int) -> str | None:
        """Asks what the transfers of a line do, with their times unless these take too long."""
        found: str | None = None
        for timed in (True, False):
            try:
                given = line + 1, timed
                found = await self.proving.ask("hover", text, *given, seconds=self.settings.seconds)
            except TimeoutError:
                continue
            except WorkerFailed as error:
                self._failed(error)
            break
        return found

    def _failed(self, error: Exception) -> None:
        message = types.LogMessageParams(types.MessageType.Error, f"hccc: {error}")
        self.window_log_message(message)


def server() -> Server:
    """Makes the server with all that it answers."""
    made = Server()
    _documents(made)
    _questions(made)
    return made


def _documents(made: Server) -> None:
    @made.feature(types.INITIALIZE)
    def begun(ls: Server, params: types.InitializeParams) -> None:
        ls.settings = EditorSettings.of(params.initialization_options)

    @made.feature(types.INITIALIZED)
    async def ready(ls: Server, _: types.InitializedParams) -> None:
        await ls.reading.start()
        await ls.proving.start()

    @made.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configured(ls: Server, params: types.DidChangeConfigurationParams) -> None:
        ls.settings = EditorSettings.of(params.settings)
        for uri in ls.workspace.text_documents:
            ls.check(uri, 0)

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
        ls.check(params.text_document.uri, 0)

    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
        ls.check(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
        ls.forget(params.text_document.uri)

    @made.feature(types.SHUTDOWN)
    async def ended(ls: Server, _: None) -> None:
        await ls.reading.close()
        await ls.proving.close()


def _questions(made: Server) -> None:
    @made.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(ls: Server, params: types.HoverParams) -> types.Hover | None:
        document = ls.workspace.get_text_document(params.text_document.uri)
        text = ls.text(document)
        position, word = ls.at(document, params.position)
        if text.kind is None:
            return None
        says = said(text.kind, word[0]) if word else None
        moves = None if text.kind == "cluster" else await ls.told(text, position.line)
        parts = [part for part in (says, moves) if part]
        return types.Hover(_markdown("\n\n".join(parts))) if parts else None

    @made.feature(types.TEXT_DOCUMENT_DEFINITION)
    async def defined(ls: Server, params: types.DefinitionParams) -> list[types.Location]:
        document = ls.workspace.get_text_document(params.text_document.uri)
        text = ls.text(document)
        position, word = ls.at(document, params.position)
        if text.kind is None:
            return []
        names = outline(text.text, text.kind)
        if word and (found := definition(names, word[0], position.line)):
            end = found.column + len(found.name) + 1
            place: Place = {"line": found.line + 1, "column": found.column + 1, "end": end}
            return [types.Location(document.uri, ls.range(document, place))]
        lines = await ls.moved("next_uses", text, position.line)
        return [ls.line(document, line) for line in lines]

    @made.feature(types.TEXT_DOCUMENT_REFERENCES)
    async def uses(ls: Server, params: types.ReferenceParams) -> list[types.Location]:
        document = ls.workspace.get_text_document(params.text_document.uri)
        position, _ = ls.at(document, params.position)
        lines = await ls.moved("same_chunks", ls.text(document), position.line)
        return [ls.line(document, line) for line in lines]

    options = types.CompletionOptions(trigger_characters=["(", ",", "=", "{", " ", '"'])

    @made.feature(types.TEXT_DOCUMENT_COMPLETION, options)
    def completed(ls: Server, params: types.CompletionParams) -> list[types.CompletionItem]:
        document = ls.workspace.get_text_document(params.text_document.uri)
        text = ls.text(document)
        position, _ = ls.at(document, params.position)
        if text.kind is None:
            return []
        return [
            types.CompletionItem(
                offer.label,
                kind=OFFERS[offer.kind],
                documentation=_markdown(offer.says) if offer.says else None,
                insert_text=offer.insert or None,
            )
            for offer in completions(text.text, text.kind, position.line, position.character)
        ]

    @made.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(ls: Server, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        document = ls.workspace.get_text_document(params.text_document.uri)
        text = ls.text(document)
        shown = (Symbol.HEADER, Symbol.FUNCTION, Symbol.DEFINE)
        names = outline(text.text, text.kind) if text.kind else []
        found = []
        for one in names:
            if one.symbol in shown:
                own = ls.line(document, one.line + 1).range
                last = ls.line(document, one.last + 1).range
                whole = types.Range(own.start, last.end)
                found.append(types.DocumentSymbol(one.name, SYMBOLS[one.symbol], whole, own))
        return found


def _markdown(text: str) -> types.MarkupContent:
    return types.MarkupContent(types.MarkupKind.Markdown, text)


def serve() -> None:
    """Serves an editor on stdin and stdout until it has enough."""
    # pygls closes what it is given; stdout is still flushed when the command ends.
    with open(0, "rb", closefd=False) as asked, open(1, "wb", closefd=False) as answers:
        server().start_io(asked, answers)
