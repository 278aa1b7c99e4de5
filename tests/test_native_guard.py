"""No exception of C++ crosses into its caller: every function of the library goes through the guard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parent.parent / "xmcjax" / "native"
SOURCES = sorted(NATIVE.rglob("*.cc"))
# The body of an exported function begins with a call of the guard, perhaps returned, after what cannot throw.
EXPORTED = re.compile(r"^XMCJAX_EXPORT [^;{]*?\b(xmcjax_\w+)\([^{]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
GUARDS = ("guarded(", "guarded_call(", "guarded_value(", "guarded_value<")


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if "XMCJAX_EXPORT" in p.read_text()], ids=lambda p: p.name
)
def test_every_exported_function_is_guarded(path):
    text = path.read_text()
    bodies = dict(EXPORTED.findall(text))
    assert len(bodies) == text.count("XMCJAX_EXPORT "), "a function of another form than this test reads"
    assert [name for name, body in bodies.items() if not any(guard in body for guard in GUARDS)] == []


def test_every_handler_of_xla_is_guarded():
    made = [path.name for path in SOURCES if re.search(r"\bFfi::Bind\(\)[^;]*\.To\(", path.read_text())]
    assert made == []
    macro = (
        (NATIVE / "interface" / "ffi_support.h")
        .read_text()
        .split("#define XMCJAX_HANDLER", 1)[1]
        .split("\n\n")[0]
    )
    assert "Guarded<&implementation>::call" in macro
