"""The file of rounds that compare and check-selector write while they measure: "# key: value" lines, then CSV."""
import csv
import datetime
import os


def read(path, fields):
    """(facts, rows) of a file; ValueError if it is one of something else. A last line without its end is left out."""
    facts, lines = {}, []
    with open(path, encoding="utf-8", newline="") as file:
        for line in file:
            if line.startswith("# ") and ": " in line:
                key, value = line[2:].rstrip("\r\n").split(": ", 1)
                facts[key] = value
            elif line.strip() and line.endswith("\n"):
                lines.append(line)
    rows = csv.DictReader(lines)
    if rows.fieldnames != list(fields):
        raise ValueError(f"its columns are {','.join(rows.fieldnames or ['none'])}, not {','.join(fields)}")
    return facts, list(rows)


class RoundFile:
    """A file that grows: what is measured is in it at once, whatever happens then."""

    def __init__(self, path, fields, resume, facts):
        """Goes on with the file if resume is true, else begins a new one and renames the one that is there."""
        self.fields, self.facts, self.rows = fields, facts, []
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        kept = resume and os.path.exists(path)
        if kept:
            self.facts, self.rows = read(path, fields)
            cut_torn_line(path)
        elif os.path.exists(path):
            os.replace(path, path + ".before")
        self.file = open(path, "a", encoding="utf-8", newline="")
        self.writer = csv.DictWriter(self.file, fields, lineterminator="\n")
        if not kept:
            for key, value in facts.items():
                self.file.write(f"# {key}: {value}\n")
            self.writer.writeheader()
            self.file.flush()

    def add(self, *rows):
        """All of them or, if it is killed, none."""
        self.writer.writerows(rows)
        self.file.flush()
        self.rows.extend(rows)


def cut_torn_line(path):
    with open(path, "rb+") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)


def now():
    return datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
