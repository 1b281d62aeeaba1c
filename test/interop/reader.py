"""Reads Iceberg snapshots with PyIceberg and with DuckDB's iceberg extension.

A request a line on standard input, an answer a line on standard output, both JSON, as process.go says. Both libraries
give Arrow; values are printed from its buffers in the form of doc.go, since Python has no date before the year 1.
"""

import importlib
import json
import os
import re
import struct
import sys
import traceback
import uuid

import duckdb
import pyarrow as pa
import pyarrow.types as pat
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThan


def texts(array):
    """The text of each value of an Arrow array."""
    kind = array.type
    if isinstance(kind, pa.UuidType):
        return scalars(array.storage, lambda v: str(uuid.UUID(bytes=v)))
    if isinstance(kind, pa.Bool8Type):
        return texts(array.storage.cast(pa.bool_()))
    if pat.is_list(kind) or pat.is_large_list(kind):
        elements = iter(texts(array.flatten()))
        return [
            "null" if length is None else "[" + ",".join(next(elements) for _ in range(length)) + "]"
            for length in array.value_lengths().to_pylist()
        ]
    if pat.is_date32(kind):
        return scalars(array.view(pa.int32()), str)
    if pat.is_timestamp(kind) or pat.is_time64(kind):
        if kind.unit != "us":
            raise TypeError(f"not microseconds: {kind}")
        return scalars(array.view(pa.int64()), str)
    if pat.is_boolean(kind):
        return scalars(array, lambda v: "true" if v else "false")
    if pat.is_int32(kind) or pat.is_int64(kind):
        return scalars(array, str)
    if pat.is_float32(kind):
        return scalars(array, lambda v: "nan" if v != v else "0x" + struct.pack(">f", v).hex())
    if pat.is_float64(kind):
        return scalars(array, lambda v: "nan" if v != v else "0x" + struct.pack(">d", v).hex())
    if pat.is_decimal(kind):
        return scalars(array, lambda v: format(v, "f"))
    if pat.is_string(kind) or pat.is_large_string(kind) or kind == pa.string_view():
        return scalars(array, lambda v: "'" + v.replace("'", "''") + "'")
    if pat.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return scalars(array, lambda v: str(uuid.UUID(bytes=v)))
    if pat.is_binary(kind) or pat.is_large_binary(kind) or kind == pa.binary_view():
        return scalars(array, lambda v: "\\x" + v.hex())
    raise TypeError(f"no text form for type {kind}")


def scalars(array, text):
    return ["null" if v is None else text(v) for v in array.to_pylist()]


def result(batches, files):
    """The answer for a RecordBatchReader."""
    rows = [list(row) for batch in batches for row in zip(*(texts(column) for column in batch.columns))]
    return {"columns": batches.schema.names, "rows": rows, "files": files}


def digest(connection, row, source):
    """What digest.go says, of the rows of something that DuckDB can select from."""
    rows = f"SELECT {row} AS text FROM {source}"
    query = f"SELECT coalesce(md5(string_agg(text, chr(30) ORDER BY text)), '') FROM ({rows})"
    return connection.execute(query).fetchone()[0]


class PyIceberg:
    def __init__(self):
        self.catalogs = {}
        self.connection = connect()  # makes texts of Arrow batches, and is faster at it than Python

    def table(self, request):
        path = request["catalog"]
        if path not in self.catalogs:
            self.catalogs[path] = SqlCatalog(
                request["catalog_name"],
                uri=f"sqlite:///{path}",
                warehouse=request["warehouse"],
                init_catalog_tables="false",
            )
        return self.catalogs[path].load_table((*request["namespace"].split("."), request["name"]))

    def digests(self, request):
        table = self.table(request)
        found = []
        for snapshot in request["digests"]:
            self.connection.register("scanned", table.scan(snapshot_id=snapshot).to_arrow_batch_reader())
            found.append(digest(self.connection, request["row"], "scanned"))
        return {"digests": found}

    def read(self, request):
        table = self.table(request)
        above = request.get("above")
        match = request.get("match")
        row_filter = AlwaysTrue() if above is None else GreaterThan("_pgmirror_lsn", above)
        if match is not None:
            row_filter = EqualTo(match["column"], uuid.UUID(match["uuid"]))
        scan = table.scan(row_filter=row_filter, snapshot_id=request["snapshot"])
        # to_arrow fails where no row is left and a column is a list of uuid: pyarrow cannot make such an empty table.
        return result(scan.to_arrow_batch_reader(), len(list(scan.plan_files())))


def connect():
    connection = duckdb.connect()
    # Arrow's own types for what has no Arrow type of that name (uuid), and microseconds in UTC.
    connection.execute("SET arrow_lossless_conversion = true; SET TimeZone = 'UTC'")
    return connection


class DuckDB:
    def __init__(self):
        self.connection = connect()
        for name in ("avro", "iceberg"):
            package = os.path.dirname(importlib.import_module(f"duckdb_extension_{name}").__file__)
            self.connection.execute(
                f"LOAD '{package}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'"
            )

    def snapshot(self, request, snapshot):
        metadata = request["metadata"].replace("'", "''")
        return f"iceberg_scan('{metadata}', snapshot_from_id := {int(snapshot)})"

    def digests(self, request):
        return {
            "digests": [
                digest(self.connection, request["row"], self.snapshot(request, snapshot))
                for snapshot in request["digests"]
            ]
        }

    def read(self, request):
        query = f"SELECT * FROM {self.snapshot(request, request['snapshot'])}"
        if request.get("above") is not None:
            query += f" WHERE _pgmirror_lsn > {int(request['above'])}"
        if request.get("match") is not None:
            query += f" WHERE \"{request['match']['column']}\" = '{request['match']['uuid']}'"
        files = self.files(query)
        return result(self.connection.execute(query).to_arrow_reader(), files)

    def files(self, query):
        """How many data files the query opened, as EXPLAIN ANALYZE counts them."""
        plan = self.connection.execute(f"EXPLAIN ANALYZE {query}").fetchall()[0][1]
        found = re.findall(r"Total Files Read: *(\d+)", plan)
        if not found:
            raise ValueError(f"no file count in the plan: {plan}")
        return int(found[0])


def main():
    readers = {"pyiceberg": PyIceberg(), "duckdb": DuckDB()}
    for line in sys.stdin:
        try:
            request = json.loads(line)
            reader = readers[request["reader"]]
            answer = reader.digests(request) if request.get("digests") else reader.read(request)
        except Exception as e:  # the caller shows it; the next request may still work
            traceback.print_exc()
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
