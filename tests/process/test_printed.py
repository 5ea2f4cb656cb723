"""What a program prints while it is run several times."""

import io
import threading

from sdyscope.process.printed import Printed, each_line_once


def test_a_line_is_passed_on_once(capsys):
    with each_line_once() as printed:
        for step in range(3):
            print("loss", 0.5)
            print(f"step {step}")
        print("not ended", end="")
    print("after")
    assert capsys.readouterr().out.splitlines() == [
        "loss 0.5",
        "step 0",
        "step 1",
        "step 2",
        "not ended",
        "after",
    ]
    assert (printed.lines, printed.again) == (7, 2)


def test_lines_of_several_threads_stay_whole():
    stream = io.StringIO()
    printed = Printed(stream)
    printed.write("half of ")
    other = threading.Thread(target=lambda: printed.write("another\n"))
    other.start()
    other.join()
    printed.write("one\n")
    assert stream.getvalue() == "another\nhalf of one\n"
