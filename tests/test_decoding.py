"""Two threads that decode a struct for the first time, at the same moment."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import PATIENCE

PROGRAM = """
import threading, time
from msgspec import Struct, convert
from iris_cli.decoding import prepare_type

reading, second = threading.Event(), threading.Event()

class Slow:
    def __class_getitem__(cls, kind):  # called while the annotations are read
        reading.set()
        second.wait()
        time.sleep(0.2)  # the second thread gets as far as it can
        return kind

class Inner(Struct):
    number: "Slow[int]"

class Outer(Struct):
    inner: Inner
    text: str

def decode():
    return convert({"inner": {"number": 2}, "text": "x"}, prepare_type(Outer)).inner.number

first = threading.Thread(target=decode)
first.start()
reading.wait()
second.set()
print(decode())
first.join()
"""


def test_a_struct_that_two_threads_decode_first_at_once_is_decoded_by_both() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "2\n"), ran.stderr
