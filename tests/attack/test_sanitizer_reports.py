"""Which reports of ThreadSanitizer are of a kernel's threads, and which of threads that XLA orders."""

from __future__ import annotations

import pytest

from tests.attack.sanitizers import handed_over_by_xla

# Stacks as they are printed, shortened.
CALL = """  Write of size 8 at 0x7b4000030400 by thread T3:
    #0 clear<double> xmcjax/native/simd_csr.cc:108 (libxmcjax_native.so+0x3be7f)
    #1 xla::ffi::Invoke <null> (libjax_common.so+0x3b973b0)"""
WORKER = """  Previous read of size 8 at 0x7b4000030400 by thread T5:
    #0 padded<double> xmcjax/native/simd_csr.cc:40 (libxmcjax_native.so+0x3afb0)
    #1 std::thread::_State_impl::_M_run() (libxmcjax_native.so+0x3ab10)"""
NUMPY = """  Previous write of size 8 at 0x7b4000030400 by main thread:
    #0 memmove (libtsan.so+0x5dc76)
    #1 _contig_to_contig <null> (_multiarray_umath.cpython-311-x86_64-linux-gnu.so+0x73d44)"""
PLAIN_CALL = """  Write of size 8 at 0x7b4000030400 by thread T7:
    #0 xmcjax_take_raised xmcjax/native/interrupt.cc:92 (libxmcjax_native.so+0x1f0)"""
LOST = "  Previous write of size 8 at 0x7b4000030400 by thread T20:\n    [failed to restore the stack]"


@pytest.mark.parametrize(
    ("first", "second", "handed_over"),
    [
        (CALL, CALL, True),
        (CALL, NUMPY, True),
        (CALL, LOST, True),
        (CALL, WORKER, False),
        (WORKER, WORKER, False),
        (WORKER, NUMPY, False),
        (PLAIN_CALL, LOST, False),
    ],
)
def test_races_of_a_kernels_threads_are_told_from_calls_of_xla(first, second, handed_over):
    report = (
        f"\nWARNING: ThreadSanitizer: data race (pid=1)\n{first}\n\n{second}\n\nSUMMARY: ThreadSanitizer\n"
    )
    assert handed_over_by_xla(report) is handed_over
