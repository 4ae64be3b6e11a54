"""Every operation that there is, as one type.

JSON is read into it by the key `type`; an operation that is not in the list is refused there.
"""

from typing import Annotated

from pydantic import Field

from fedperf_client.platforms.operations.analytic import (
    Embed,
    KMeans,
    KMeansAssign,
    LinearPredict,
    LinearRegression,
    PageRank,
)
from fedperf_client.platforms.operations.tabular import (
    Aggregate,
    Distinct,
    Filter,
    GlobalAggregate,
    Join,
    Project,
    ReadParquet,
    Sink,
    Sort,
    Tokenize,
    TopK,
    Union,
    Window,
)

AnyOperation = Annotated[
    ReadParquet
    | Project
    | Filter
    | Join
    | Aggregate
    | GlobalAggregate
    | Distinct
    | Sort
    | TopK
    | Union
    | Window
    | Tokenize
    | PageRank
    | KMeans
    | KMeansAssign
    | LinearRegression
    | LinearPredict
    | Embed
    | Sink,
    Field(discriminator="type"),
]
