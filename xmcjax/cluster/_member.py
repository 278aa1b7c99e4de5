"""A process of a mesh that a worker of Dask starts: python -m xmcjax.cluster._member REQUEST ANSWER.

The process ends with the worker, which holds the other end of its standard input.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

from xmcjax.cluster._mesh import join_mesh


def main(request: str, answer: str) -> None:
    """Joins the mesh, calls the function of the request and writes what it returns."""
    import cloudpickle

    threading.Thread(target=_leave_with_the_worker, args=[Path(request).parent], daemon=True).start()
    coordinator, count, place, function, arguments = cloudpickle.loads(Path(request).read_bytes())
    mesh = join_mesh(coordinator, count, place)
    Path(answer).write_bytes(cloudpickle.dumps(function(mesh, *arguments)))


def _leave_with_the_worker(folder: Path) -> None:
    """Waits for the end of the worker, then removes its temporary folder and ends this process."""
    while os.read(0, 1):  # the worker writes nothing
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
