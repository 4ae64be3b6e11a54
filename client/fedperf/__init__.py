"""fedperf: predict how long jobs of data analytics take, and learn that together.

The programs are `fedperf`, `fedperf-server` and `fedperf-sim`; this package has their version.
"""

from importlib.metadata import version

__version__ = version("fedperf")
