"""Call C++ functions of a shared library through ctypes, with arguments and results as g++ and libstdc++ pass them.

Names are mangled (Itanium C++ ABI). The caller passes the address of memory for each result that is not a plain number
(System V ABI for AMD64, 3.2.3): `find` returns None on other processors.
"""

from __future__ import annotations

import ctypes
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# Room for what a function returns in memory of its caller.
WORDS = 32
# std::string of libstdc++ keeps up to so many characters in itself, after its pointer and its length.
SHORT = 15
# What arguments point to; Python would free it while the library still reads.
KEPT: list[Any] = []


def find(libraries: list[ctypes.CDLL], *names: str) -> Any | None:
    """Return the first of these C++ functions that a library exports; None on another calling convention."""
    if platform.machine() != "x86_64":
        return None
    for library in libraries:
        for name in names:
            try:
                return getattr(library, name)
            except AttributeError:
                continue
    return None


def status_is_ok(function: Any) -> bool:
    """Call a function that returns a Status, or one with a value.

    Its first word is 0 or 1 for OK: a null pointer up to TensorFlow 2.14, since then Abseil's code shifted by two.
    It is in memory that the caller provides, whose address the function returns (System V ABI for AMD64, 3.2.3); or in
    the register itself, where the compiler was told that a Status may travel so (Abseil's ABSL_ATTRIBUTE_TRIVIAL_ABI).
    """
    answer = (ctypes.c_uint64 * WORDS)()
    function.restype, function.argtypes = ctypes.c_uint64, [ctypes.c_void_p]
    returned = function(ctypes.addressof(answer))
    return (answer[0] if returned == ctypes.addressof(answer) else returned) >> 2 == 0


def string(text: bytes) -> Any:
    """The address of a std::string: pointer, length, capacity."""
    memory = ctypes.create_string_buffer(text)
    words = (ctypes.c_uint64 * 4)(ctypes.addressof(memory), len(text), len(text), 0)
    KEPT.extend((memory, words))
    return ctypes.c_void_p(ctypes.addressof(words))


def view(text: bytes) -> list[Any]:
    """A std::string_view as the calling convention passes it: length and pointer in two registers."""
    memory = ctypes.create_string_buffer(text)
    KEPT.append(memory)
    return [ctypes.c_uint64(len(text)), ctypes.c_void_p(ctypes.addressof(memory))]


def called(function: Any, *arguments: Any) -> str | None:
    """The std::string that a function returns in the caller's memory, by itself or in a StatusOr; None: it failed."""
    answer = (ctypes.c_uint64 * WORDS)()
    function.restype = None
    function(ctypes.c_void_p(ctypes.addressof(answer)), *arguments)
    # A StatusOr has its status before the string: 0 or 1 for OK, else a code, or a pointer with nothing after it.
    starts = [start for start in ((0,) if answer[0] >> 2 else (1,)) if is_string(answer, start)]
    return ctypes.string_at(answer[starts[0]], answer[starts[0] + 1]).decode() if starts else None


def is_string(words: ctypes.Array[ctypes.c_uint64], at: int) -> bool:
    """Whether a std::string of libstdc++ begins at this word: pointer, length, and its characters or the capacity."""
    pointer, length, capacity = words[at : at + 3]
    if pointer == ctypes.addressof(words) + 8 * (at + 2):
        return length <= SHORT
    return pointer > 0 and max(length, SHORT + 1) <= capacity


def strings(function: Any) -> list[str]:
    """The std::vector of std::string that a function returns."""
    answer = (ctypes.c_uint64 * WORDS)()
    function.restype = None
    function(ctypes.c_void_p(ctypes.addressof(answer)))
    ends = range(answer[0], answer[1], 32)
    return [
        ctypes.string_at(ctypes.c_uint64.from_address(at).value, ctypes.c_uint64.from_address(at + 8).value).decode()
        for at in ends
    ]
