"""Functions ``f`` as texts, each under its name: statements and whole functions."""

TEXT = '''
# loops
def f():
    r = []
    for x in loud("xs"):
        for y in (1, 2, 3):
            if y == 2: continue
            r.append((x, y))
        else: r.append("else")
    for z in [1, 2]:
        if z: break
    else: r.append("never")
    while len(r) < 9:
        r.append(z)
        z += 1
    else: r.append(x)
    return r
# loops over targets of all kinds
def f():
    x = loud("x")
    r = []
    for x.a in (1, 2): r.append(x.b)
    for x[say("i")] in (3, 4): pass
    for a, (x.c, *b), x[a] in [(1, (2, 3, 4), 5), (6, (7,), 8)]: r.append((a, b))
    for a, b in {"p": 1}.items(): r.append((a, b))
    for i, c in enumerate(loud("y")): r.append((i, c))
    for a, b in [(1, 2), 3]: r.append((a, b))
# a loop over a global name
def f():
    global i
    for i in (1, 2): say(i)
    for i, j in [(3, 4)]: say(i)
    with loud("m") as i: return i, globals()["i"]
# unpacking
def f():
    x = loud("x")
    a, b = x
    a, b = b, a
    (a, *b), [c, d] = loud("y"), "cd"
    x.a, (b, x[b]), *x.rest = say(1), say("ab"), *say((2, 3))
    *a, = loud("z")
    e = x.e, h = x.f, x.g = loud("w")
    x.i = x[0] = j = say(5)
    () = []
    return a, b, c, d, e, h, j
# unpacking that fails
def f():
    x = loud("x")
    a, x.b, (c, x.d), x.e = 1, 2, (3,), 4
# unpacking of too many
def f():
    a, b = (x for x in (1, 2, 3))
# unpacking of what cannot be
def f():
    a, b = say(3)
# a literal of another length
def f():
    try: (a, b), c = (1, 2), 3, 4
    except ValueError as e: return str(e)
# an unbound target
def f():
    if say(0): x = 1
    try: x.a = say("value first")
    except UnboundLocalError as e: say(str(e))
    x[0] = say("again")
# displays
def f():
    x = loud("x")
    return [1, *x, 2], (*x, *[]), {*"a"}, {1: x.a, **{2: 3}, x.b: 4}, {**x}, [], (), {}
# comprehensions
def f():
    n = 2
    return ([x * n for x in range(3)], {x for x in "a"}, {x: y for x, y in {1: 2}.items()}, [x + y for x in (1, 2)
            for y in range(x) if y or x], [[y for y in range(x)] for x in range(3)], [n for n in (5,)], n,
            [a + b + c + sum(d) for a, (b, (c, *d)) in [(1, (2, (3, 4, 5)))]], [max(x, n) for x in loud("x") if x],
            [say(i) for i, in zip((1, 2))])
# names in comprehensions
x = "global"
def f():
    a = [x for x in (1, 2)], x, (lambda x: x)(3)
    b = [(y := z) for z in (1, 2)], y
    return a, b, [g() for g in [lambda: w for w in (1, 2)]], [len for len in (3,)], len("ab")
# comprehensions that fail
def f():
    return [1 / x
            for x in (1,
                      0)
            if x + 1]
# generator expressions
def f():
    g = (say(x) for x in loud("xs") if x)
    say("made")
    return sum(y * 2 for y in (1, 2)), list(g), any(x > 1 for x in (1, 2, 3)), max((a, b) for a, b in [(1, 2)])
# strings
def f():
    x, w = loud("x"), 5
    return (f"{x}", f"{x!r}", f"{x:>{w}}", f"{x.a!s:{x.b}<{w + 3}}", f"{1.5:.2f}{{}}{'a'!r:>{w}}", f"{w=}", f"a{w!a}",
            f"{x!r:{x.c}}")
# context managers
def f():
    with loud("a") as a, loud("b") as (b, c), loud("c"): say((a, b, c))
    x = loud("x")
    with loud("d") as x.a, loud("e") as x[x.b]: say("body")
    with loud("quiet") as z: raise KeyError(z)
    with loud("quiet") as (p, q, r): say("never")
    with loud("f"):
        with loud("g") as y: return y
# context managers that fail
def f():
    with loud("a") as a, loud("b"):
        say(a)
        raise ValueError(1)
# generators
def g(n):
    got = []
    try:
        for i in range(n): got.append((yield i))
        yield from loud("sub")
        x = yield
        return got, x
    finally: say(got)
def h():
    r = yield from g(2)
    yield r
def f():
    a = list(h())
    it = g(3)
    b = next(it), it.send("s"), it.throw(KeyError("k"))
# generators that are closed
def g():
    x = loud("x")
    while True:
        try: x.a = yield (x.b, (yield 1))
        except GeneratorExit: say("closed"); raise
        except ValueError as e: say(e.args)
def f():
    it = g()
    r = [next(it), it.send(2), it.throw(ValueError, ValueError(3)), it.send(4), it.send(5)]
    it.close()
    return r
# a generator
def f():
    for x in loud("x"): yield x
    raise KeyError(f"{x}")
# exceptions
def f(depth=3):
    r = []
    for kind in (KeyError, ValueError, OSError):
        try:
            try: raise kind(1)
            except (KeyError, ZeroDivisionError): r.append("first")
            except ValueError as e: r.append(e.args)
            else: r.append("else")
            finally: r.append("finally")
        except Exception as e: r.append(type(e))
    try: e
    except UnboundLocalError: r.append("unbound")
    try: raise
    except RuntimeError as e: r.append(str(e))
    def g():
        for i in range(3):
            try: return i
            finally:
                r.append(i)
                if i < depth: continue
    return r, g()
# chained exceptions
def f():
    try: {}["k"]
    except KeyError as e:
        try: raise ValueError from e
        except ValueError as v: raise OSError(v.__cause__ is e)
# an exception that is named at the time
def f():
    try: 1 / 0
    except say(ArithmeticError) as e:
        raise TypeError("t") from None
# lines of an exception
class X:
    def g(self): return self
    def h(self, *args, **kw): raise ValueError
def f():
    x = X()
    for k in range(9):
        try:
            if k == 0: (x
                        .g()
                        .h())
            if k == 1: x.g(
                       ).h(
                           1)
            if k == 2: (x
                        .g()
                        .h(*[1]))
            if k == 3: (x
                        .g()
                        .h(a=1))
            if k == 4: (x
                        .nothing)
            if k == 5: (x
                        .g()
                        .nothing) = 1
            if k == 6: (x.g()
                        +
                        1)
            if k == 7: X.h(
                           *[2])
            if k == 8: [
                x.h(1
                    )]
        except Exception as e: say((k, type(e), e.__traceback__.tb_lineno))
    raise KeyError(
        x.g().h())
# imports
def f():
    import os.path, sys as system
    import collections.abc as abc
    from math import pi, floor as down
    from os import path
    return os.path is path, system.maxsize > 0, abc.__name__, pi, down(2.5)
# imports of global names
def f():
    global math, turn
    import math
    from math import pi as turn
    return math.floor(turn), math.pi == turn, sorted(k for k in globals() if k in ("math", "turn"))
# an import that fails
def f():
    try: from math import nothing
    except ImportError as e: say(e.name)
    import nothing_of_this_name
# nested functions
def deco(x):
    say(x)
    def g(f):
        say((x, f.__name__))
        return f
    return g
def f(n=1):
    @deco("a")
    @deco("b")
    def g(x: say("int") = say(2), *args: "no", y=say(n), **kw) -> say("str"):
        """doc"""
        return x + y + n
    h = lambda x=say(n), *, y=say(5): (x, y, n)
    return (g(), g(1, y=2), g.__doc__, g.__qualname__, sorted(g.__annotations__), h(), h(1), h.__qualname__,
            g.__code__.co_firstlineno)
# a nested function that fails
def f():
    def g(x):
        return (1 /
                x)
    return g(0)
# decorators that fail
def f():
    @say
    @len
    def g(): pass
# annotations
def f():
    x: undefined = 1
    y: undefined
    z = loud("z")
    z.a: undefined = say(2)
    (w): int = 3
    try: y
    except UnboundLocalError: return x, w
# recursion
def f(n=5): return 1 if n < 2 else n * f(n - 1)
# arguments of all kinds
def f(a=1, /, b=2, *c, d=3, e, **g): return a, b, c, d, e, g, len(c)
f.__kwdefaults__["e"] = 4
# a docstring
def g():
    "a docstring"
    return 1
def f(): return g.__doc__, g()
# a constant that comes first
def f():
    say(1)
    "no docstring"
    return f.__doc__
# a walrus
def f():
    if (n := len("abc")) > 2 and (m := n + 1): say((n, m))
    x = loud("x")
    x.a = (x := loud("y"))
    x[(i := 1)] = i
    return x, [last := z for z in (1, 2)], last, n
# lambdas
add = lambda x, *y, z=3: (x + z, [v + x for v in y], (lambda: x)())
f = lambda: (add(1), add(1, 2, z=4), "text")
# lambdas of one line
p, q, r = lambda x: x.a, lambda x: x.b, [lambda x: x.a + 1, lambda x: [x.c for y in x]]
f = lambda: [g(loud("x")) for g in (p, q, *r)]
# decorated functions
def twice(g): return lambda x: g(g(x))
@twice

@twice
def g(x):
    say(x)
    return x + f.n
f = lambda: g(1)
f.n = 1
# matching
class P:
    __match_args__ = ("x",)
    def __init__(self, x, y): self.x, self.y = x, y
class Color: RED = 3
def g(v):
    match v:
        case 1 | 2: return "small"
        case Color.RED: return "red"
        case P(x=0, y=y): return y
        case P(x=[a, *b]) if say(a): return a, b
        case {"k": k, **rest}: return k, rest
        case [P(y=1) as p, _]: return p.x
        case str(s) | int(s): return s
        case None: return "none"
        case _ if say(0): return 0
values = 1, 3, P(0, 4), P((1, 2), 0), P((0, 2), 0), {"k": 1, "l": 2}, [P(5, 1), 0], "s", 9, None
def f(): return [g(v) for v in values]
# matching what is not defined
def f():
    match say(2):
        case 2: say("two")
        case undefined.name: say("never")
    match 3:
        case int(x) if x > 3: pass
        case Undefined(): pass
# finally
def f():
    x = loud("x")
    try:
        try: return x.a
        finally: x.b = say(1)
    finally: x[2] += 3
# a method of a local class's instance
def make():
    class K:
        def g(self, n): return K, self, n, super().__str__, __class__
    return K
K = make()
def f(): return [getattr(x, "__name__", x.__class__.__name__) for x in K().g(3)]
# a function named like a free variable
def outer():
    def K(n): return n and K(n - 1)
    return K
f = lambda: outer()(2)
# deleting
def f():
    x, y = 1, loud("y")
    del x, y.a, y[0]
    try: x
    except UnboundLocalError: say("gone")
    del undefined
# a fresh global at each turn
def f(n=0):
    global total
    total = 0
    for i in range(3):
        total += i
        (total)
    def g():
        return total
    return g(), total
'''
