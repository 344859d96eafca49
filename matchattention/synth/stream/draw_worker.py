"""A process that draws scenes: requests come in through a pipe, blocks go out through another.

A message is a length and that many bytes of pickle; the bytes of a block follow its message. The process ends
when its input does, so it never outlives the one that started it, however that one ended.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
import traceback
from typing import IO, Any, NamedTuple

import torch

from matchattention.errors import InputError
from matchattention.synth.stream.blocks import DrawRequest, draw_block

LENGTH = struct.Struct("<Q")


class Drawn(NamedTuple):
    """Answer: a block's plan; ``size`` bytes follow."""

    plan: Any
    size: int


class Failed(NamedTuple):
    """Answer: why nothing could be drawn.

    Attributes:
        text: the error's type and message.
        of_input: whether the request itself was wrong, an `InputError`.
        details: the traceback.
    """

    text: str
    of_input: bool
    details: str


def send(pipe: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read one message.

    Raises:
        EOFError: the other side is gone.
    """
    return pickle.loads(_exactly(pipe, LENGTH.unpack(_exactly(pipe, LENGTH.size))[0]))


def _exactly(pipe: IO[bytes], count: int) -> bytes:
    data = pipe.read(count)
    if data is None or len(data) < count:
        raise EOFError("the pipe was closed")
    return data


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    while True:
        try:
            request: DrawRequest = receive(requests)
        except EOFError:
            return
        try:
            block = draw_block(request)
        except Exception as error:
            text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            send(answers, Failed(text, isinstance(error, InputError), traceback.format_exc()))
            continue
        send(answers, Drawn(block.plan, block.data.numel()))
        answers.write(block.data.numpy().data)
        answers.flush()


def main() -> None:
    """Serve the process that holds the other ends of the standard streams."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which may still want scenes
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not end up among the answers
    with contextlib.suppress(BrokenPipeError), torch.inference_mode():
        serve(sys.stdin.buffer, answers)
    os._exit(0)  # nothing to tidy up, and a closed pipe must not complain while Python ends
