"""Cluster costs from the organization's price file, and errors about invalid files."""

from pathlib import Path

import pytest

from fedperf_client.home.node_prices import PriceList, load_prices
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import ClusterConfig

CLUSTER = ClusterConfig(nodes=2, cores=16, memory_bytes=64 * 2**30)


def test_price_list_cost_adds_nodes_cores_and_memory() -> None:
    prices = PriceList(node=1.0, core=0.05, gib=0.01, node_types={"m5": 3.0})
    assert prices.cost(CLUSTER, 1800) == pytest.approx((2 + 0.8 + 0.64) / 2)
    assert prices.cost(CLUSTER, 1800, node_type="m5") == pytest.approx((6 + 0.8 + 0.64) / 2)


def test_price_list_text_formats_amounts_with_currency() -> None:
    texts = [PriceList(core=1).text(each) for each in (1234.5, 0.25, 0.00001, 0.0)]
    assert texts == ["$1,234.50", "$0.25", "under $0.0001", "$0"]
    assert PriceList(core=1, currency="EUR").text(2.0) == "EUR 2.00"


def test_load_prices_reads_node_types_from_file(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "EUR"\ncore = 0.05\n[node_types]\n"m5.xlarge" = 0.192\n')
    assert load_prices(path).node_types == {"m5.xlarge": 0.192}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no price"),
        ("cores = 0.05", 'did you mean "core"?'),
        ("core = -1", "core"),
        ("core = nan", "core"),
        ("core =", "not TOML"),
    ],
)
def test_load_prices_without_usable_prices_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"prices\.toml") as refused:
        load_prices(path)
    assert told in str(refused.value)


def test_load_prices_of_missing_file_shows_an_example(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"core = 0\.05"):
        load_prices(tmp_path / "none.toml")
