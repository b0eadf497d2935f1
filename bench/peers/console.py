"""What compare, growth and check-selector share towards whoever runs them."""
import argparse
import difflib
import sys
import textwrap


class Help(argparse.RawDescriptionHelpFormatter):
    """Lines break at blanks alone: openmpi-keep is one word, and so is a file's name."""

    def _split_lines(self, text, width):
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


class Parser(argparse.ArgumentParser):
    """Says which option was probably meant."""

    def __init__(self, **named):
        super().__init__(formatter_class=Help, **named)
        self.option_names = ["--help"]

    def add_argument(self, *names, **named):
        self.option_names = [*getattr(self, "option_names", ()), *(n for n in names if n.startswith("--"))]
        return super().add_argument(*names, **named)

    def parse_args(self, args=None, namespace=None):
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            options = {plain(n): n for n in self.option_names}
            near = [options[n] for w in rest if w.startswith("--")
                    for n in difflib.get_close_matches(plain(w.split("=")[0]), options, 1)]
            self.error(f"unrecognized arguments: {' '.join(rest)}{meant(near)}")
        return found


def parse_size(word):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(word[-1:].upper(), 1)
    digits = word if unit == 1 else word[:-1]
    if not digits.isdigit() or int(digits) * unit < 64:
        raise argparse.ArgumentTypeError(f"{word} is no size such as 1K, 64K, 1M, 256M")
    return int(digits) * unit


def plain(word):
    """A name in one spelling: all_reduce, AllReduce and allreduce are the same."""
    return word.lower().replace("_", "").replace("-", "")


def meant(near):
    return f" (did you mean {' and '.join(dict.fromkeys(near))}?)" if near else ""


def unknown(words, known):
    """What to say of words that are none of those known: which there are, and what was probably meant."""
    spellings = {plain(k): k for k in known}
    near = [spellings[n] for w in words for n in difflib.get_close_matches(plain(w), spellings, 1)]
    return f"there is no {', '.join(words)}; there are: {', '.join(known)}{meant(near)}"


def listed(one, allowed=()):
    def parse(words):
        found = [one(w) for w in words.split(",") if w]
        if not found:
            raise argparse.ArgumentTypeError("it is empty" + (f"; there are: {', '.join(map(str, allowed))}" if allowed else ""))
        wrong = [str(f) for f in found if allowed and f not in allowed]
        if wrong:
            raise argparse.ArgumentTypeError(unknown(wrong, [str(a) for a in allowed]))
        twice = sorted({str(f) for f in found if found.count(f) > 1})
        if twice:
            raise argparse.ArgumentTypeError(f"{', '.join(twice)} is there twice")
        return found
    return parse


class Progress:
    """A line on standard error that is overwritten, if that is a terminal; else a line for what is done."""

    def __init__(self, name):
        self.name = name
        self.shown = 0

    def __call__(self, line):
        if sys.stderr.isatty():
            sys.stderr.write("\r" + line[:150].ljust(self.shown))
            sys.stderr.flush()
            self.shown = len(line[:150])

    def done(self, line):
        if not sys.stderr.isatty():
            self.say(line)

    def say(self, line):
        if self.shown:
            sys.stderr.write("\r" + " " * self.shown + "\r")
            self.shown = 0
        print(f"{self.name}: {line}", file=sys.stderr, flush=True)
