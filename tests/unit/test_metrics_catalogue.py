"""The metric catalogue is data with a source, and names nothing that is not stored."""

import pytest

from prefixctl.errors import InputError
from prefixctl.sources.catalogue import Catalogue, SeriesType, load_catalogue
from prefixctl.yamlfile import load_model

SERIES = """
engine: vllm
version: 0.32.0
source: here
series:
  - {name: "NAME", type: counter, unit: tokens, labels: [], since: 0.10.0, note: n}
"""


def test_the_catalogue_names_engine_version_and_source():
    catalogue = load_catalogue()
    assert (catalogue.engine, catalogue.version) == ("vllm", "0.32.0")
    assert "loggers.py" in catalogue.source


def test_a_counter_is_found_with_its_suffix_only():
    catalogue = load_catalogue()
    assert catalogue.find("vllm:prefix_cache_hits_total").type is SeriesType.COUNTER
    with pytest.raises(InputError, match="exports no series") as caught:
        catalogue.find("vllm:prefix_cache_hits")
    assert "vllm:prefix_cache_hits_total" in (caught.value.hint or "")


def test_a_histogram_is_found_by_its_parts_only():
    catalogue = load_catalogue()
    assert catalogue.find("vllm:iteration_tokens_total_count").type is SeriesType.HISTOGRAM
    with pytest.raises(InputError):
        catalogue.find("vllm:iteration_tokens_total")


def test_created_series_are_not_in_it():
    with pytest.raises(InputError):
        load_catalogue().find("vllm:prefix_cache_hits_created")


@pytest.mark.parametrize("name", ["vllm:prefix_cache_hits", "prefix_cache_hits_total"])
def test_a_counter_must_be_named_as_stored(name):
    with pytest.raises(InputError):
        load_model(Catalogue, SERIES.replace("NAME", name).encode(), "catalogue.yaml")


def test_no_name_stands_twice():
    line = SERIES.strip().splitlines()[-1]
    text = f"{SERIES}{line}\n".replace("NAME", "vllm:x_total")
    with pytest.raises(InputError, match="stands twice"):
        load_model(Catalogue, text.encode(), "catalogue.yaml")
