"""Functions ``f`` as texts, each under its name: reads, stores and expressions."""

TEXT = '''
# global names
def f():
    global n
    n = say(1)
    n += 2
    def g(): return n
    m = n, g()
    del n
    return m, len("x"), n
# names of builtins
def f(): return __debug__, NotImplemented, max(1, 2), undefined
# free variables
def make():
    a, b, c = 1, 2, 3
    def g():
        nonlocal a, b
        a = say(a) + c
        a += 1
        b, (a, d) = a, (b, c)
        del b
        return a, d, b
    return g
f = make()
# an unbound free variable
def make():
    def g(): return late
    if say(0): late = 1
    return g
f = make()
# a walrus binds a free variable
def make():
    a = 1
    def g():
        nonlocal a
        if (a := a + 1) > 1: return [a := a * x for x in (2, 3)], a
    return g
f = make()
# locals that are cells
def f(x=1):
    def g():
        nonlocal x
        x += 1
        return x
    return g(), x, g(), (lambda: x)()
# an argument that a nested function binds
def f():
    x = loud("x")
    def g(self):
        def swap():
            nonlocal self
            self = loud("y")
            return 1
        self.a = swap()
        self[swap()] = self.b
        return self
    return g(x)
# attributes and items
def f():
    x = loud("x")
    x.a.b = x[1, 2:3]
    x[say("key")].c = say("value")
    x.d[x.e] = x.f
    x[1:2, ..., ::x.step] = x[x.lower:]
    del x.g, x[3], (x.h, [x[:]])
    return x.a
# attributes of self
class C:
    kind = "c"
    def __init__(self, n):
        self.n = n
        self.m = self.double()
        self.n += len(self.kind)
    def double(self): return self.n * 2
def f():
    c = C(2)
    return c.n, c.m, vars(c)
# private names
class _C:
    def __init__(self): self.__x = {"__y": 1}
    def __get(self, __a): return __a, self.__x["__y"], self.__class__.__name__
    def g(self):
        global __g
        __g = 3
        __b = [__c for __c in (1, 2)]
        def h(): return self.__get(__b), __b
        self.__x.update(__z=__g)
        del self.__d
    __d = property(lambda self: 1, fdel=lambda self: say(self.__get(self.__x)))
def f():
    c = _C()
    return c.g(), vars(c), sorted(name for name in globals() if name.endswith("_g"))
# a class with a private name of underscores
class __:
    def g(self): self.__x = 1; return self.__x
def f(): return vars(__()), __().g()
# super
class A:
    def __init__(self, x): self.x = x
    def __repr__(self): return f"A{self.x}"
    @classmethod
    def make(cls, x): return cls(x)
class B(A):
    def __init__(self, x):
        super().__init__(x + 1)
        self.y = super().__repr__() + super(B, self).__repr__()
    def __repr__(self):
        def text(): return super(__class__, self).__repr__()
        return text() + self.y + __class__.__name__
    @classmethod
    def make(cls, x): return super().make(x * 2)
def f(): return B(1), B.make(3)
# super with another first argument
class A:
    def g(self): return "A.g", type(self).__name__
class B(A):
    def g(self):
        self = C()
        return super().g()
class C(B): pass
def f(): return B().g()
# calls
def f():
    g = loud("g")
    g(1, *g.a, 2, *[3], x=say(4), **g.b, y=5)
    g()(g)(lambda: 1 and 2)()
    return g.a.b(c=1)(d=g)
# calls that fail
def one(x, /, *, y=1): return x
def f(n=0):
    r = []
    for args in ((), (1, 2)):
        try: r.append(one(*args))
        except TypeError as e: r.append(str(e))
    for bad in (3, loud("z")):
        try: r.append(one(*say(bad)))
        except TypeError: r.append("star")
        try: r.append(one(**say(bad)))
        except TypeError: r.append("stars")
    try: one(1, y=2, **{"y": 3})
    except TypeError: r.append("twice")
    return r, one(1, z=2)
# names that the observer's methods use
def g(self, f, name, /, **kw): return self, f, name, kw
def f(): return g(1, 2, 3, self=4, f=5, name=6)
# arithmetic
def f():
    a, b = loud("a"), loud("b")
    a + b, a - b, a * b, a @ b, a / b, a % b, a ** b, a << b, a >> b, a | b, a ^ b, a & b, a // b, 1 + a
    return -a, +a, ~a, not a, -1, 2 ** 3, -(a + b), "%s" % 3
# comparisons
def f():
    a, b, c0 = loud("a"), loud("b"), loud("c0")
    r = a == b, a != b, a < b, a <= b, a > b, a >= b, a is b, a is not b, a in b, a not in b
    return r, a < b < c0, a < c0.x < b <= 3, 1 < 2 < 3, 1 < a is not None, (a == b) == c0
# in-place arithmetic
def f():
    a = b = loud("a")
    a += 1
    a.x += say(2)
    b[say(3)] *= b.y
    b.z[b.i:b.j] @= 4
    c = d = [1]
    c += [2]
    c[0] += c[1]
    d[-1] -= 5
    s = "a"
    s += "b"
    return a, c, d, s, (b.q)
# the order of an in-place store
def f():
    def g(x):
        say(x)
        return d
    d = {"k": 1}
    g(1)[say("k")] += g(2)[say("k")]
    g(3)[say("none")] += g(4)
# truth in tests
def f():
    a, b, c0 = loud("a"), loud("b"), loud("c0")
    if a and not c0 or b: say(1)
    if not (a and c0): say(2)
    while a and c0: say(3)
    r = a if c0 or (b and a) else b
    assert a and b, say("message")
    if (a if c0 else b): say(4)
    if a < b: say(5)
    if 1: say(6)
    return r, [x for x in (a, c0) if x if not c0]
# truth in values
def f():
    a, b, c0, d0 = loud("a"), loud("b"), loud("c0"), loud("d0")
    r = a and b, a or b, c0 and a, c0 or a, c0 or d0, a and c0 and b, (a or b) and c0, (c0 and a) or b
    return r, a and (c0 or b), not a and b, (not a or c0) and b, 0 or a, a and 1 or b, (a if b else c0) or d0
# assertions
def f():
    assert loud("x"), say("no")
    assert loud("x0"), f"{say('yes')}"
# stars in keys (3.11)
def f():
    x = loud("x")
    x[1, *x.a] = x[*x.b]
    return x[*x.c, 1:2]
# a generic function (3.12)
class G[T]:
    def g[S](self, x: T, y: S = 1) -> T: return T.__name__, S.__name__, x, y
def f(): return G().g(2)
# quotes in strings (3.12)
def f(): return f"{loud("x")["k"]:{"<"}{f"{1}"}}"
# template strings (3.14)
def f():
    x = loud("x")
    t = t"a{x.a!r:{x.b}}{x}"
    return t.strings, t.values, [(i.expression, i.conversion, i.format_spec) for i in t.interpolations]
# annotations made later (3.14)
def f():
    def g(x: later, y: say(1) = 2) -> later: return x
    later = 3
    return g.__annotations__, g(4)
'''
