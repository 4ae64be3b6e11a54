"""`run_results.json` and `manifest.json` as dbt 1.10 writes them, shortened."""

Json = dict[str, object]


def result(
    name: str,
    *,
    status: str = "success",
    seconds: float = 1.5,
    code: str = "select 1 as one",
    message: str = "OK",
) -> Json:
    """Return the result of a model of the project `shop`."""
    execute = {
        "name": "execute",
        "started_at": "2026-11-28T15:29:58.770339Z",
        "completed_at": "2026-11-28T15:29:59.301242Z",
    }
    return {
        "status": status,
        "timing": [{"name": "compile", "completed_at": None}, execute],
        "thread_id": "Thread-1 (worker)",
        "execution_time": seconds,
        "adapter_response": {"_message": message},
        "message": message,
        "failures": None,
        "unique_id": f"model.shop.{name}",
        "compiled": True,
        "compiled_code": code,
        "relation_name": f'"shop"."main"."{name}"',
    }


def run_results(*results: Json, invocation: str = "97bc115b-13d7-4417-a1ac") -> Json:
    """Return the results of one command of dbt."""
    return {
        "metadata": {
            "dbt_schema_version": "https://schemas.getdbt.com/dbt/run-results/v6.json",
            "dbt_version": "1.10.23",
            "generated_at": "2026-11-28T15:29:59.563207Z",
            "invocation_id": invocation,
        },
        "results": list(results),
        "elapsed_time": 2.1,
        "args": {},
    }


def manifest(**code: str | None) -> Json:
    """Return the manifest of models with these texts; None for one that is not compiled."""
    nodes: Json = {
        f"model.shop.{name}": {"resource_type": "model"} | ({"compiled_code": text} if text else {})
        for name, text in code.items()
    }
    nodes["test.shop.unique"] = {"resource_type": "test", "compiled_code": "select 1"}
    return {"metadata": {"dbt_version": "1.10.23", "adapter_type": "duckdb"}, "nodes": nodes}
