"""The metric catalogue: which series an engine exports, as data with its source and version."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Self

from pydantic import Field, model_validator

from prefixctl.errors import InputError
from prefixctl.yamlfile import StrictModel, did_you_mean, load_model

CATALOGUE_FILE = "catalogue.yaml"


class SeriesType(StrEnum):
    """What Prometheus calls the type of a series."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


HISTOGRAM_PARTS = ("_bucket", "_count", "_sum")
"""What Prometheus stores of a histogram; each part is a counter."""


class Series(StrictModel):
    """One series that the engine exports."""

    name: str = Field(
        pattern=r"^[a-z]+:[a-z][a-z0-9_]*$", description="As exported; a histogram without parts."
    )
    type: SeriesType = Field(description="Counter, gauge or histogram.")
    unit: str = Field(description="Base unit of the value.")
    labels: tuple[str, ...] = Field(description="Labels that the engine sets.")
    since: str = Field(description="Oldest release of the engine in which the name was seen.")
    needs: str | None = Field(default=None, description="Engine flag without which it is absent.")
    note: str = Field(description="What is counted, and what is easily taken for it.")

    @model_validator(mode="after")
    def _counters_end_in_total(self) -> Self:
        if self.type is SeriesType.COUNTER and not self.name.endswith("_total"):
            raise ValueError(f"the counter {self.name} must be named as stored: with _total")
        return self


class Catalogue(StrictModel):
    """The series of one engine version."""

    engine: str = Field(description="Name of the engine.")
    version: str = Field(description="Release that the names were checked against.")
    source: str = Field(description="Where the names come from.")
    series: tuple[Series, ...] = Field(min_length=1, description="The series.")

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [one.name for one in self.series]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} stands twice")
        return self

    def find(self, stored_name: str) -> Series:
        """The series behind a stored name; ``x_bucket`` is a part of the histogram ``x``.

        Raises:
            InputError: If the engine version exports no such series, or it is named without the
                part of a histogram.
        """
        for one in self.series:
            if one.type is SeriesType.HISTOGRAM:
                if stored_name in {one.name + part for part in HISTOGRAM_PARTS}:
                    return one
            elif one.name == stored_name:
                return one
        known = [one.name for one in self.series]
        raise InputError(
            f"{self.engine} {self.version} exports no series '{stored_name}'",
            hint=did_you_mean(stored_name, known),
        )


@cache
def load_catalogue() -> Catalogue:
    """The catalogue that ships with prefixctl (vLLM 0.32)."""
    data = resources.files("prefixctl.sources").joinpath(CATALOGUE_FILE).read_bytes()
    catalogue, _ = load_model(Catalogue, data, CATALOGUE_FILE)
    return catalogue
