"""Programs and shapes for bench/overlap/sweep: ordinary parallel programs, with numbers as extents.

cases(ranks) gives (name, text, marked): `marked` programs have streams in their schedule.
"""


def fusion(name, meshes, body, results, schedule):
    lines = [f"fusion {name} {{", *meshes, *body, f"return {', '.join(results)}", "schedule {", *schedule, "}", "}"]
    return "\n".join(lines) + "\n"


def sharded(name, dim, mesh="d"):
    return f"{name}.outer_split({dim}, {mesh}); {name}[{dim}] = mesh.x"


def layers(count):
    return range(1, count + 1)


def fsdp(ranks, count, b, h):
    """Forward and backward: weights are gathered twice, gradients reduced and scattered."""
    body = [f"x : f32[{b}, {h}]", f"dy : f32[{b}, {h}]"] + [f"w{i} : f32[{h}, {h}]" for i in layers(count)]
    before, e, gathered = "x", "dy", []
    for i in layers(count):
        body += [f"g{i} = set(w{i})", f"a{i} = relu(matmul({before}, g{i}))"]
        before = f"a{i}"
    for i in reversed(layers(count)):
        below = f"a{i - 1}" if i > 1 else "x"
        body += [f"d{i} = where(a{i} > 0, {e}, 0)", f"dw{i} = matmul(transpose({below}), d{i})"]
        if i > 1:
            body += [f"r{i} = set(w{i})", f"e{i} = matmul(d{i}, transpose(r{i}))"]
            gathered.append(f"r{i}")
            e = f"e{i}"
    cut = ["x", "dy"] + [f"{k}{i}" for k in ("w", "dw") for i in layers(count)]
    names = cut + gathered + [f"g{i}" for i in layers(count)]
    schedule = [f"{', '.join(names)} on d"] + [sharded(t, 0) for t in cut]
    return fusion("fsdp", [f"mesh d = [{ranks}]"], body, [f"a{count}"] + [f"dw{i}" for i in layers(count)], schedule)


def dp(ranks, count, b, h):
    """Forward and backward with gradients of weights and biases, which are reduced."""
    body = [f"x : f32[{b}, {h}]", f"dy : f32[{b}, {h}]"] + [f"w{i} : f32[{h}, {h}]" for i in layers(count)]
    before, e, results = "x", "dy", []
    for i in layers(count):
        body += [f"a{i} = relu(matmul({before}, w{i}))"]
        before = f"a{i}"
    for i in reversed(layers(count)):
        below = f"a{i - 1}" if i > 1 else "x"
        body += [f"d{i} = where(a{i} > 0, {e}, 0)", f"dw{i} = matmul(transpose({below}), d{i})",
                 f"db{i} = sum(d{i}, dims=[0])"]
        results += [f"dw{i}", f"db{i}"]
        if i > 1:
            body += [f"e{i} = matmul(d{i}, transpose(w{i}))"]
            e = f"e{i}"
    schedule = ["x, dy, " + ", ".join(f"w{i}" for i in layers(count)) + " on d", sharded("x", 0), sharded("dy", 0)]
    return fusion("dp", [f"mesh d = [{ranks}]"], body, results, schedule)


def tp(ranks, count, t, e):
    """A chain of MLPs: up is cut by rows, down by columns; one allreduce each."""
    f = 4 * e
    body = [f"x0 : f32[{t}, {e}]"]
    for i in layers(count):
        body += [f"u{i} : f32[{f}, {e}]", f"v{i} : f32[{e}, {f}]"]
    for i in layers(count):
        body += [f"x{i} = linear(gelu(linear(x{i - 1}, u{i})), v{i})"]
    schedule = []
    for i in layers(count):
        schedule += [f"u{i}, v{i} on d", sharded(f"u{i}", 0), sharded(f"v{i}", 1)]
    return fusion("tp", [f"mesh d = [{ranks}]"], body, [f"x{count}"], schedule)


def product(kind, ranks, t, k, m):
    """One linear layer: its rows are gathered (ag), its result is reduced (ar) or reduced and scattered (rs)."""
    body = [f"x : f32[{t}, {k}]", f"w : f32[{m}, {k}]", "y = linear(x, w)"]
    if kind == "ag":
        schedule = ["x, w on d", sharded("x", 0), sharded("w", 0)]
    else:
        schedule = ["x, w, y on d", sharded("x", 1), sharded("w", 1)] + ([sharded("y", 0)] if kind == "rs" else [])
    return fusion(kind, [f"mesh d = [{ranks}]"], body, ["y"], schedule)


def stages(ranks, rows, e, micro):
    """Two stages, whose rows run in micro-batches."""
    half = ranks // 2
    first, second = ", ".join(map(str, range(half))), ", ".join(map(str, range(half, ranks)))
    meshes = [f"mesh first = [{half}] of {{{first}}}", f"mesh second = [{half}] of {{{second}}}"]
    body = [f"x : f32[{rows}, {e}]", f"w1 : f32[{e}, {e}]", f"w2 : f32[{e}, {e}]", "a = relu(linear(x, w1))",
            "b = set(a)", "y = linear(b, w2)"]
    schedule = ["x, w1 on first", sharded("x", 0, "first"), f"x.outer_split(1, {micro}); x[1] = stream",
                "b, w2 on second", sharded("b", 0, "second"), f"b.outer_split(1, {micro}); b[1] = stream"]
    return fusion("stages", meshes, body, ["y"], schedule)


def step(ranks, b, e):
    """Two stages and four micro-batches, forward and backward."""
    last = ranks - 1
    meshes = ["mesh first = [1] of {0}", f"mesh second = [1] of {{{last}}}"]
    body = [f"x : f32[4, {b}, {e}]", f"target : f32[4, {b}, {e}]", f"w1 : f32[{e}, {e}]", f"w2 : f32[{e}, {e}]",
            "h = relu(linear(x, w1))", "y = linear(h, w2)", "dy = y - target", "g2 = matmul(transpose(dy), h)",
            "dh = matmul(dy, w2)", "dz = where(h > 0, dh, 0.0)", "g1 = matmul(transpose(dz), x)",
            "s1 = sum(g1, dims=[0])", "s2 = sum(g2, dims=[0])"]
    schedule = ["x, w1, h, dz, g1, s1 on first", "target, w2, y, dy, g2, dh, s2 on second"]
    schedule += [f"{t}[0] = stream" for t in ("h", "y", "dy", "dh", "dz")]
    return fusion("step", meshes, body, ["s1", "s2"], schedule)


def transformer(ranks, b, s, e):
    """A layer whose heads and hidden features are cut: two allreduces."""
    heads = 8
    c = e // heads
    body = [f"x : f32[{b}, {s}, {e}]"] + [f"{w} : f32[{heads}, {c}, {e}]" for w in ("wq", "wk", "wv")]
    body += [f"wo : f32[{e}, {e}]", f"up : f32[{4 * e}, {e}]", f"down : f32[{e}, {4 * e}]", "n1 = layer_norm(x)"]
    for p in "qkv":
        body += [f"{p} = linear(n1, reshape(w{p}, [{e}, {e}]))",
                 f"{p}h = permute(reshape({p}, [{b}, {s}, {heads}, {c}]), [0, 2, 1, 3])"]
    body += [f"a = reshape(permute(sdpa(qh, kh, vh, causal=true), [0, 2, 1, 3]), [{b}, {s}, {e}])",
             "h = x + linear(a, wo)", "n2 = layer_norm(h)", "y = h + linear(gelu(linear(n2, up)), down)"]
    schedule = ["wq, wk, wv, wo, up, down on d"] + [sharded(t, 0) for t in ("wq", "wk", "wv", "up")]
    schedule += [sharded(t, 1) for t in ("wo", "down")]
    return fusion("transformer", [f"mesh d = [{ranks}]"], body, ["y"], schedule)


def cases(ranks):
    found = []

    def add(text, marked, *sizes):
        found.append((":".join(map(str, (text.split()[1], *sizes))), text, marked))

    for h in (128, 256, 512):
        for b in (256, 1024, 4096):
            for count in (2, 4):
                add(fsdp(ranks, count, b, h), False, count, b, h)
                add(dp(ranks, count, b, h), False, count, b, h)
    for t in (64, 256, 1024):
        for e in (256, 512):
            for count in (1, 2, 4):
                add(tp(ranks, count, t, e), False, count, t, e)
    for kind in ("ag", "ar", "rs"):
        for t in (128, 512, 2048):
            for k in (256, 1024):
                for m in (256, 1024):
                    add(product(kind, ranks, t, k, m), False, t, k, m)
    for rows in (256, 1024, 4096):
        for e in (128, 512):
            for micro in (2, 4, 8):
                add(stages(ranks, rows, e, micro), True, rows, e, micro)
    for b in (64, 256, 1024):
        for e in (128, 256, 512):
            add(step(ranks, b, e), True, b, e)
    for s in (64, 256, 512):
        for e in (128, 256):
            for b in (1, 4):
                add(transformer(ranks, b, s, e), False, b, s, e)
    return found


def forms(marked, ranks):
    """The ways to run a program: options of compile(). "none" overlaps nothing."""
    alone = {"pipeline": "marked", "disable": "order,buckets"}
    if marked:
        return {"none": {**alone, "enable": "unstream"}, "plain": {"pipeline": "marked", "enable": "unstream"},
                "marked": {"pipeline": "marked"}, "auto": {"pipeline": "auto"}}
    found = {"none": alone, "plain": {"pipeline": "marked"},
             "sliced": {"pipeline": "marked", "enable": "slice-products"},
             "last": {"pipeline": "marked", "enable": "slice-last"}}
    if ranks > 2:
        found["halved"] = {"pipeline": "marked", "enable": "halve-products"}
    found["auto"] = {"pipeline": "auto"}
    return found
