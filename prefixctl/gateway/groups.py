"""Which share group a tenant belongs to, and which prompts a group may name by key."""

from __future__ import annotations

from collections.abc import Mapping

from prefixctl.config import ALL_TENANTS, ANONYMOUS, GroupConfig


class Groups:
    """The configured share groups, ready to be asked for every request."""

    def __init__(self, groups: Mapping[str, GroupConfig]) -> None:
        self._names = frozenset(groups)
        self._group_of: dict[str, str] = {}
        self._for_all: str | None = None
        self._groups_with: dict[str, set[str]] = {}
        for name, group in groups.items():
            for tenant in group.tenants:
                self._group_of[tenant] = name
            for prompt in group.prompts:
                self._groups_with.setdefault(prompt, set()).add(name)
        self._for_all = self._group_of.pop(ALL_TENANTS, None)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def of(self, tenant: str) -> str | None:
        """The share group of a tenant; None if it is a group of its own.

        Requests of nobody belong to a group only if it names ``anonymous``.
        """
        if tenant == ANONYMOUS:
            return self._group_of.get(tenant)
        return self._group_of.get(tenant, self._for_all)

    def may_use(self, group: str | None, prompt: str) -> bool:
        """Whether a member of a group may name a prompt by its key.

        A prompt that groups list is for their members; one that none lists is for everybody.
        """
        listed = self._groups_with.get(prompt)
        return listed is None or group in listed
