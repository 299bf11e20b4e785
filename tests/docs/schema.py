"""schema.py WEIR: what every command prints with --json is what docs/json.schema.json says."""
import json
import os
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


def main():
    weir, failures, seen = os.path.abspath(sys.argv[1]), [], set()
    with open(os.path.join(ROOT, "docs", "json.schema.json"), encoding="utf-8") as f:
        rules = json.load(f)["definitions"]
    program = os.path.join(ROOT, "examples", "row_parallel_linear.weir")
    with tempfile.TemporaryDirectory() as folder:
        trace, out = os.path.join(folder, "t.json"), os.path.join(folder, "out.%r.npy")
        for line in (["run", program, "-D", "t=6"], ["run", program, "-D", "t=6", "--check", "--stats"],
                     ["run", program, "-D", "t=6", "--device", "sim", "--stats", "--trace", trace],
                     ["run", program, "-D", "t=6", "--output", "out=" + out],
                     ["run", program, "-D", "t=6", "--device", "ref", "--stats"],
                     ["lower", program], ["opt", program, "--passes", "default"], ["verify", program, "-D", "t=6"],
                     ["verify", program], ["why", program, "out"], ["fmt", program], ["bound", program, "-D", "t=6"],
                     ["draw", program, "-D", "t=6"], ["view", trace], ["doctor"], ["machine", "show"],
                     ["list", "ops"], ["list", "options"]):
            done = subprocess.run([weir, *line, "--json"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  check=False)
            seen.add(line[0])
            if done.returncode or not done.stdout:
                failures.append(f"{line}: exit {done.returncode}: {done.stderr}")
            for text in done.stdout.splitlines():
                failures += [f"{' '.join(line)}: {p}" for p in problems(json.loads(text), rules[line[0]], line[0])]
        usage = subprocess.run([weir, "--help"], text=True, stdout=subprocess.PIPE, check=True).stdout
    commands = {l.split()[1] for l in usage.splitlines() if l.startswith("  weir ") and not l.split()[1].startswith("--")}
    failures += [f"nobody looked at {c}" for c in commands - seen - {"completion"}]
    for f in failures:
        print(f)
    print("failures:", len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
