"""Prices of machines, from a file of the organization.

No price ships with fedperf: published prices grow old and do not show discounts. An hour of a
cluster costs the price of its machines plus that of its cores and memory. A machine costs the
price of its type if the file has it, otherwise that of any machine.
"""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fedperf_shared.execution import ClusterConfig
from fedperf_shared.runtime.settings_file import WrongSettingsError, load_model

_HOUR = 3600.0
_GIB = 2**30
_LEAST = 0.0001
_Price = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class PriceList(BaseModel):
    """Prices per hour."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: Annotated[str, Field(max_length=3)] = "$"  # sign before an amount
    node: _Price = 0.0  # of a machine whose type has no price of its own
    core: _Price = 0.0  # of a core
    gib: _Price = 0.0  # of a GiB of memory
    node_types: dict[str, _Price] = {}  # of a machine, by its type

    def cost(self, cluster: ClusterConfig, seconds: float, *, node_type: str = "") -> float:
        """Return the cost of a cluster for a number of seconds."""
        machine = self.node_types.get(node_type, self.node)
        hour = cluster.nodes * machine + cluster.cores * self.core
        hour += cluster.memory_bytes / _GIB * self.gib
        return hour * seconds / _HOUR

    def text(self, amount: float) -> str:
        """Format an amount for people."""
        sign = f"{self.currency} " if self.currency.isalpha() else self.currency
        if 0 < amount < _LEAST:
            return f"under {sign}{_LEAST}"
        return f"{sign}{amount:,.2f}" if amount >= 1 else f"{sign}{amount:.3g}"


def cost_text(cost: float, prices: PriceList | None, *, largest: float = 0.0) -> str:
    """Format a cost for people: money if there are prices, otherwise core-seconds or core-hours.

    Args:
        cost: in money, or in core-seconds.
        prices: that the cost was computed with; None for core-seconds.
        largest: of the costs that are shown together and have the same unit.
    """
    if prices is not None:
        return prices.text(cost)
    if max(cost, largest) >= _HOUR:
        return f"{cost / _HOUR:.3g} core-hours"
    return f"{cost:.0f} core-seconds" if cost >= 100 else f"{cost:.3g} core-seconds"  # noqa: PLR2004


def load_prices(path: Path) -> PriceList:
    """Read prices from a TOML file.

    Raises:
        ConfigurationError: it is missing, not TOML, or wrong; every problem is named.
    """
    prices = load_model(path, PriceList, absent="write one such as: core = 0.05")
    if not any((prices.node, prices.core, prices.gib, *prices.node_types.values())):
        raise WrongSettingsError(
            str(path), ["no price: give at least one of node, core, gib, per hour"]
        )
    return prices
