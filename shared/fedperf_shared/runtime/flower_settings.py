"""Flower's settings in this process: no telemetry, no update check, no printing.

To be called by the program before anything imports flwr, which reads them once.
"""

import logging
import os


def quiet_flower() -> None:
    """Keep Flower from calling home and from printing."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    logging.getLogger("flwr").disabled = True
    logging.getLogger("httpx").setLevel(logging.WARNING)
