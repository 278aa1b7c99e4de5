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
    handlers = text.count("XMCJAX_EXPORT XLA_FFI_Error* xmcjax_##name(")  # of XLA, see below
    exported = text.count("XMCJAX_EXPORT ") - handlers
    assert len(bodies) == exported, "a function of another form than this test reads"
    assert [name for name, body in bodies.items() if not any(guard in body for guard in GUARDS)] == []


def test_every_handler_of_xla_is_guarded():
    binding = re.compile(r"\bFfi::Bind\(\)[^;]*\.To\((.*?)\)")
    bound = {path.name: binding.findall(path.read_text()) for path in SOURCES}
    assert {name: made for name, made in bound.items() if made} == {"calls.cc": ["implementation"]}
    text = (NATIVE / "interface" / "calls.cc").read_text()
    # handler_of binds its argument; it is called once, with a function that calls `handle` alone.
    assert text.count("handler_of(") == 2
    assert re.search(r"handler_of\(\[\][^{]*\{[\s\\]*return handle\([^;]*;[\s\\]*\}\);", text)
    handle = re.search(r"^ffi::Error handle\([^{]*\) noexcept \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    assert handle and "= guarded([&] {" in handle[1]
