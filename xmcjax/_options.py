"""An option, described once: its name, its range, its default and what it means.

The check of an estimator's argument, the flag of a command and its row in docs/reference/cli.md follow from
it, and the tests compare the docstring of the estimator with it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from xmcjax._arguments import flag, job_count, name_of, number, whole_number


class Values(Protocol):
    """What an option may be."""

    def check(self, name: str, value: Any) -> Any:
        """The value; TypeError or ValueError in one sentence that begins with `name` where it is none."""

    def __str__(self) -> str:
        """The range for people, such as "above 0"."""
        ...


@dataclasses.dataclass(frozen=True)
class Real:
    """Finite numbers above `above`, or from `least`."""

    above: float | None = None
    least: float | None = None

    def check(self, name: str, value: Any) -> float:
        found = number(name, value)
        if self.above is not None and not self.above < found < math.inf:
            raise ValueError(f"{name}: expected a finite number {self}, got {value}")
        if self.above is None and not (self.least or 0) <= found < math.inf:
            raise ValueError(f"{name}: expected a finite number of {self}, got {value}")
        return found

    def __str__(self) -> str:
        return f"above {self.above:g}" if self.above is not None else f"at least {self.least or 0:g}"


@dataclasses.dataclass(frozen=True)
class Whole:
    """Whole numbers from `least`."""

    least: int

    def check(self, name: str, value: Any) -> int:
        return whole_number(name, value, self.least)

    def __str__(self) -> str:
        return f"at least {self.least}"


@dataclasses.dataclass(frozen=True)
class Switch:
    """True or False."""

    def check(self, name: str, value: Any) -> bool:
        return flag(name, value)

    def __str__(self) -> str:
        return ""


@dataclasses.dataclass(frozen=True)
class Jobs:
    """Numbers of threads as scikit-learn counts them; see :func:`xmcjax._arguments.job_count`."""

    def check(self, name: str, value: Any) -> int | None:
        job_count(value, name)
        return value

    def __str__(self) -> str:
        return "from 1, or -1 for one per core, -2 for all cores but one"


@dataclasses.dataclass(frozen=True)
class Verbosity:
    """True or False, or a whole number from 0, as scikit-learn takes it."""

    def check(self, name: str, value: Any) -> bool:
        return flag(name, value) if isinstance(value, bool | np.bool_) else whole_number(name, value, 0) > 0

    def __str__(self) -> str:
        return ""


@dataclasses.dataclass(frozen=True)
class Folds:
    """Numbers of folds from 2; or what scikit-learn takes for them, a splitter or pairs of rows."""

    def check(self, name: str, value: Any) -> Any:
        given = not isinstance(value, str | bytes | dict) and any(
            hasattr(value, a) for a in ("split", "__iter__")
        )
        return value if given else whole_number(name, value, 2)

    def __str__(self) -> str:
        return "at least 2"


@dataclasses.dataclass(frozen=True)
class Names:
    """Some texts."""

    names: tuple[str, ...]

    def check(self, name: str, value: Any) -> str:
        return name_of(name, value, self.names)

    def __str__(self) -> str:
        return f"one of {', '.join(self.names)}"


@dataclasses.dataclass(frozen=True)
class Option:
    """An argument of that name and, with a hyphen for each underscore, a flag.

    Attributes:
        name: of the argument.
        help: what it is, without a full stop. ``{clip}`` in it stands for the option ``clip``, as an argument
            or as a flag.
        default: the default of the argument.
        values: what is allowed; None where an object that is made with the option checks it.
        more: further sentences.
        optional: whether None is allowed too.
        flag_default: the default of the flag, where it differs from that of the argument.
        argument: whether it is an argument of the estimator; if not, an object with that field sets it.
        command: whether it is a flag of the command, too.
    """

    name: str
    help: str
    default: Any
    values: Values | None = None
    more: str = ""
    optional: bool = False
    flag_default: Any = ...
    argument: bool = True
    command: bool = True

    def check(self, value: Any, name: str = "") -> Any:
        """`value`, which is allowed.

        Args:
            value: what was given.
            name: for the error; the name of the option if it is empty.

        Raises:
            TypeError: of another kind.
            ValueError: out of range.
        """
        if (self.optional and value is None) or self.values is None:
            return value
        return self.values.check(name or self.name, value)

    def check_flag(self, value: Any) -> Any:
        """The argument of a flag, which has the text "none" in place of None; errors name the flag."""
        return self.check(None if value == "none" else value, self.flag)

    @property
    def flag(self) -> str:
        """The flag: with ``no-`` for one that is True where it is not given."""
        return flag_of(self.name, self.default)

    @property
    def of_flag(self) -> Any:
        """The default of the flag."""
        return self.default if self.flag_default is ... else self.flag_default

    def for_flag(self) -> str:
        """The text for ``--help`` and docs/reference/cli.md."""
        values = None if isinstance(self.values, Names) else self.values  # --help lists them beside the flag
        begin = f"turns off {self.name}: " if self.default is True else ""
        return begin + self._text(lambda name: "--" + name.replace("_", "-"), values, "")

    def for_argument(self) -> str:
        """The text with which the docstring of an estimator begins to describe the argument."""
        default = "" if self.default is None else f"; {self.default!r} by default"
        return self._text(lambda name: f"`{name}`", self.values, default)

    def _text(self, reference: Callable[[str], str], values: Values | None, default: str) -> str:
        allowed = f" ({values})" if values is not None and str(values) else ""
        text = f"{self.help}{allowed}{default}." + (f" {self.more}." if self.more else "")
        return re.sub(r"\{(\w+)\}", lambda found: reference(found[1]), text)


def flag_of(name: str, default: Any) -> str:
    """The flag of a field: ``--no-x`` for x that is True where the flag is not given."""
    return ("--no-" if default is True else "--") + name.replace("_", "-")


def table(options: Iterable[Option]) -> dict[str, Option]:
    """Options by name."""
    return {option.name: option for option in options}


#: Options of several estimators that have scikit-learn's names; each estimator says how it counts steps.
SHARED = table(
    [
        Option("C", "weight of the losses against the regularisation", 1.0, Real(above=0)),
        Option("fit_intercept", "whether there is a bias b", True, Switch()),
        Option(
            "n_jobs",
            "host threads",
            None,
            Jobs(),
            flag_default=-1,
        ),
        Option(
            "warm_start",
            "whether a fit goes on from the weights of the last one",
            False,
            Switch(),
            command=False,
        ),
        Option(
            "verbose",
            "from 1, or True, a bar shows how far a fit is, where stderr is a terminal",
            0,
            Verbosity(),
            command=False,
        ),
        Option("cv", "folds of the calibration", 5, Folds()),
    ]
)
#: What the option ``class_weight`` may be, but for a dict.
CLASS_WEIGHTS = Names(("balanced",))
#: What the argument `threads` is now called.
THREADS = "n_jobs, of which None is one thread and -1 one per core"
