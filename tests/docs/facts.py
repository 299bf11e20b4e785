"""facts.py WEIR: what pages say of the command is what the command says.

Links and anchors lead somewhere, commands with output are run, pictures are well-formed and used, the index has every
page, the table of tests has every room and names tests that exist, and the tables of passes, operations, options and
commands are those that `weir` prints."""
import glob
import os
import re
import subprocess
import sys
import xml.dom.minidom

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
WEIR = os.path.abspath(sys.argv[1])
failures = []


def expect(truth, what):
    if not truth:
        failures.append(what)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def weir(*arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")}
    return subprocess.run([WEIR, *arguments], text=True, check=True, stdout=subprocess.PIPE, env=environment).stdout


def pages():
    names = ["README.md", "CONTRIBUTING.md", "examples/README.md"] + glob.glob("docs/**/*.md", root_dir=ROOT, recursive=True)
    return sorted(names + glob.glob("tests/*.md", root_dir=ROOT))


def prose(text):
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def anchors(text):
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", prose(text), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def links():
    for page in pages():
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(read(page))):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            expect(os.path.exists(os.path.join(ROOT, full)), f"{page}: {target} leads nowhere")
            if anchor and full.endswith(".md") and os.path.exists(os.path.join(ROOT, full)):
                expect(anchor in anchors(read(full)), f"{page}: {full} has no heading #{anchor}")


def blocks():
    """Commands with output are in blocks that commands.py runs."""
    for page in pages():
        for fence, block in re.findall(r"^```(.*)\n(.*?)^```", read(page), flags=re.M | re.S):
            expect(fence == "console" or not re.search(r"^\$ (build/)?weir ", block, flags=re.M),
                   f"{page}: a command in a block that is not ```console is not run")


def index():
    listed = read("docs/README.md")
    for page in glob.glob("docs/*.md", root_dir=ROOT):
        name = os.path.basename(page)
        expect(name == "README.md" or f"({name})" in listed, f"docs/README.md: {name} is missing")


def pictures():
    used = "".join(read(p) for p in pages())
    for picture in glob.glob("docs/pictures/*.svg", root_dir=ROOT):
        xml.dom.minidom.parse(os.path.join(ROOT, picture))
        expect(f"pictures/{os.path.basename(picture)})" in used, f"{picture}: no page shows it")


def rooms():
    """In the picture a room is above all that it may include."""
    at = {name: float(y) for y, name in re.findall(r'y="(\d+)" class="mid">([\w/.]+)<', read("docs/pictures/rooms.svg"))}
    law = re.search(r"<!-- include law -->(.*?)<!--", read("docs/architecture.md"), flags=re.S)[1]
    parts = lambda room: [r for r in at if r.startswith(room[:-1])] if room.endswith("*") else [room]
    for row in re.findall(r"^\| `(.*)` \| (.*) \|$", law, flags=re.M):
        for room in parts(row[0].replace("weir", "weir.h") if row[0] == "weir" else row[0]):
            expect(room in at, f"docs/pictures/rooms.svg: {room} is missing")
            for below in re.findall(r"`([^`]*)`", row[1]):
                for other in parts("weir.h" if below == "weir" else below):
                    truth = room == other or at.get(room, 0) < at.get(other, 0)
                    expect(truth, f"docs/pictures/rooms.svg: {room} is not above {other}")


def tests():
    """Every room of the law has a row in the table of tests, and what the row names exists."""
    table = re.search(r"^## Which tests look at what$(.*?)^## ", read("docs/testing.md"), flags=re.M | re.S)[1]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", table, flags=re.M)
    have = [room for row in rows for room in re.findall(r"`([^`]*)`", row[0])]
    law = re.search(r"<!-- include law -->(.*?)<!--", read("docs/architecture.md"), flags=re.S)[1]
    for room in re.findall(r"^\| `(.*?)` \|", law, flags=re.M):
        known = room in ("weir", "examples") or any(name == room or name.startswith(room.rstrip("*")) for name in have)
        expect(known, f"docs/testing.md: no tests of room {room}")
    for name in {name for row in rows for name in re.findall(r"`([^`]*)`", row[1])}:
        found = glob.glob(f"tests/{name}", root_dir=ROOT) or os.path.exists(os.path.join(ROOT, name))
        expect(found, f"docs/testing.md: there is no test {name}")


def passes():
    expect(weir("list", "passes") in read("docs/passes.md"), "docs/passes.md: not the list of `weir list passes`")


def operations():
    """With their signatures; `key` and `of` are for host programs, and described there."""
    text = read("docs/language.md")
    for line in weir("list", "ops").splitlines():
        call = re.search(r"\w+\(.*\)", line)
        signature = re.sub(r", \[(key|of)=\]", "", call[0])
        expect(f"`{signature}`" in text, f"docs/language.md: operation {signature} is missing")


def options():
    text = read("docs/cli.md") + read("docs/passes.md")
    known = set(re.findall(r"^--([\w-]+)", weir("list", "options"), flags=re.M))
    for name in sorted(known):
        expect(f"--{name}" in text, f"docs/cli.md: option --{name} is missing")
    for page in ("docs/cli.md", "docs/passes.md", "docs/weir.1"):
        for name in re.findall(r"--([a-z][\w-]+)", read(page).replace("\\-", "-")):
            expect(name in known | {"help", "version", "no-python", "nproc-per-node"}, f"{page}: there is no --{name}")


def commands():
    manual, cli = read("docs/weir.1"), read("docs/cli.md")
    for name in re.findall(r"^  weir (\w+) ", weir("--help"), flags=re.M):
        expect(f".B weir {name}\n" in manual, f"docs/weir.1: the synopsis lacks weir {name}")
        expect(f".TP\n.B {name}\n" in manual, f"docs/weir.1: weir {name} is not described")
        expect(f"## weir {name}\n" in cli, f"docs/cli.md: weir {name} is not described")


for check in (links, blocks, index, pictures, rooms, tests, passes, operations, options, commands):
    check()
print("\n".join(failures))
sys.exit(1 if failures else 0)
