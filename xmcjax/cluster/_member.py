"""A process of a mesh that a worker of Dask starts: python -m xmcjax.cluster._member REQUEST ANSWER."""

from __future__ import annotations

import sys
from pathlib import Path

from xmcjax.cluster._mesh import join_mesh


def main(request: str, answer: str) -> None:
    """Joins the mesh, calls the function of the request and writes what it returns."""
    import cloudpickle

    coordinator, count, place, function, arguments = cloudpickle.loads(Path(request).read_bytes())
    mesh = join_mesh(coordinator, count, place)
    Path(answer).write_bytes(cloudpickle.dumps(function(mesh, *arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
