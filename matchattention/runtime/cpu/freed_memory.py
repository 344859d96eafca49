"""Freed memory stays with the process: the next pass would have to take it from the system again, page by page."""

from __future__ import annotations

import ctypes
import functools

AT_MOST = 1 << 29  # bytes of one block, and of free memory at the end of the heap
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc's allocator to keep what is free, for the whole process; whether it was told.

    By itself it gives blocks of 32 MB and more back at once, and a batch of eight pairs spent a quarter of its time in
    page faults. Other allocators and systems are left as they are.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library; Windows has no such handle
        return False
    return all(mallopt(option, AT_MOST) == 1 for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))
