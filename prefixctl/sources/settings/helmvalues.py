"""Settings that Helm values give by key instead of as words: ``vllmConfig``, maps of flags.

The keys under ``modelSpec`` are those of the vLLM production stack's chart (read 2026-11). That
chart switches prefix caching off whenever ``vllmConfig`` is there without
``enablePrefixCaching: true``, and passes over keys that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import yaml

from prefixctl.sources.settings.launch import Engine
from prefixctl.sources.settings.text import Text
from prefixctl.sources.settings.yamltext import YamlDocument

_CHART_KEYS = frozenset(
    ["enableChunkedPrefill", "maxModelLen", "dtype", "tensorParallelSize", "maxNumSeqs",
     "gpuMemoryUtilization", "maxLoras"]
)  # fmt: skip
_CACHING = "enablePrefixCaching"
CACHING_OFF = "--no-enable-prefix-caching"
_ARGUMENTS = "extraArgs"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TRUE = frozenset(["true", "yes", "on"])
_FALSE = frozenset(["false", "no", "off"])


def config_engine(key: str) -> Engine:
    """The engine that a key like ``vllmConfig`` speaks of."""
    lowered = key.lower()
    return next((e for e in (Engine.VLLM, Engine.SGLANG) if e.value in lowered), Engine.UNKNOWN)


def config_words(
    config: yaml.MappingNode,
    entries: Mapping[str, yaml.Node],
    document: YamlDocument,
    *,
    chart: bool,
) -> Iterator[Text]:
    """The flags that a block of settings becomes.

    Args:
        config: The block.
        entries: What stands beside it.
        document: Where it stands.
        chart: Whether it is the production stack's, see the module.
    """
    keys = {str(k.value): (k, v) for k, v in config.value if isinstance(k, yaml.ScalarNode)}
    if chart and keys:
        yield from _caching(config, keys.get(_CACHING), document)
    for name, (key, value) in keys.items():
        if name == _ARGUMENTS and isinstance(value, yaml.SequenceNode):
            yield from (document.text(v) for v in value.value if isinstance(v, yaml.ScalarNode))
        elif name in _CHART_KEYS or not chart:
            yield from _flag(key, value, document)
    template = entries.get("chatTemplate")
    if chart and isinstance(template, yaml.ScalarNode) and template.value:
        text = document.text(template)
        yield text.with_text("--chat-template")
        yield text


def keyed_words(node: yaml.MappingNode, document: YamlDocument) -> Iterator[Text]:
    """Flags from a mapping: ``{max-model-len: 4096, enable-prefix-caching: true}``."""
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            yield from _flag(key, value, document)


def _caching(
    config: yaml.MappingNode,
    entry: tuple[yaml.Node, yaml.Node] | None,
    document: YamlDocument,
) -> Iterator[Text]:
    on = entry is not None and str(entry[1].value).lower() in _TRUE
    offset = document.offset(entry[0] if entry else config.value[0][0])
    name = "--enable-prefix-caching" if on else CACHING_OFF
    yield Text(text=name, offsets=[offset] * (len(name) + 1))


def _flag(key: yaml.Node, value: yaml.Node, document: YamlDocument) -> Iterator[Text]:
    if not isinstance(value, yaml.ScalarNode):
        return
    name = _CAMEL.sub("-", str(key.value)).lower().replace("_", "-").lstrip("-")
    offset = document.offset(key)
    quoted = value.style in {"'", '"'}
    lowered = str(value.value).lower()
    if lowered in _FALSE and not quoted:
        name = f"no-{name}"
    yield Text(text=f"--{name}", offsets=[offset] * (len(name) + 3))
    if quoted or lowered not in _TRUE | _FALSE | {"", "~", "null"}:
        yield document.text(value)
