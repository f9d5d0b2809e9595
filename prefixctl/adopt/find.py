"""Find the prompts of a repository: templates, texts in prompt folders, message lists."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from prefixctl.adopt.model import Candidate, Found, LeftOut, Piece
from prefixctl.adopt.structured import structured_candidates, text_piece
from prefixctl.adopt.texts import (
    has_braces,
    has_jinja,
    is_chat_template,
    is_prose,
    names_a_prompt,
)
from prefixctl.core.prompt import PROMPT_FILE, TEMPLATE_SUFFIXES, SectionKind
from prefixctl.errors import InputError
from prefixctl.yamlfile import read_bytes

MAX_FILE_BYTES = 1024 * 1024
MAX_FILES = 50_000
ADOPTED = "# Adopted from: "
"""The first line of a prompt.yaml that `init` wrote; the origin follows."""
_TEXTS = frozenset([".md", ".txt", ".prompt", ".mdc"])
_DATA = frozenset([".yaml", ".yml", ".json"])
_OTHER_TEMPLATES = re.compile(
    r"\.(?:html?|xml|ya?ml|json|toml|conf|cfg|ini|sql|sh|py|css|js|ts|tf|env|service|csv)\.\w+$"
)
_DOCUMENTATION = re.compile(
    r"(?:readme|changelog|contributing|license|code_of_conduct|security|requirements|notice|"
    r"authors|history|pull_request_template|issue_template|agents|claude|copying)\b",
    re.IGNORECASE,
)
_SKIPPED = frozenset(
    ["node_modules", "__pycache__", "site-packages", "venv", "dist", "build", "target", "vendor"]
)
_NAME = re.compile(r"^name:\s*['\"]?([\w.-]+)", re.MULTILINE)
_CONFIGURATION = re.compile(r"(?:prefixctl\.yaml|prefixes\.lock\.yaml|package(?:-lock)?\.json)$")


def find_prompts(root: Path) -> Found:
    """What a repository holds, in the order of its paths.

    Raises:
        InputError: If the folder is missing, or holds more files than can be looked at.
    """
    if not root.is_dir():
        raise InputError("no such folder", path=str(root))
    candidates: list[Candidate] = []
    templates: list[str] = []
    left_out: list[LeftOut] = []
    governed: list[str] = []
    names: list[str] = []
    adopted: set[str] = set()
    for path in _walk(root):
        source = path.relative_to(root).as_posix()
        if path.name == PROMPT_FILE:
            governed.append(PurePosixPath(source).parent.as_posix())
            name, origin = _governed(path)
            names.append(name)
            adopted |= origin
            continue
        for found in _read(path, source):
            if isinstance(found, Candidate):
                candidates.append(found)
            elif isinstance(found, LeftOut):
                left_out.append(found)
            else:
                templates.append(found)
    return Found(
        candidates=tuple(candidates),
        chat_templates=tuple(templates),
        left_out=tuple(left_out),
        governed=tuple(governed),
        names=tuple(names),
        adopted=frozenset(adopted),
    )


def _walk(root: Path) -> Iterator[Path]:
    count = 0
    for name, folders, files in os.walk(root):
        folder = Path(name)
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
        governed = PROMPT_FILE in files
        if governed:
            folders.clear()  # a prompt holds no other prompts
        for file in [PROMPT_FILE] if governed else sorted(files):
            count += 1
            if count > MAX_FILES:
                raise InputError(
                    f"more than {MAX_FILES:,} files", path=str(root), hint="give a smaller folder"
                )
            yield folder / file


def _governed(path: Path) -> tuple[str, set[str]]:
    """The name of a governed prompt, and where it was adopted from."""
    try:
        text = read_bytes(path, limit=MAX_FILE_BYTES).decode("utf-8-sig")
    except (InputError, UnicodeDecodeError):
        return path.parent.name, set()
    first = text.partition("\n")[0]
    named = _NAME.search(text)
    origin = {first.removeprefix(ADOPTED).strip()} if first.startswith(ADOPTED) else set()
    return named[1] if named else path.parent.name, origin


def _read(path: Path, source: str) -> list[Candidate | LeftOut | str]:
    """The candidates in a file; the path itself if it is a chat template."""
    suffix = path.suffix.lower()
    if not _may_hold_prompts(path):
        return []
    data = read_bytes(path, limit=MAX_FILE_BYTES)
    if suffix in _DATA:
        return [*structured_candidates(source, data)]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return [LeftOut(path=source, reason="not UTF-8")] if suffix in TEMPLATE_SUFFIXES else []
    if suffix in TEMPLATE_SUFFIXES:
        return _template(path, source, text)
    named = names_a_prompt(path.stem, *PurePosixPath(source).parent.parts[-2:])
    return [_text(path, source, text)] if named and is_prose(text) else []


def _may_hold_prompts(path: Path) -> bool:
    if path.suffix.lower() not in {*TEMPLATE_SUFFIXES, *_TEXTS, *_DATA} or not path.is_file():
        return False
    if _DOCUMENTATION.match(path.name) or _CONFIGURATION.match(path.name):
        return False
    return path.stat().st_size <= MAX_FILE_BYTES


def _template(path: Path, source: str, text: str) -> list[Candidate | LeftOut | str]:
    if is_chat_template(text):
        return [source]
    if _OTHER_TEMPLATES.search(path.name.lower()) or not is_prose(text):
        return []
    piece = Piece(kind=SectionKind.SYSTEM_PROMPT, file=path.name, text=text, role=_role(path))
    return [Candidate(source=source, pieces=(piece,), as_it_is=True)]


def _text(path: Path, source: str, text: str) -> Candidate:
    suffix = ".md" if path.suffix == ".mdc" else path.suffix
    piece = text_piece(text, path.stem, SectionKind.SYSTEM_PROMPT, suffix=suffix, role=_role(path))
    plain = not has_jinja(text) and not has_braces(text) and piece.file == path.name
    return Candidate(source=source, pieces=(piece,), as_it_is=plain)


def _role(path: Path) -> str | None:
    """The user's role for a text whose name says that it is the user's turn."""
    words = re.split(r"[^a-z]+", path.stem.lower())
    return "user" if "user" in words and "system" not in words else None
