"""Find the prompts of a repository: templates, texts in prompt folders, message lists, strings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from prefixctl.adopt.code import code_candidates
from prefixctl.adopt.model import Candidate, Found, LeftOut, Piece
from prefixctl.adopt.structured import structured_candidates, text_piece
from prefixctl.adopt.texts import (
    has_braces,
    has_jinja,
    is_chat_template,
    is_prose,
    names_a_prompt,
)
from prefixctl.core.encoding import NAMES, UTF8, Decoded, UndecodableError, decode_text
from prefixctl.core.prompt import PROMPT_FILE, TEMPLATE_SUFFIXES, SectionKind
from prefixctl.errors import InputError
from prefixctl.prompts.load import holds_prompt
from prefixctl.sources.files import TOOL_FOLDERS, walk
from prefixctl.yamlfile import read_bytes

MAX_FILE_BYTES = 1024 * 1024
MAX_FILES = 50_000
ADOPTED = "# Adopted from: "
"""The first line of a prompt.yaml that `init` wrote; the origin follows."""
_TEXTS = frozenset([".md", ".txt", ".prompt", ".mdc"])
_CODE = frozenset([".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".tsx"])
_DATA = frozenset([".yaml", ".yml", ".json"])
_OTHER_TEMPLATES = re.compile(
    r"\.(?:html?|xml|ya?ml|json|toml|conf|cfg|ini|sql|sh|py|css|js|ts|tf|env|service|csv)\.\w+$"
)
_NOTES = re.compile(
    r"(?:readme|changelog|contributing|license|code_of_conduct|security|requirements|notice|"
    r"authors|history|pull_request_template|issue_template|agents|claude|copying)\b.*\.md$|"
    r"(?:requirements|license|copying|notice|authors|changelog)\b.*\.txt$",
    re.IGNORECASE,
)
"""Notes about a project: only in these formats, and not where prompts lie."""
_NEVER_PROMPTS = re.compile(r"(?:readme|changelog|contributing|license)\b.*\.md$", re.IGNORECASE)
"""Notes that are none of a folder's prompts, wherever they lie."""
_NOTE = "a note about the folder by its name; give it another one if it is a prompt"
_PROMPT_FOLDER = re.compile(r"(?<![a-z])prompts?(?![a-z])", re.IGNORECASE)
_SKIPPED = TOOL_FOLDERS | {"target", "vendor"}
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
    for folder in walk(root, skip=_SKIPPED, whole=holds_prompt):
        for file in [PROMPT_FILE] if holds_prompt(folder) else folder.files:
            count += 1
            if count > MAX_FILES:
                raise InputError(
                    f"more than {MAX_FILES:,} files", path=str(root), hint="give a smaller folder"
                )
            yield folder.path / file


def _governed(path: Path) -> tuple[str, set[str]]:
    """The name of a governed prompt, and where it was adopted from."""
    try:
        text = decode_text(read_bytes(path, limit=MAX_FILE_BYTES)).text
    except (InputError, UndecodableError):
        return path.parent.name, set()
    first = text.partition("\n")[0]
    named = _NAME.search(text)
    origin = {first.removeprefix(ADOPTED).strip()} if first.startswith(ADOPTED) else set()
    return named[1] if named else path.parent.name, origin


def _read(path: Path, source: str) -> list[Candidate | LeftOut | str]:
    """The candidates in a file; the path itself if it is a chat template."""
    if not _may_hold_prompts(path):
        return []
    if _NOTES.match(path.name):
        if not any(map(_PROMPT_FOLDER.search, PurePosixPath(source).parent.parts)):
            return []
        if _NEVER_PROMPTS.match(path.name):
            return [LeftOut(path=source, reason=_NOTE)]
    template = path.suffix.lower() in TEMPLATE_SUFFIXES
    try:
        found = decode_text(read_bytes(path, limit=MAX_FILE_BYTES))
    except UndecodableError as exc:
        return [LeftOut(path=source, reason=exc.message)] if template else []
    if template and found.encoding != UTF8:
        reason = f"{NAMES[found.encoding]}: a governed prompt is UTF-8, so save it as UTF-8"
        return [LeftOut(path=source, reason=reason)]
    return _candidates(path, source, found)


def _candidates(path: Path, source: str, found: Decoded) -> list[Candidate | LeftOut | str]:
    suffix, text = path.suffix.lower(), found.text
    if suffix in _DATA:
        return [*structured_candidates(source, text.encode())]
    if suffix in _CODE:
        return [*code_candidates(source, text)]
    if suffix in TEMPLATE_SUFFIXES:
        return _template(path, source, text)
    named = names_a_prompt(path.stem, *PurePosixPath(source).parent.parts[-2:])
    if not (named and is_prose(text)):
        return []
    return [_text(path, source, text, utf8=found.encoding == UTF8)]


def _may_hold_prompts(path: Path) -> bool:
    if (
        path.suffix.lower() not in {*TEMPLATE_SUFFIXES, *_TEXTS, *_DATA, *_CODE}
        or not path.is_file()
    ):
        return False
    if _CONFIGURATION.match(path.name):
        return False
    return path.stat().st_size <= MAX_FILE_BYTES


def _template(path: Path, source: str, text: str) -> list[Candidate | LeftOut | str]:
    if is_chat_template(text):
        return [source]
    if _OTHER_TEMPLATES.search(path.name.lower()) or not is_prose(text):
        return []
    piece = Piece(kind=SectionKind.SYSTEM_PROMPT, file=path.name, text=text, role=_role(path))
    return [Candidate(source=source, pieces=(piece,), as_it_is=True)]


def _text(path: Path, source: str, text: str, *, utf8: bool) -> Candidate:
    suffix = ".md" if path.suffix == ".mdc" else path.suffix
    piece = text_piece(text, path.stem, SectionKind.SYSTEM_PROMPT, suffix=suffix, role=_role(path))
    plain = utf8 and not has_jinja(text) and not has_braces(text) and piece.file == path.name
    return Candidate(source=source, pieces=(piece,), as_it_is=plain)


def _role(path: Path) -> str | None:
    """The user's role for a text whose name says that it is the user's turn."""
    words = re.split(r"[^a-z]+", path.stem.lower())
    return "user" if "user" in words and "system" not in words else None
