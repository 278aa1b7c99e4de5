"""``--system`` of ``xmcjax train``: each system has a module with its flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xmcjax._systems import FIRST_SYSTEM, SYSTEMS
from xmcjax.cli._options import taken

_FLAG = "--system"
#: The module of each system, of this package.
MODULES = {FIRST_SYSTEM: "train"} | {
    system: f"train_{system.replace('-', '_')}" for system in SYSTEMS if system != FIRST_SYSTEM
}


def take_system(arguments: Sequence[str], config: dict[str, Any]) -> tuple[str, str, list[str]]:
    """The system that the flag asks for, its module, and the other arguments.

    Args:
        arguments: of the command.
        config: options of a file; ``system`` is taken out of it.

    Raises:
        ValueError: an unknown system, none behind the flag, or the flag twice.
    """
    found, rest = taken(_FLAG, arguments)
    if len(found) > 1:
        raise ValueError(f"{_FLAG}: expected it once, got it {len(found)} times")
    system = config.pop("system", FIRST_SYSTEM)
    system = found[0] if found else system
    if not isinstance(system, str) or system not in MODULES:
        raise ValueError(f"{_FLAG}: expected one of {', '.join(MODULES)}, got {system!r}")
    return system, MODULES[system], rest
