"""commands.py WEIR PAGE... [--update]: runs the commands of pages and compares what they print.

A block ```console has commands (`$ `) and their output; a line `…` means any lines. A block
```weir NAME is a file, and so is ```text NAME. The commands of a page run in one folder, where `examples` and
`weir` are found. A picture that they write and docs/pictures has under the same name must be the same.
--update writes what was printed into the page, except where it has `…`, and replaces pictures."""
import os
import re
import shutil
import subprocess
import sys
import tempfile


def run(command, folder, environment):
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    return done.stdout.splitlines()


def loosely(line):
    """How far rounding went depends on the processor's instructions."""
    return re.sub(r"(max_abs|max_rel)=\S+", r"\1=", line)


def matches(expected, printed):
    """Exactly, apart from lines `…` and from how far results were off."""
    expected, printed = [loosely(l) for l in expected], [loosely(l) for l in printed]
    pattern = "".join("(.*\n)*" if line == "…" else re.escape(line) + "\n" for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def play(block, folder, environment, where, failures):
    """The lines of a console block with what the commands print now."""
    result, at = [], 0
    while at < len(block):
        command = block[at]
        if not command.startswith("$ "):
            failures.append(f"{where}: a console block begins with `$ `")
            return block
        end = at + 1
        while end < len(block) and not block[end].startswith("$ "):
            end += 1
        expected, printed = block[at + 1:end], run(command[2:], folder, environment)
        if not matches(expected, printed):
            failures.append("\n".join([f"{where}: {command}"] + ["  - " + l for l in expected] +
                                      ["  + " + l for l in printed]))
        result += [command] + (expected if "…" in expected else printed)
        at = end
    return result


def pictures(folder, source, page, update, failures):
    for name in sorted(os.listdir(folder)):
        made, kept = os.path.join(folder, name), os.path.join(source, "docs", "pictures", name)
        if not name.endswith(".svg") or not os.path.exists(kept):
            continue
        with open(made, "rb") as a, open(kept, "rb") as b:
            if a.read() == b.read():
                continue
        failures.append(f"{page}: docs/pictures/{name} is not what the command writes")
        if update:
            shutil.copyfile(made, kept)


def check(page, weir, update):
    root = os.path.dirname(os.path.abspath(weir))
    source = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")}
    environment["PATH"] = root + os.pathsep + environment["PATH"]
    failures, text = [], []
    with open(page, encoding="utf-8") as f:
        lines = f.read().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(source, "examples"), os.path.join(folder, "examples"))
        at = 0
        while at < len(lines):
            text.append(lines[at])
            fence = re.fullmatch(r"```(console|weir|text)( (\S+))?", lines[at])
            at += 1
            if not fence:
                continue
            end = lines.index("```", at)
            block = lines[at:end]
            if fence[1] != "console" and fence[3]:
                with open(os.path.join(folder, fence[3]), "w", encoding="utf-8") as f:
                    f.write("\n".join(block) + "\n")
            elif fence[1] == "console":
                block = play(block, folder, environment, f"{page}:{at + 1}", failures)
            text += block
            at = end
        pictures(folder, source, page, update, failures)
    if update and failures:
        with open(page, "w", encoding="utf-8") as f:
            f.write("\n".join(text) + "\n")
    return failures


def main():
    pages = [a for a in sys.argv[2:] if a != "--update"]
    failures = [f for page in pages for f in check(page, sys.argv[1], "--update" in sys.argv)]
    for f in failures:
        print(f)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
