"""Functions that texts call, one for each type; a text contains those it uses, in the order of this table."""
from __future__ import annotations

# {T} is the type, {f} the end of the names of its library functions.
_TEXTS = {
    "sign": """\
FUNCTION {T} sign_{T}({T} x) {{
    return x > 0 ? ({T})1 : x < 0 ? ({T})-1 : x == 0 ? ({T})0 : x;
}}
""",
    "floor_divide": """\
FUNCTION {T} floor_divide_{T}({T} a, {T} b) {{
    if (b == 0) return a / b;
    const {T} rest = fmod{f}(a, b);
    {T} quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign{f}(({T})0, a / b);
    const {T} whole = floor{f}(quotient);
    return quotient - whole > ({T})0.5 ? whole + 1 : whole;
}}
""",
    "remainder": """\
FUNCTION {T} remainder_{T}({T} a, {T} b) {{
    const {T} rest = fmod{f}(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysign{f}(({T})0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}}
""",
    "floor_divide_int": """\
FUNCTION {T} floor_divide_int_{T}({T} a, {T} b) {{
    if (b == 0) return 0;
    if (b == -1) return ({T})(0 - (u64)a);
    const {T} quotient = a / b;
    return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}}
""",
    "remainder_int": """\
FUNCTION {T} remainder_int_{T}({T} a, {T} b) {{
    if (b == 0 || b == -1) return 0;
    const {T} rest = a % b;
    return (rest != 0 && (rest < 0) != (b < 0)) ? rest + b : rest;
}}
""",
    "floor_divide_unsigned": """\
FUNCTION {T} floor_divide_unsigned_{T}({T} a, {T} b) {{
    return b == 0 ? 0 : a / b;
}}
""",
    "remainder_unsigned": """\
FUNCTION {T} remainder_unsigned_{T}({T} a, {T} b) {{
    return b == 0 ? 0 : a % b;
}}
""",
    "power_int": """\
FUNCTION {T} power_int_{T}({T} a, {T} b) {{
    u64 base = a, result = 1;
    for (; b > 0; b >>= 1, base *= base) if (b & 1) result *= base;
    return ({T})result;
}}
""",
    "power_unsigned": """\
FUNCTION {T} power_unsigned_{T}({T} a, {T} b) {{
    u64 base = a, result = 1;
    for (; b != 0; b >>= 1, base *= base) if (b & 1) result *= base;
    return ({T})result;
}}
""",
    "round_half": """\
FUNCTION f32 round_half_{T}({T} x) {{
    return half_to_float({from}_to_half(x));
}}
""",
    "order": """\
FUNCTION i32 order_{T}(i64 a, u64 b) {{
    return a < 0 || (u64)a < b ? -1 : (u64)a > b;
}}
""",
}


class Helpers:
    """Remembers which functions a text uses, and which types of packs of neighbours."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], None] = {}
        self._packs: dict[str, str] = {}

    def use(self, name: str, type_: str, *args: str) -> str:
        """A call of the function ``name`` of ``type_``."""
        self._used[name, type_] = None
        return f"{name}_{type_}({', '.join(args)})"

    def pack(self, storage: str, count: int, itemsize: int) -> str:
        """The type of ``count`` neighbours in memory, which are read and written at once."""
        name = f"{storage}x{count}"
        fields = f"{{ {storage} at[{count}]; }}"
        self._packs[name] = f"typedef struct ALIGNED_TYPE({count * itemsize}) {name} {fields} {name};"
        return name

    def text(self) -> str:
        """The text of the functions and types used so far."""
        lines = [f"{text}\n" for text in self._packs.values()]
        for name, text in _TEXTS.items():
            for t in sorted(t for n, t in self._used if n == name):
                lines.append(text.format_map({"T": t, "f": "f" if t == "f32" else "",
                                              "from": "float" if t == "f32" else "double"}))
        return "".join(lines)
