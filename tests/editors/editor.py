"""An editor for tests: a client of the protocol, whose server is `hccc lsp`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

T = TypeVar("T")
LONGEST = 120  # s that an answer may take


@dataclass
class Editor:
    """An editor with some open texts. told: by the URI of a text, what was said of it, in order."""

    client: LanguageClient
    runner: asyncio.Runner
    told: dict[str, asyncio.Queue[types.PublishDiagnosticsParams]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)

    def run(self, answer: Coroutine[Any, Any, T]) -> T:
        """Waits for an answer."""
        return self.runner.run(asyncio.wait_for(answer, LONGEST))

    def queue(self, uri: str) -> asyncio.Queue[types.PublishDiagnosticsParams]:
        """Returns what is said of a text and was not read yet."""
        return self.told.setdefault(uri, asyncio.Queue())

    def open(self, uri: str, text: str) -> None:
        """Opens a text."""

        async def opening() -> None:
            document = types.TextDocumentItem(uri, "rccl", 1, text)
            self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))

        self.versions[uri] = 1
        self.run(opening())

    def type(self, uri: str, *texts: str) -> int:
        """Makes a text others, one right after the other; returns the version of the last."""

        async def typing() -> None:
            for text in texts:
                self.versions[uri] += 1
                named = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
                change = types.TextDocumentContentChangeWholeDocument(text)
                about = types.DidChangeTextDocumentParams(named, [change])
                self.client.text_document_did_change(about)

        self.run(typing())
        return self.versions[uri]

    def problems(self, uri: str, version: int = 1) -> Sequence[types.Diagnostic]:
        """Waits for the next that is said of a version of a text, and of no earlier one."""

        async def waiting() -> Sequence[types.Diagnostic]:
            said = await self.queue(uri).get()
            assert said.version == version
            return said.diagnostics

        return self.run(waiting())

    def at(self, uri: str, line: int, column: int) -> dict[str, Any]:
        """Returns a place, as questions have it."""
        return {
            "text_document": types.TextDocumentIdentifier(uri),
            "position": types.Position(line, column),
        }


@contextmanager
def editing(settings: object = None) -> Iterator[Editor]:
    """Starts a server, and ends it."""
    client = LanguageClient("a test", "1")
    with asyncio.Runner() as runner:
        editor = Editor(client, runner)

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
        def published(said: types.PublishDiagnosticsParams) -> None:
            editor.queue(said.uri).put_nowait(said)

        async def starting() -> None:
            await client.start_io(sys.executable, "-m", "hccc", "lsp", env=dict(os.environ))
            about = types.InitializeParams(
                capabilities=types.ClientCapabilities(), initialization_options=settings
            )
            await client.initialize_async(about)
            client.initialized(types.InitializedParams())

        async def ending() -> None:
            await client.shutdown_async(None)
            client.exit(None)
            await client.stop()  # type: ignore[no-untyped-call]

        editor.run(starting())
        yield editor
        editor.run(ending())
