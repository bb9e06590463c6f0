"""What runs beside the student's code of assignment 0: plain data in, plain data out.

Given types are built in the rank's own copy of the solution's `given` module, and taken apart here.
"""

from __future__ import annotations

import importlib
import numbers
import traceback
from collections.abc import Mapping
from typing import Any

from grader.checks.context import RankContext


def calls(ctx: RankContext, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Call the function of `inputs["task"]` once for each of `inputs["cases"]`.

    A case: `arguments`, by keyword; what is of a given type stands there as {"given": its name,
    …fields}. The answer: `returned`, as plain data, or `error`: type, message, where it was raised.
    """
    function = ctx.function(inputs["task"])
    given = importlib.import_module(".given", function.__module__.rpartition(".")[0])
    answers = []
    for case in inputs["cases"]:
        arguments = {name: _built(value, given) for name, value in case["arguments"].items()}
        answer: dict[str, Any] = {"returned": None, "error": None}
        try:
            answer["returned"] = _plain(ctx.call(function, **arguments))
        except NotImplementedError:
            raise
        except Exception as raised:
            answer["error"] = _error(raised)
        answers.append(answer)
    return answers


def _built(value: Any, given: Any) -> Any:
    """Arguments as the student's function takes them."""
    if isinstance(value, list):
        return [_built(each, given) for each in value]
    if not isinstance(value, dict):
        return value
    fields = dict(value)
    kind = fields.pop("given")
    if kind == "Topology":
        fields["links"] = {(a, b): link for a, b, link in fields["links"]}
        for name in ("cpu_affinity", "numa_affinity"):
            fields[name] = {gpu: tuple(cells) for gpu, cells in fields[name].items()}
        fields["gpus"], fields["nics"] = tuple(fields["gpus"]), tuple(fields["nics"])
    return getattr(given, kind)(**fields)


def _plain(value: Any) -> Any:
    """Numbers, text, lists and dicts; what is of another type is told by {"type": its name}."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if type(value).__name__ == "Topology":
        return _topology(value)
    if hasattr(value, "_fields") or hasattr(value, "__dataclass_fields__"):
        names = getattr(value, "_fields", None) or list(value.__dataclass_fields__)
        return {name: _plain(getattr(value, name)) for name in names}
    if hasattr(value, "nodes") and hasattr(value, "edges"):
        return _graph(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ndarray":
        return [_plain(each) for each in value]
    return {"type": type(value).__name__}


def _topology(value: Any) -> dict[str, Any]:
    return {
        "gpus": _plain(list(value.gpus)),
        "nics": _plain(list(value.nics)),
        "links": [[str(a), str(b), _plain(kind)] for (a, b), kind in value.links.items()],
        "cpu_affinity": _affinity(value.cpu_affinity),
        "numa_affinity": _affinity(value.numa_affinity),
        "nic_names": _plain(dict(value.nic_names)),
    }


def _affinity(cells: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(gpu): [_plain(number) for number in cells[gpu]] for gpu in cells}


def _graph(graph: Any) -> dict[str, Any]:
    """A graph with its nodes numbered: kinds by number, and (number, number, bandwidth)."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    return {
        "directed": bool(graph.is_directed()),
        "kinds": [_plain(kind) for _, kind in graph.nodes(data="kind")],
        "edges": [[number[a], number[b], _plain(rate)]
                  for a, b, rate in graph.edges(data="bandwidth")],
    }  # fmt: skip


def _error(raised: Exception) -> dict[str, str]:
    frame = traceback.extract_tb(raised.__traceback__)[-1]
    where = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
    return {"type": type(raised).__name__, "message": str(raised)[:2000], "where": where}
