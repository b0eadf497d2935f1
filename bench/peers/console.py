"""What compare and growth share towards whoever runs them."""
import argparse
import sys


def parse_size(word):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(word[-1:].upper(), 1)
    digits = word if unit == 1 else word[:-1]
    if not digits.isdigit() or int(digits) * unit < 64:
        raise argparse.ArgumentTypeError(f"{word} is no size such as 1K, 64K, 1M, 256M")
    return int(digits) * unit


def listed(one, allowed=None):
    def parse(words):
        found = [one(w) for w in words.split(",") if w]
        unknown = [str(f) for f in found if allowed and f not in allowed]
        if unknown or not found:
            raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown) or 'empty list'}; there are: {', '.join(map(str, allowed or []))}")
        return found
    return parse


class Progress:
    """A line on standard error if that is a terminal."""

    def __init__(self):
        self.shown = 0

    def __call__(self, line):
        if sys.stderr.isatty():
            sys.stderr.write("\r" + line[:150].ljust(self.shown))
            sys.stderr.flush()
            self.shown = len(line[:150])

    def say(self, line):
        if self.shown:
            sys.stderr.write("\r" + " " * self.shown + "\r")
            self.shown = 0
        print("compare: " + line, file=sys.stderr, flush=True)
