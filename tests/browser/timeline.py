"""timeline.py WEIR: the page of a trace, in a real browser.

Exit code 77: there is no browser. PICTURES=FOLDER keeps pictures of what was seen, TIMED=1 asserts times."""
import json
import os
import subprocess
import sys
import tempfile

import chromium

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pipeline.weir")
PICTURES = os.environ.get("PICTURES")
failures = []


def expect(condition, words):
    if not condition:
        failures.append(words)
        print("FAILED:", words)


def picture(browser, name):
    if PICTURES:
        browser.picture(os.path.join(PICTURES, name + ".png"))


def centre(browser, expression):
    """Where a span is on the screen."""
    return browser.value(f"""(() => {{ const s = {expression}, box = document.getElementById('c').getBoundingClientRect();
      return [box.x + (page.xOf(s.start) + page.xOf(s.end)) / 2, box.y + page.yOf(s.lane.y) + page.LANE / 2]; }})()""")


def check_program(browser, weir, folder):
    """A pipelined program on four devices: everything the page says of it."""
    path = os.path.join(folder, "ag.html")
    subprocess.run([weir, "run", PROGRAM, "--device", "sim", "--pipeline", "ring", "--trace", path], check=True,
                   stdout=subprocess.DEVNULL)
    browser.open(path)
    expect(browser.value("page.ranks.length") > 1, "a header for every rank")
    expect(browser.value("page.lanes.every(l => l.rank.lanes.includes(l))"), "lanes are grouped by rank")
    expect(browser.value("page.spans.filter(s => s.kind === 0).length") > 0, "there is computing")
    expect(browser.value("page.spans.filter(s => s.kind === 1).length") > 0, "there is communication")
    head = browser.value("document.querySelector('header').innerText")
    for word in ("overlapped", "exposed per rank", "compute", "communication", "wait", "copy"):
        expect(word in head, f"the head says {word}")
    expect(browser.value("page.arrows.length") > 0, "there are arrows")
    expect(browser.value("page.arrows.every(a => a.a && a.b)"), "both ends of every arrow are spans")
    expect(browser.value("page.arrows.some(a => a.a.lane.rank !== a.b.lane.rank)"), "arrows between ranks")
    expect(browser.value("page.arrows.some(a => a.kind === 'wait')"), "arrows from a communication to its use")
    overlap = browser.value("page.ranks.map(r => r.sums)")
    for sums in overlap:
        expect(abs(sums["both"] + sums["exposed"] - sums["comm"]) < 1e-6, "exposed is what is not overlapped")
        expect(sums["both"] <= sums["compute"] + 1e-6, "overlap is at most the computing")
    picture(browser, "pipeline")

    x, y = centre(browser, "page.spans.find(s => s.kind === 0)")
    browser.mouse("mouseMoved", x, y)
    expect(browser.value("getComputedStyle(document.getElementById('tip')).display") == "block", "a tip at hovering")
    browser.click(x, y)
    side = browser.value("document.getElementById('side').innerText")
    for word in ("compute", "program", "<-", "line", "took"):
        expect(word in side, f"details of a span say {word}: {side}")
    picture(browser, "details")
    browser.key("Escape")
    expect(browser.value("document.getElementById('side').hidden"), "escape closes the details")

    before = browser.value("page.view.to - page.view.from")
    browser.key("w")
    expect(browser.value("page.view.to - page.view.from") < before, "w zooms in")
    start = browser.value("page.view.from")
    browser.key("d")
    expect(browser.value("page.view.from") > start, "d moves on")
    browser.key("0")
    expect(browser.value("page.view.to - page.view.from") == before, "0 shows everything")
    browser.key("/")
    for letter in "matmul":
        browser.key(letter)
    found = browser.value("document.getElementById('found').innerText")
    wanted = browser.value("page.spans.filter(s => s.name === 'matmul').length")
    expect(found and int(found.split()[0].replace(",", "")) >= wanted > 0, f"search finds matmul: {found}")
    browser.key("Enter")
    expect("matmul" in browser.value("document.getElementById('side').innerText"), "enter goes to a match")
    browser.key("Escape")
    browser.key("Escape")

    box = browser.value("(({x, y, width, height}) => [x, y, width, height])(document.getElementById('c').getBoundingClientRect())")
    middle = box[1] + box[3] - 20
    browser.drag(box[0] + 200, middle, box[0] + box[2] - 50, middle, shift=True)
    side = browser.value("document.getElementById('side').innerText")
    expect("by rank" in side and "matmul" in side, f"sums of a selected time: {side}")
    picture(browser, "selection")
    browser.key("Escape")
    shown = browser.value("page.lanes.filter(l => l.y !== null).length")
    y = browser.value("page.yOf(page.ranks[0].y) + 8")
    browser.click(box[0] + 20, box[1] + y)
    expect(browser.value("page.lanes.filter(l => l.y !== null).length") < shown, "a click on a rank folds it")
    expect(not browser.errors, f"no script error: {browser.errors}")


def big_trace(path, n_ranks=8, n=100_000):
    events = []
    for rank in range(n_ranks):
        events.append({"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": f"sim {rank}"}})
        for lane, name in enumerate(("main stream", "stream 0", "stream 1", "communication")):
            events.append({"ph": "M", "pid": rank, "tid": lane, "name": "thread_name", "args": {"name": name}})
    for i in range(n):
        rank, lane, k = i % n_ranks, i // n_ranks % 4, i // (4 * n_ranks)
        comm = lane == 3
        events.append({"ph": "X", "name": "allgather" if comm else "matmul", "pid": rank, "tid": lane,
                       "ts": 10 * k + lane, "dur": 7.5, "cat": "communication" if comm else "compute",
                       "args": {"bytes": 4096, **({} if comm else {"flops": 1e6})}})
    with open(path, "w") as f:
        json.dump({"traceEvents": events}, f)


def check_big(browser, weir, folder):
    """Many spans. With TIMED=1: ready within two seconds, and 30 frames a second while panning."""
    trace = os.path.join(folder, "big.json")
    big_trace(trace)
    subprocess.run([weir, "view", trace], check=True, stdout=subprocess.DEVNULL)
    browser.open(os.path.join(folder, "big.html"))
    ready = browser.value("page.ready_ms")
    # The time of a frame is that of drawing it: a loaded machine delays when frames are asked for.
    frame = browser.value("""(() => { const times = [];
      for (let i = 0; i < 60; i++) {
        page.view.from += 40; page.view.to += 40;
        const t = performance.now(); page.draw(); times.push(performance.now() - t);
      }
      return times.sort((a, b) => a - b)[30]; })()""")
    deep = browser.value("""(() => { page.view.from = 1000; page.view.to = 2000;
      const t = performance.now(); page.draw(); return performance.now() - t; })()""")
    print(f"100,000 spans: ready after {ready:.0f} ms, {frame:.1f} ms a frame, {deep:.1f} ms close up")
    picture(browser, "big")
    if os.environ.get("TIMED"):  # on a machine that does nothing else
        expect(ready < 2000, "interactive in 2 s")
        expect(frame < 33, "30 frames a second")
    expect(browser.value("page.spans.length") == 100_000, "all spans are there")


def main():
    weir = sys.argv[1]
    path = chromium.find()
    if not path:
        print("skipped: there is no chromium")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        browser = chromium.Browser(path)
        try:
            check_program(browser, weir, folder)
            check_big(browser, weir, folder)
        finally:
            browser.close()
    print("failures:", len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
