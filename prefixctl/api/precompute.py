"""Fill the disk tier with governed prefixes, by an engine that serves no traffic."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from prefixctl.api.holdings import Holdings, full_blocks, holdings
from prefixctl.api.pins import find_published
from prefixctl.api.serve import build_serve_command, check_tiers
from prefixctl.api.tenants import salted_namespaces
from prefixctl.api.warm import warm_item
from prefixctl.config import Config
from prefixctl.core.tenancy import SaltedNamespace, Secret, salt_pseudonym
from prefixctl.core.ticket import TICKET_ARGUMENT, Ticket
from prefixctl.engine.launch import CONFIG_VARIABLE, ENDS_WITH, Server, free_port
from prefixctl.errors import ExitCode, NothingToDoError, ServerError
from prefixctl.ids import BlockHash, Salt
from prefixctl.prompts.target import Target, load_target, measure
from prefixctl.registry.publish import load_live
from prefixctl.registry.worktree import governed_prompts
from prefixctl.sources.plan import Plan, PlannedPrefix
from prefixctl.sources.secret import load_secret
from prefixctl.tiers.files import write_privately
from prefixctl.warm.run import WarmItem

STORE_SECONDS = 60.0
REQUEST_SECONDS = 600.0
LONGEST_ERROR = 300
NOT_ALL = (
    "computed, but not all blocks came to the disk: is it full, has its owner no key, or is "
    "tiers.host_gib too small for it?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precomputed:
    """One prefix in one namespace.

    Attributes:
        prompt: The prompt's name.
        version: Its version; 0 for the work tree.
        target: The target.
        key: The prefix key.
        namespace: Label of the namespace.
        epoch: Of the salts.
        tokens: Tokens of its full blocks.
        blocks: Its full blocks.
        model: The folder in the tier.
        status: ``stored``, ``was stored``, ``too short``, ``drift`` or ``not stored``.
        message: Why not.
    """

    prompt: str
    version: int
    target: str
    key: str
    namespace: str
    epoch: int
    tokens: int
    blocks: int
    model: str = ""
    status: str = "not stored"
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecomputeReport:
    """All prefixes of a run, and where it is written down."""

    prefixes: tuple[Precomputed, ...]
    manifest: str
    seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """1 if a prefix is not whole, 5 if a target is not what a version was made for."""
        states = {p.status for p in self.prefixes}
        if "drift" in states:
            return ExitCode.DRIFT
        return ExitCode.FINDINGS if "not stored" in states else ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    salt: Salt | None
    token_ids: tuple[int, ...]
    hashes: tuple[BlockHash, ...]
    entry: Precomputed

    def ticket(self, secret: Secret) -> str:
        """Says to the engine whose the blocks are, and of which version."""
        salt, entry = self.salt or Salt(""), self.entry
        owner = salt_pseudonym(salt) if salt else ""
        version = f"{entry.prompt}@{entry.version}" if entry.version else ""
        return Ticket(tenant=owner, salt=salt, group_salt=salt, prefix=version).sign(secret)


def precompute_prefixes(
    config: Config,
    names: Sequence[str] = (),
    *,
    target: str | None = None,
    tenants: Sequence[str] = (),
    groups: Sequence[str] = (),
    work_tree: bool = False,
    plan: Plan | None = None,
    environment: Mapping[str, str],
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
) -> PrecomputeReport:
    """Store the full blocks of every prefix, and nothing behind them.

    What the disk holds already is not computed; without anything to compute no engine starts.

    Args:
        config: The configuration, with `tiers.nvme`.
        names: Prompts, as ``name`` or ``name@version``; all live ones if empty.
        target: Its name; may be left out if there is one only.
        tenants: Tenants to compute for, each under its own salt.
        groups: Share groups to compute for. Without tenants and groups there is no salt.
        work_tree: The prompts as they are in the work tree, instead of the live versions.
        plan: What to compute and for whom, in place of names, tenants and groups.
        environment: Where the tenancy secret may stand.
        on_progress: Told a label, the number done and the number of all.

    Raises:
        ConfigError: If no NVMe tier is configured.
        InputError: If its folder or key file cannot be used.
        NothingToDoError: If no version is live.
        RegistryError: If there is no such version.
        ServerError: If the engine does not start.
    """
    started = time.monotonic()
    name, settings = config.only_target(target)
    loaded = load_target(config, name)
    check_tiers(config)
    jobs = []
    for part in _parts(names, tenants, groups) if plan is None else plan.prefixes:
        items = _items(config, loaded, part.prompt, work_tree=work_tree)
        version = settings.model_version
        spaces = salted_namespaces(config, version, part.tenants, part.groups, environment)
        jobs += [_job(config, loaded, item, space) for item in items for space in spaces]
    held = holdings(config, name, environment)
    done = [_known(held, job) for job in jobs]
    manifest = manifest_path(config)
    _write_manifest(manifest, done)
    todo = [at for at, entry in enumerate(done) if entry.status == "not stored"]
    if todo:
        on_progress("starting an engine", 0, len(todo))
        secret = load_secret(config, environment) or Secret(secrets.token_hex(32).encode())
        log = config.registry_path.parent / "precompute.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with _engine(config, name, secret, log) as server:
            held = _noted(config, name, environment)
            for count, at in enumerate(todo):
                on_progress(jobs[at].entry.prompt, count, len(todo))
                done[at] = _known(held, jobs[at])
                if done[at].status == "not stored":
                    served = config.served_name(settings)
                    with _client(server.url, config, environment) as client:
                        done[at] = _store(client, held, jobs[at], served, secret)
                _write_manifest(manifest, [done[at]])
    return PrecomputeReport(
        prefixes=tuple(done), manifest=str(manifest), seconds=time.monotonic() - started
    )


def _engine(config: Config, target: str, secret: Secret, log: Path) -> Server:
    """A server as the configuration says, but for this command alone.

    It has no gateway, since whose a block is stands in tickets signed here, so only this host can
    reach it. It pins nothing by itself, and tells nobody of its blocks.
    """
    cache = config.prefix_cache
    alone = config.model_copy(
        update={
            "gateway": config.gateway.model_copy(update={"enabled": False}),
            "server": config.server.model_copy(
                update={"host": "127.0.0.1", "kv_events_endpoint": None, "api_server_count": 1}
            ),
            "prefix_cache": cache.model_copy(
                update={"pins": cache.pins.model_copy(update={"live": False})}
            ),
        }
    )
    command = build_serve_command(alone, None, target=target, port=free_port())
    environment = {
        **os.environ,
        CONFIG_VARIABLE: str(Path(config.path).absolute()),
        ENDS_WITH: str(os.getpid()),
    }
    if config.tenancy.secret_file is None:
        environment[config.tenancy.secret_env] = secret.reveal().decode()
    return Server(command, log=log, environment=environment)


def _noted(config: Config, target: str, environment: Mapping[str, str]) -> Holdings:
    """What the engine has noted as its own part of the disk tier.

    Raises:
        ServerError: If it has noted none: it runs without the tier.
    """
    held = holdings(config, target, environment)
    if held is None:
        raise ServerError("the engine does not use the disk tier", hint="see its log")
    return held


def manifest_path(config: Config) -> Path:
    """Where runs are written down: beside the registry."""
    return config.registry_path.with_name("precomputed.json")


def _parts(
    names: Sequence[str], tenants: Sequence[str], groups: Sequence[str]
) -> list[PlannedPrefix]:
    return [
        PlannedPrefix(prompt=name, tenants=tuple(tenants), groups=tuple(groups))
        for name in names or ("",)
    ]


def _items(config: Config, target: Target, name: str, *, work_tree: bool) -> list[WarmItem]:
    """The versions that a name stands for: one, or without a name all."""
    if work_tree:
        return [
            WarmItem(
                prompt=prompt,
                version=0,
                measurement=measure(prompt, target, config.prefix_cache),
            )
            for prompt in governed_prompts(config, [name] if name else [])
        ]
    published = [find_published(config, name)] if name else load_live(config)
    if not published:
        raise NothingToDoError(
            "no version is live",
            path=str(config.registry_path),
            hint="prefixctl publish --all, or --work-tree",
        )
    return [warm_item(config, target, p) for p in published]


def _job(config: Config, target: Target, item: WarmItem, space: SaltedNamespace) -> _Job:
    salt = space.salt_of(item.prompt.name)
    token_ids, hashes = full_blocks(config, target, item.measurement, salt)
    entry = Precomputed(
        prompt=item.prompt.name,
        version=item.version,
        target=target.name,
        key=item.measurement.key,
        namespace=space.label,
        epoch=config.tenancy.epoch,
        tokens=len(token_ids),
        blocks=len(hashes),
        message=item.drift,
        status="drift" if item.drift else "not stored" if hashes else "too short",
    )
    return _Job(salt=salt, token_ids=token_ids, hashes=tuple(hashes), entry=entry)


def _known(held: Holdings | None, job: _Job) -> Precomputed:
    if job.entry.status != "not stored" or held is None or not held.has(job.hashes):
        return job.entry
    return _with(job.entry, model=held.model, status="was stored")


def _client(url: str, config: Config, environment: Mapping[str, str]) -> httpx.Client:
    """Speaks to the engine, which asks for the server's API key as the real one does."""
    key = environment.get(config.server.api_key_env, "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=url, timeout=REQUEST_SECONDS, headers=headers, trust_env=False)


def _store(
    client: httpx.Client, held: Holdings, job: _Job, served: str, secret: Secret
) -> Precomputed:
    """Compute the prefix alone, so that its last block is stored and no tail."""
    body: dict[str, object] = {
        "model": served,
        "prompt": list(job.token_ids),
        "max_tokens": 1,
        "vllm_xargs": {TICKET_ARGUMENT: job.ticket(secret)},
    }
    if job.salt is not None:
        body["cache_salt"] = str(job.salt)
    try:
        answer = client.post("/v1/completions", json=body)
        if not answer.is_success:
            text = answer.text[:LONGEST_ERROR]
            text = text if job.salt is None else text.replace(job.salt, "***")
            return _with(job.entry, message=f"the engine answered {answer.status_code}: {text}")
        deadline = time.monotonic() + STORE_SECONDS
        while not held.has(job.hashes):
            if time.monotonic() > deadline:
                return _with(job.entry, message=NOT_ALL)
            time.sleep(0.1)
    except httpx.HTTPError as exc:
        raise ServerError(f"the engine stopped answering: {exc}", hint="see its log") from exc
    return _with(job.entry, model=held.model, status="stored")


def _with(entry: Precomputed, **changes: str) -> Precomputed:
    return Precomputed(**(asdict(entry) | changes))


def _write_manifest(path: Path, entries: Sequence[Precomputed]) -> None:
    """Keep what earlier runs stored, unless this one says something else of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path):
        try:
            before = json.loads(path.read_text(encoding="utf-8"))["prefixes"]
            merged = {_name(entry): entry for entry in before}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            merged = {}
        merged |= {_name(entry): entry for entry in map(asdict, entries)}
        text = json.dumps({"schema": 1, "prefixes": list(merged.values())}, indent=2)
        write_privately(path, text)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While no other run of this command changes the file."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _name(entry: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(str(entry.get(k)) for k in ("key", "target", "namespace", "epoch"))
