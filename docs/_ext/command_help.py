"""The directive ``command-help``: every command of ``gaussmix`` with its help, as the terminal shows it."""

from __future__ import annotations

from collections.abc import Iterator

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from gaussmix.cli import main


def commands(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """A command and those below it, with their help."""
    word = name.rpartition(" ")[2]
    context = click.Context(command, parent=parent, info_name=word, terminal_width=96, **command.context_settings)
    yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from commands(found, f"{name} {below}", context)


class CommandHelp(SphinxDirective):
    """A section for every command."""

    def run(self) -> list[nodes.Node]:
        """Titles and literal blocks."""
        sections: list[nodes.Node] = []
        for name, words in commands(main, "gaussmix"):
            section = nodes.section(ids=[nodes.make_id(name)], names=[nodes.fully_normalize_name(name)])
            section += nodes.title("", name)
            section += nodes.literal_block(words, words, language="none")
            self.state.document.note_explicit_target(section)
            sections.append(section)
        return sections


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
