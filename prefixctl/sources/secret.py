"""The tenancy secret, from a file or from the environment; never from an argument."""

from __future__ import annotations

from collections.abc import Mapping

from prefixctl.config import Config
from prefixctl.core.tenancy import MIN_SECRET_BYTES, Secret
from prefixctl.errors import ConfigError
from prefixctl.yamlfile import read_bytes


def load_secret(config: Config, environment: Mapping[str, str]) -> Secret | None:
    """The tenancy secret, or None if the configuration and the environment name none.

    The file goes before the environment; white space around it does not count.

    Raises:
        ConfigError: If the file is missing, or the secret is too short to be one.
    """
    settings = config.tenancy
    if settings.secret_file is not None:
        path = config.root / settings.secret_file
        value = read_bytes(path, ConfigError, hint="named by tenancy.secret_file").strip()
        where = str(path)
    else:
        value = environment.get(settings.secret_env, "").strip().encode()
        where = f"${settings.secret_env}"
        if not value:
            return None
    if len(value) < MIN_SECRET_BYTES:
        raise ConfigError(
            f"the tenancy secret in {where} is shorter than {MIN_SECRET_BYTES} bytes",
            hint="make one: openssl rand -base64 32 > FILE && chmod 600 FILE",
        )
    return Secret(value)
