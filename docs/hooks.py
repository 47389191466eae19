"""What the site is made of besides its pages: the reference, out of the docstrings that ``help()`` shows; and
tables that the code has already.

A page has a line ``<!-- reference: NAME -->`` where the text of :func:`reference` goes, and ``<!-- settings
-->``, ``<!-- commands -->`` or ``<!-- not there -->`` for the tables.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from ptxforge.cli import COMMANDS
from ptxforge.support import settings
from ptxforge.support.not_there import NOT_THERE


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs with the text of each page."""
    makers = {"settings": settings_table, "commands": commands_table, "not there": not_there_table}
    for name, maker in makers.items():
        if f"<!-- {name} -->" in markdown:
            markdown = markdown.replace(f"<!-- {name} -->", maker())
    return re.sub(r"<!-- reference: ([\w.]+) -->", lambda match: reference(match[1]), markdown)


def settings_table() -> str:
    """The environment variables, as ``python -m ptxforge env`` lists them."""
    rows = [f"| `{s.name}` | {f'`{s.default}`' if s.default else ''} | {s.meaning} |" for s in settings.ALL]
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows])


def commands_table() -> str:
    """The commands, as ``python -m ptxforge --help`` lists them."""
    rows = [f"| `python -m ptxforge {name}` | {meaning} |" for name, meaning in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def not_there_table() -> str:
    """The names that errors know the reasons of."""
    rows = [
        f"| `{name}` | {'never' if entry.never else 'not yet'} | {entry.why} | {entry.instead} |"
        for name, entry in NOT_THERE.items()
    ]
    return "\n".join(["| name | | because | instead |", "|---|---|---|---|", *rows])


def reference(name: str) -> str:
    """Signatures and docstrings of the public names of a module."""
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None) or [
        key for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == name
    ]  # fmt: skip
    parts = [_entry(key, getattr(module, key)) for key in sorted(public, key=str.lower)]
    return "\n\n".join(part for part in parts if part)


def _entry(name: str, value: Any) -> str:
    """A heading, the signature, and the docstring as Markdown; empty for what has no docstring of its own."""
    if inspect.ismodule(value) or not (callable(value) or inspect.isclass(value)):
        return ""
    text = inspect.getdoc(value) or ""
    signature = _signature(value)
    shown = f"```python\n{name}{signature}\n```\n\n" if signature else ""
    return f"### {name}\n\n{shown}{as_markdown(text)}" if text else ""


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(getattr(value, "fn", value))
    except (TypeError, ValueError):
        return ""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def as_markdown(text: str) -> str:
    """A docstring's reStructuredText, as far as ours goes: ``code``, roles, and examples set in by four
    spaces or begun with ``>>>``."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda match: f"`{match[1]}`", text)
    lines, fenced = [], False
    for line in text.replace("``", "`").splitlines():
        is_code = line.startswith("    ") or line.startswith(">>>") or (fenced and line.strip() != "")
        if is_code != fenced:
            lines += ["", "```python"] if is_code else ["```", ""]
            fenced = is_code
        lines.append(line.removeprefix("    ") if is_code else line)
    return "\n".join([*lines, "```"] if fenced else lines)
