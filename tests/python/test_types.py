"""What a type checker sees: the stub of the extension has all of it, and the package's public names say their types."""

import ast
import inspect
import pathlib
import unittest

import weir
from weir import _weir


def public(names):
    return {n for n in names if not n.startswith("_")}


class Types(unittest.TestCase):
    def test_stub(self):
        """Names of the extension, their methods, and the numbers of their parameters where Python knows them."""
        stub = ast.parse((pathlib.Path(weir.__file__).parent / "_weir.pyi").read_text())
        classes = {c.name: {f.name: f for f in c.body} for c in stub.body if isinstance(c, ast.ClassDef)}
        functions = {f.name for f in stub.body if isinstance(f, ast.FunctionDef)}
        self.assertEqual(public(dir(_weir)), set(classes) | functions)
        for name, methods in classes.items():
            self.assertEqual(public(dir(getattr(_weir, name))), public(methods), name)
            for f in methods.values():
                self.assertIsNotNone(f.returns, f"{name}.{f.name}")
                self.assertTrue(all(a.annotation for a in f.args.args[1:]), f"{name}.{f.name}")

    def test_package(self):
        """Every parameter and result of what `from weir import *` gives."""
        bare = []
        for name, f in self.functions():
            parameters = inspect.signature(f).parameters.values()
            bare += [f"{name}({p.name})" for p in parameters if p.annotation is p.empty and p.name not in ("self", "cls")]
            if "return" not in f.__annotations__ and f.__name__ != "__init__":
                bare.append(f"{name} -> ?")
        self.assertEqual(bare, [])

    def test_marker(self):
        self.assertTrue((pathlib.Path(weir.__file__).parent / "py.typed").exists())

    def functions(self):
        for name in weir.__all__:
            x = getattr(weir, name)
            if inspect.isfunction(x):
                yield name, x
            for k, v in vars(x).items() if inspect.isclass(x) else ():
                if k.startswith("_") and k not in ("__init__", "__call__", "__getitem__"):
                    continue
                v = v.fget if isinstance(v, property) else getattr(v, "__func__", v)
                if inspect.isfunction(v):
                    yield f"{name}.{k}", v


if __name__ == "__main__":
    unittest.main()
