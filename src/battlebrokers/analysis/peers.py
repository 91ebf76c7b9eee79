"""Who the two ends of a stream are, by name, as the pipeline names them; read from rows of `streams`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.columns import text_scalar
from battlebrokers.analysis.traces import OUTSIDE


def client_names(rows: pa.Table) -> pa.ChunkedArray:
    """The service that opened each stream, or `outside`."""
    return pc.coalesce(rows["client_service"], text_scalar(OUTSIDE))


def server_names(rows: pa.Table) -> pa.ChunkedArray:
    """The service at the other end; one without a name is known by its address and port."""
    address = pc.binary_join_element_wise(rows["server"], pc.cast(rows["server_port"], pa.string()), text_scalar(":"))
    return pc.coalesce(rows["server_service"], address)
