"""schema.py WEIR: what every command prints with --json is what docs/json.schema.json says."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TYPES = {"number": (int, float), "integer": int, "string": str, "boolean": bool, "null": type(None), "object": dict,
         "array": list}


def is_a(value, names):
    names = [names] if isinstance(names, str) else names
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, TYPES[n]) for n in names)


def problems(value, schema, where):
    """The part of JSON Schema that the file uses."""
    found = []
    if "anyOf" in schema:
        each = [problems(value, s, where) for s in schema["anyOf"]]
        return [] if [] in each else min(each, key=len)
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where} is {value!r}, none of {schema['enum']!r}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{where} is {value!r}, not {schema['const']!r}")
    if "type" in schema and not is_a(value, schema["type"]):
        return [f"{where} is {value!r}, no {schema['type']}"]
    if isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties", True)
        found += [f"{where} has no {k}" for k in schema.get("required", []) if k not in value]
        for k, v in value.items():
            rule = known.get(k, other)
            if rule is False:
                found.append(f"{where}.{k} is not in the schema")
            elif rule is not True:
                found += problems(v, rule, f"{where}.{k}")
    if isinstance(value, list):
        for i, v in enumerate(value):
            found += problems(v, schema.get("items", {}), f"{where}[{i}]")
    return found


def look_at_errors(weir, rule, program, folder):
    """A command that fails prints its errors as an object, with the place of each."""
    bad, race = os.path.join(folder, "bad.weir"), os.path.join(folder, "race.weir")
    with open(bad, "w", encoding="utf-8") as f:
        f.write("fusion f {\n  x : f32[4]\n  y = rellu(x)\n  z = x + q\n  return y\n}\n")
    with open(race, "w", encoding="utf-8") as f:
        f.write("host race(x : f32[4]) -> (y) {\n  t : f32[4] = allocate()\n  y : f32[4] = allocate()\n"
                "  main = current_stream()\n  t <- neg(x)\n  set_stream(0)\n  y <- abs(t)\n"
                "  set_stream(main)\n  wait_stream(0)\n}\n")
    found = []
    for line, code, line_number, suggestion in (
            (["run", bad], 2, 3, "relu"), (["lower", bad], 2, 3, "relu"), (["fmt", bad], 2, 3, "relu"),
            (["verify", race], 1, 7, None), (["run", race], 1, 7, None), (["run", program], 2, 4, None),
            (["run", folder], 2, None, None), (["run", program, "--devces", "2"], 2, None, None),
            (["view", bad], 2, None, None), (["list", "nothing"], 2, None, None), (["machine"], 2, None, None),
            (["run", os.path.join(folder, "caf\udce9.weir")], 2, None, None),
            (["draw", program, "-o", "x.png"], 2, None, None), (["bound", program], 2, 4, None)):
        done = subprocess.run([weir, *line, "--json"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False, errors="surrogateescape")
        name = ascii(" ".join(line))
        if done.returncode != code:
            found.append(f"{name}: exit {done.returncode}, not {code}")
        if len(done.stdout.splitlines()) != 1:
            found.append(f"{name}: prints {ascii(done.stdout)}")
            continue
        value = json.loads(done.stdout.encode("utf-8", "surrogateescape").decode("utf-8"))
        found += [f"{name}: {p}" for p in problems(value, rule, "errors")]
        first = value["errors"][0]
        if first.get("line") != line_number or first.get("suggestion") != suggestion:
            found.append(f"{name}: {first}")
    return found


def main():
    weir, failures, seen = os.path.abspath(sys.argv[1]), [], set()
    with open(os.path.join(ROOT, "docs", "json.schema.json"), encoding="utf-8") as f:
        rules = json.load(f)["definitions"]
    program = os.path.join(ROOT, "examples", "row_parallel_linear.weir")
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(program, folder)
        trace, out = os.path.join(folder, "t.json"), os.path.join(folder, "out.%r.npy")
        for line in (["run", program, "-D", "t=6"], ["run", program, "-D", "t=6", "--check", "--stats"],
                     ["run", program, "-D", "t=6", "--device", "sim", "--stats", "--trace", trace],
                     ["run", program, "-D", "t=6", "--output", "out=" + out],
                     ["run", program, "-D", "t=6", "--device", "ref", "--stats"],
                     ["lower", program], ["opt", program, "--passes", "default"], ["verify", program, "-D", "t=6"],
                     ["verify", program], ["why", program, "out"], ["fmt", program], ["bound", program, "-D", "t=6"],
                     ["draw", program, "-D", "t=6"], ["view", trace], ["doctor"], ["machine", "show"],
                     ["list", "ops"], ["list", "options"], ["completion", "fish"], ["why", program, "--memory", "-D", "t=6"],
                     ["draw", program, "-o", os.path.join(folder, "d.svg")], ["fmt", copy, "--write"],
                     ["run", program, "-D", "t=6", "--repeat", "3", "--quiet"]):
            done = subprocess.run([weir, *line, "--json"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  check=False)
            seen.add(line[0])
            if done.returncode or not done.stdout:
                failures.append(f"{line}: exit {done.returncode}: {done.stderr}")
            for text in done.stdout.splitlines():
                failures += [f"{' '.join(line)}: {p}" for p in problems(json.loads(text), rules[line[0]], line[0])]
        failures += look_at_errors(weir, rules["errors"], program, folder)
        usage = subprocess.run([weir, "--help"], text=True, stdout=subprocess.PIPE, check=True).stdout
    commands = {l.split()[1] for l in usage.splitlines() if l.startswith("  weir ") and not l.split()[1].startswith("--")}
    failures += [f"nobody looked at {c}" for c in commands - seen]
    for f in failures:
        print(f)
    print("failures:", len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
