"""Token ids of a chat request, from a local tokenizer.json or from a server's /tokenize."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import canonical_json, digest_of
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import TokenizerError
from prefixctl.ids import Digest
from prefixctl.prompts.chat import ChatTemplate
from prefixctl.yamlfile import read_bytes

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

TOKENIZER_FILE = "tokenizer.json"
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
                  "mask_token")  # fmt: skip


class RequestTokenizer(Protocol):
    """Turns requests and texts into the token ids that the model sees."""

    @property
    def digest(self) -> Digest:
        """Of the tokenizer's definition."""

    @property
    def chat_template_digest(self) -> Digest | None:
        """Of the chat template's bytes, or None if they are not known."""

    def token_ids(self, request: ChatRequest) -> list[int]:
        """All prompt tokens of the request, with the opening of the assistant's turn."""

    def encode(self, text: str) -> list[int]:
        """The token ids of a text alone; no special tokens are added."""


class ServerTokenizer:
    """The exact ids of a live server, for a target without tokenizer files at hand.

    Neither tokenizer nor template is known, so the digest names the server's model only: a
    changed template shows in the tokens, and so in the key.
    """

    chat_template_digest: Digest | None = None

    def __init__(self, engine: HttpEngine) -> None:
        self._engine = engine

    @cached_property
    def digest(self) -> Digest:
        """Of the served model names. Errors as in `token_ids`."""
        return digest_of(canonical_json(["served", *self._engine.facts().models]))

    def token_ids(self, request: ChatRequest) -> list[int]:
        """Ask ``/tokenize``.

        Raises:
            UnreachableError: If the server does not answer.
        """
        return self._engine.tokenize(request)

    def encode(self, text: str) -> list[int]:
        """Ask ``/tokenize`` for a text alone. Errors as in `token_ids`."""
        return self._engine.tokenize_text(text)


class LocalTokenizer:
    """A tokenizer.json and a chat template on disk, applied as vLLM applies them.

    Attributes:
        digest: Of the tokenizer's definition, special tokens included.
        chat_template_digest: Of the chat template's bytes, or None without one.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        template: ChatTemplate | None,
        tool_template: ChatTemplate | None = None,
        digest: Digest,
        chat_template_digest: Digest | None,
        path: str,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._tool_template = tool_template or template
        self._path = path
        self.digest = digest
        self.chat_template_digest = chat_template_digest

    def encode(self, text: str) -> list[int]:
        """The token ids of a text alone; no special tokens are added."""
        return list(self._encoding(text).ids)

    def token_ends(self, text: str) -> list[int]:
        """For each token of a text alone, the character behind its last one, never falling."""
        offsets = self._encoding(text).offsets
        return list(accumulate((end for _, end in offsets), max))

    def _encoding(self, text: str) -> Encoding:
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise TokenizerError(
                "the text holds half a surrogate pair, which is no character", path=self._path
            ) from exc
        return self._tokenizer.encode(text, add_special_tokens=False)

    def render(self, request: ChatRequest) -> str:
        """The text that the chat template makes of a request.

        Raises:
            TokenizerError: If there is no chat template, or it refuses the request.
        """
        template = self._template if request.tools is None else self._tool_template
        if template is None:
            raise TokenizerError(
                "no chat template", path=self._path, hint="set `chat_template:` on the target"
            )
        return template.render(request)

    def token_ids(self, request: ChatRequest) -> list[int]:
        """All prompt tokens of a request.

        Raises:
            TokenizerError: As `render`.
        """
        return self.encode(self.render(request))


def load_tokenizer(
    path: Path, *, chat_template: Path | None = None, kwargs: Mapping[str, Any] | None = None
) -> LocalTokenizer:
    """Read a tokenizer folder (or its tokenizer.json).

    Args:
        path: Folder with tokenizer.json and, if present, tokenizer_config.json and
            chat_template.jinja.
        chat_template: A template file that goes before the folder's own.
        kwargs: Keyword arguments for the chat template.

    Raises:
        TokenizerError: If a file is missing or broken.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - slow to import, not always needed

    file = path if path.suffix == ".json" else path / TOKENIZER_FILE
    hint = (
        "nothing is downloaded: put the model's tokenizer.json, tokenizer_config.json and chat "
        "template in a folder and name it in the target's `tokenizer:`, or give a server's address"
    )
    definition = read_bytes(file, TokenizerError, hint=hint)
    try:
        tokenizer = Tokenizer.from_buffer(definition)
    except Exception as exc:  # the library raises bare Exception
        raise TokenizerError(f"not a tokenizer: {exc}", path=str(file)) from exc
    tokenizer.no_padding()
    tokenizer.no_truncation()
    settings = _settings(file.parent / "tokenizer_config.json")
    sources = _template_sources(file.parent, settings, chat_template)
    special = _special_tokens(settings)
    templates = {
        name: ChatTemplate(
            _decode(source, str(chat_template or file.parent)),
            special_tokens=special,
            kwargs=kwargs or {},
            path=str(chat_template or file.parent),
        )
        for name, source in sources.items()
    }
    return LocalTokenizer(
        tokenizer,
        template=templates.get("default"),
        tool_template=templates.get("tool_use"),
        digest=digest_of(definition + canonical_json(special)),
        chat_template_digest=digest_of(b"\0".join(sources.values())) if sources else None,
        path=str(file.parent),
    )


def _decode(source: bytes, path: str) -> str:
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise TokenizerError("the chat template is not UTF-8", path=path) from exc


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(read_bytes(path, TokenizerError))
    except (ValueError, RecursionError) as exc:
        raise TokenizerError(f"broken JSON: {exc}", path=str(path)) from exc
    if not isinstance(value, dict):
        raise TokenizerError("not an object", path=str(path))
    return value


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    made = {}
    for name in SPECIAL_TOKENS:
        value = settings.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            made[name] = value
    return made


def _template_sources(
    folder: Path, settings: Mapping[str, Any], chosen: Path | None
) -> dict[str, bytes]:
    """Template bytes by name: ``default``, and ``tool_use`` where a model has its own for tools."""
    if chosen is not None:
        chosen_bytes = read_bytes(chosen, TokenizerError, hint="the target's `chat_template:`")
        return {"default": chosen_bytes}
    own = folder / "chat_template.jinja"
    if own.is_file():
        return {"default": read_bytes(own, TokenizerError)}
    value = settings.get("chat_template")
    if isinstance(value, str):
        return {"default": value.encode()}
    named = {
        t["name"]: t["template"].encode()
        for t in (value if isinstance(value, list) else ())
        if isinstance(t, dict) and isinstance(t.get("template"), str)
    }
    return {name: named[name] for name in ("default", "tool_use") if name in named}
