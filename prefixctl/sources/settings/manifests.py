"""Launches in YAML: compose services, Kubernetes containers, Helm values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import yaml

from prefixctl.sources.settings.command import Start, image_engine, starts_by_itself
from prefixctl.sources.settings.helmvalues import (
    CACHING_OFF,
    config_engine,
    config_words,
    keyed_words,
)
from prefixctl.sources.settings.launch import Engine, Flag, Launch, Variable
from prefixctl.sources.settings.script import (
    Host,
    as_known,
    container_launches,
    make_launch,
    variable,
)
from prefixctl.sources.settings.shell import commands
from prefixctl.sources.settings.text import SourceFile, Text
from prefixctl.sources.settings.yamltext import YamlDocument, documents, mapping_of, scalar_of

MAX_NODES = 200_000
MAX_DEPTH = 64
_COMMAND_KEYS = ("entrypoint", "command", "args", "extraArgs", "extra_args", "additionalArgs")
_CONFIG_KEYS = ("vllmConfig", "engineArgs", "vllmArgs", "sglangConfig")
_REPLICA_KEYS = ("replicas", "replicaCount", "scale", "minReplicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where in a document a mapping stands."""

    document: YamlDocument
    key: str = ""
    parent: str = ""
    replicas: int = 1
    depth: int = 0


def yaml_format(file: SourceFile) -> str:
    """compose, kubernetes or helm values, by the keys at the top of the first document."""
    for document in documents(file):
        keys = set(mapping_of(document.root))
        if "services" in keys:
            return "compose"
        if {"apiVersion", "kind"} <= keys:
            return "kubernetes"
    return "helm values"


def yaml_launches(file: SourceFile) -> Iterator[Launch]:
    """What a YAML file starts. Aliases are followed once; size and depth are bounded."""
    for document in documents(file):
        seen: set[int] = set()
        pending = [(document.root, _Place(document=document))]
        while pending and len(seen) < MAX_NODES:
            node, place = pending.pop()
            if id(node) in seen or place.depth > MAX_DEPTH:
                continue
            seen.add(id(node))
            if place.key in _CONFIG_KEYS:
                continue  # part of the launch that the mapping above it is
            if isinstance(node, yaml.MappingNode):
                yield from _launches(node, place)
            pending += reversed(list(_children(node, place)))


def _children(node: yaml.Node, place: _Place) -> Iterator[tuple[yaml.Node, _Place]]:
    replicas = place.replicas
    if isinstance(node, yaml.MappingNode):
        replicas = _replicas(mapping_of(node)) or replicas
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            yield value, _inside(place, key=name, parent=place.key, replicas=replicas)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield child, _inside(place, key=place.key, parent=place.parent, replicas=replicas)


def _inside(place: _Place, *, key: str, parent: str, replicas: int) -> _Place:
    return _Place(
        document=place.document, key=key, parent=parent, replicas=replicas, depth=place.depth + 1
    )


def _launches(node: yaml.MappingNode, place: _Place) -> Iterator[Launch]:
    entries = mapping_of(node)
    document = place.document
    parts = [list(_words(entries[key], document)) for key in _COMMAND_KEYS if key in entries]
    image = _image(entries)
    config = next((k for k in _CONFIG_KEYS if k in entries), None)
    if not parts and config is None and not starts_by_itself(image):
        return
    host = _host(node, entries, place, image)
    words = [w for part in parts for w in part]
    if config is not None:
        chart = place.key == "modelSpec"
        yield from _from_config(config, entries, words, host, document, chart=chart)
    elif words:
        host = _with_known(host, words[0])
        found = list(container_launches(words, document.file, host))
        if found or "image" in entries or "repository" in entries:
            yield from found
        elif engine := _engine_above(place):
            yield make_launch(_start(engine, words), document.file, host)


def _from_config(
    key: str,
    entries: Mapping[str, yaml.Node],
    words: list[Text],
    host: Host,
    document: YamlDocument,
    *,
    chart: bool,
) -> Iterator[Launch]:
    config = entries[key]
    if not isinstance(config, yaml.MappingNode):
        return
    engine = image_engine(host.image)
    if engine is Engine.UNKNOWN:
        engine = config_engine(key)
    if engine is Engine.UNKNOWN:
        return
    flags = list(config_words(config, entries, document, chart=chart))
    at = document.text(config) if isinstance(config, yaml.ScalarNode) else _at(config, document)
    model = entries.get("modelURL") or entries.get("model")
    named = [document.text(model)] if isinstance(model, yaml.ScalarNode) else []
    start = Start(engine=engine, word=at, arguments=(*named, *flags, *words))
    launch = make_launch(start, document.file, _with_known(host, at))
    explained = tuple(_explained(f, document) for f in launch.flags) if chart else launch.flags
    yield replace(launch, flags=explained)


def _explained(flag: Flag, document: YamlDocument) -> Flag:
    written = document.file.line(flag.location.line)[flag.location.column - 1 :]
    if flag.name == CACHING_OFF and not written.lstrip("'\"").startswith("--"):
        return replace(flag, implied_by="the chart adds it without `enablePrefixCaching: true`")
    return flag


def _host(
    node: yaml.MappingNode, entries: Mapping[str, yaml.Node], place: _Place, image: str | None
) -> Host:
    deploy = entries.get("deploy")
    own = _replicas(entries) or (_replicas(mapping_of(deploy)) if deploy else None)
    name = scalar_of(entries.get("name")) or scalar_of(entries.get("container_name")) or place.key
    document = place.document
    environment = [
        *(_environment(entries["environment"], document) if "environment" in entries else ()),
        *(_environment(entries["env"], document) if "env" in entries else ()),
    ]
    return Host(
        name=name or f"line {node.start_mark.line + 1}",
        environment=tuple(environment),
        environment_open=bool({"envFrom", "env_file"} & set(entries)),
        image=image,
        replicas=own or place.replicas,
    )


def _with_known(host: Host, at: Text) -> Host:
    return replace(host, known=as_known(host.environment, at))


def _words(node: yaml.Node, document: YamlDocument) -> Iterator[Text]:
    """The words of a command: a list of them, a line of shell, or a mapping of flags."""
    if isinstance(node, yaml.SequenceNode):
        for child in node.value:
            if isinstance(child, yaml.ScalarNode):
                yield document.text(child)
    elif isinstance(node, yaml.ScalarNode):
        found = list(commands(document.text(node)))
        if len(found) == 1:
            yield from found[0]
        elif found:
            whole = document.text(node)
            yield from (whole.with_text("sh"), whole.with_text("-c"), whole)
    elif isinstance(node, yaml.MappingNode):
        yield from keyed_words(node, document)


def _environment(node: yaml.Node, document: YamlDocument) -> Iterator[Variable]:
    """From a mapping, a list of ``NAME=value``, or a list of ``{name, value}``."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield _variable(key, value, document)
        return
    for entry in node.value if isinstance(node, yaml.SequenceNode) else ():
        if isinstance(entry, yaml.ScalarNode):
            made = variable(document.text(entry), document.file)
            if made is not None:
                yield made
        elif isinstance(entry, yaml.MappingNode):
            keys = mapping_of(entry)
            if isinstance(keys.get("name"), yaml.ScalarNode):
                yield _variable(keys["name"], keys.get("value"), document)


def _variable(name: yaml.Node, value: yaml.Node | None, document: YamlDocument) -> Variable:
    text = scalar_of(value)
    return Variable(
        name=str(name.value),
        value=None if text is None or "$" in text else text,
        location=document.file.locate(document.offset(name)),
    )


def _image(entries: Mapping[str, yaml.Node]) -> str | None:
    node = entries.get("image")
    if isinstance(node, yaml.MappingNode):
        entries, node = mapping_of(node), None
    if node is None and "repository" in entries:
        tag = scalar_of(entries.get("tag"))
        return (scalar_of(entries["repository"]) or "") + (f":{tag}" if tag else "")
    return scalar_of(node)


def _engine_above(place: _Place) -> Engine | None:
    """The engine that the key above a block of arguments names: ``vllm: {args: [...]}``."""
    words = f"{place.parent} {place.key}".lower()
    return next((e for e in (Engine.VLLM, Engine.SGLANG) if e.value in words), None)


def _start(engine: Engine, words: list[Text]) -> Start:
    return Start(engine=engine, word=words[0], arguments=tuple(words))


def _at(node: yaml.Node, document: YamlDocument) -> Text:
    return Text(text="", offsets=[document.offset(node)])


def _replicas(entries: Mapping[str, yaml.Node]) -> int | None:
    for key in _REPLICA_KEYS:
        text = scalar_of(entries.get(key)) or ""
        if text.isdigit() and len(text) < 7:  # noqa: PLR2004 - more is no number of servers
            return int(text)
    return None
